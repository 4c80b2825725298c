package store

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/threadsvc/threadsvc/agui"
)

// blockTable is what message_blocks has of a thread, by first position, in the stored form.
type blockTable map[int64][]byte

// owners finds the blocks that own positions, as sqlChangedBlocks does.
func (b blockTable) owners(t *rapid.T, positions []int64) []messageBlock {
	found := map[int64]messageBlock{}
	for _, position := range positions {
		owner, any := int64(0), false
		for first := range b {
			if first <= position && (!any || first > owner) {
				owner, any = first, true
			}
		}
		if any {
			found[owner] = b.block(t, owner)
		}
	}
	return slices.SortedFunc(maps.Values(found), func(x, y messageBlock) int { return cmp.Compare(x.first, y.first) })
}

func (b blockTable) block(t *rapid.T, first int64) messageBlock {
	block := messageBlock{first: first}
	if err := block.decode(b[first]); err != nil {
		t.Fatal(err)
	}
	return block
}

func (b blockTable) apply(t *rapid.T, change blockChange) {
	for _, first := range change.gone {
		if _, ok := b[first]; !ok {
			t.Fatalf("block %d is deleted and not there", first)
		}
		delete(b, first)
	}
	for _, block := range change.added {
		if _, ok := b[block.first]; ok {
			t.Fatalf("block %d is there already", block.first)
		}
		b[block.first] = block.encode()
	}
}

func (b blockTable) messages(t *rapid.T) (all []agui.StoredMessage) {
	for _, first := range slices.Sorted(maps.Keys(b)) {
		all = append(all, b.block(t, first).messages...)
	}
	return all
}

// Whatever is added, changed and deleted, the blocks hold the messages that a plain map holds, in order, and blocks that
// nothing happened to are left alone.
func TestPlanBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, model := blockTable{}, map[int64]agui.StoredMessage{}
		for range rapid.IntRange(1, 6).Draw(t, "folds") {
			c := drawChange(t, model)
			changed := slices.Clone(c.Fold.Deletes)
			for _, m := range c.Fold.Upserts {
				model[m.Position] = m
				if m.Position <= c.Fold.Stored {
					changed = append(changed, m.Position)
				}
			}
			for _, position := range c.Fold.Deletes {
				delete(model, position)
			}
			table.apply(t, planBlocks(c, table.owners(t, changed)))
			want := slices.SortedFunc(maps.Values(model), byPosition)
			if got := table.messages(t); !slices.EqualFunc(got, want, sameMessage) {
				t.Fatalf("blocks have %v, want %v", got, want)
			}
		}
	})
}

func byPosition(a, b agui.StoredMessage) int { return cmp.Compare(a.Position, b.Position) }

func sameMessage(a, b agui.StoredMessage) bool {
	return a.Position == b.Position && a.ID == b.ID && a.Role == b.Role && bytes.Equal(a.Body, b.Body)
}

func drawChange(t *rapid.T, model map[int64]agui.StoredMessage) *Commit {
	fold := &agui.Changes{}
	for position := range model {
		fold.Stored = max(fold.Stored, position)
	}
	for i, position := range rapid.SliceOfNDistinct(rapid.Int64Range(1, 60), 1, 12, rapid.ID[int64]).Draw(t, "positions") {
		if _, held := model[position]; held && rapid.Bool().Draw(t, "delete") {
			fold.Deletes = append(fold.Deletes, position)
			continue
		}
		size := rapid.SampledFrom([]int{0, 10, blockSize / 3, blockSize + 1}).Draw(t, "size")
		fold.Upserts = append(fold.Upserts, agui.StoredMessage{
			Position: position, ID: fmt.Sprint("m", position, "-", i), Role: agui.RoleUser, Body: bytes.Repeat([]byte{'x'}, size),
		})
	}
	slices.SortFunc(fold.Upserts, byPosition)
	return &Commit{Fold: fold}
}

// What a run adds at the end does not touch the blocks before it, and large messages do not share one.
func TestPlanBlocksAtTheEnd(t *testing.T) {
	t.Parallel()
	fold := &agui.Changes{Stored: 3}
	for i, size := range []int{10, 20, blockSize, 5, 6} {
		fold.Upserts = append(fold.Upserts, agui.StoredMessage{Position: int64(4 + i), Body: make([]byte, size)})
	}
	change := planBlocks(&Commit{Fold: fold}, nil)
	var firsts []int64
	for _, b := range change.added {
		firsts = append(firsts, b.first)
	}
	if want := []int64{4, 6, 7}; len(change.gone) > 0 || !slices.Equal(firsts, want) {
		t.Errorf("deleted %v and added blocks at %v, want none and %v", change.gone, firsts, want)
	}
}

// A block that is cut short, or claims more than there is, is corrupt.
func TestDecodeBlockCorrupt(t *testing.T) {
	t.Parallel()
	whole := (&messageBlock{first: 5, messages: []agui.StoredMessage{
		{Position: 5, ID: "a", Role: agui.RoleUser, Body: agui.Value(`{}`)}, {Position: 900, ID: "b", Role: agui.RoleTool, Body: agui.Value(`[]`)},
	}}).encode()
	second := len(whole) - len("\xfe\x0d\x01b\x04tool\x02[]")
	for n := 1; n < len(whole); n++ {
		b := messageBlock{first: 5}
		if err := b.decode(whole[:n]); (n == second) != (err == nil) || err != nil && !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
	huge := append([]byte{0}, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01)
	if err := new(messageBlock).decode(huge); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a length of 2^64-1: %v", err)
	}
}
