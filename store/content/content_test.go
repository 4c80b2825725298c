package content_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/threadsvc/threadsvc/store/content"
)

// kept is a store of chunks that counts what was new.
type kept struct {
	chunks map[content.Hash][]byte
	bytes  int
}

func (k *kept) put(text []byte) []byte {
	ref, chunks := content.Put(text)
	for hash, chunk := range chunks {
		if _, held := k.chunks[hash]; !held {
			k.chunks[hash] = bytes.Clone(chunk)
			k.bytes += len(chunk) + content.HashSize
		}
	}
	return ref
}

func (k *kept) fetch(hashes []content.Hash) (map[content.Hash][]byte, error) {
	found := map[content.Hash][]byte{}
	for _, hash := range hashes {
		if chunk, ok := k.chunks[hash]; ok {
			found[hash] = chunk
		}
	}
	return found, nil
}

func newKept() *kept { return &kept{chunks: map[content.Hash][]byte{}} }

// TestGetReturnsWhatWasPut holds for texts of every size and nature.
func TestGetReturnsWhatWasPut(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := bytes.Repeat(rapid.SliceOfN(rapid.Byte(), 0, 400).Draw(t, "piece"), rapid.IntRange(1, 400).Draw(t, "times"))
		store := newKept()
		got, err := content.Get(store.put(text), store.fetch)
		if err != nil || !bytes.Equal(got, text) {
			t.Fatalf("got %d bytes and %v, want %d", len(got), err, len(text))
		}
	})
}

// TestRestatingCostsTheChange puts a growing conversation again and again: what one more turn adds does not depend on
// how long the conversation is.
func TestRestatingCostsTheChange(t *testing.T) {
	t.Parallel()
	store, text := newKept(), []byte(`{"messages":[`)
	random := rand.New(rand.NewPCG(1, 2))
	cost := map[int]int{}
	for turn := 1; turn <= 2000; turn++ {
		text = fmt.Appendf(text, `{"id":"m%d","role":"user","content":"%x"},`, turn, random.Uint64())
		before := store.bytes
		ref := store.put(append(bytes.Clone(text), `]}`...))
		cost[turn] = store.bytes - before + len(ref)
	}
	average := func(from, to int) (sum int) {
		for turn := from; turn < to; turn++ {
			sum += cost[turn]
		}
		return sum / (to - from)
	}
	if early, late := average(50, 150), average(1900, 2000); late > 3*early {
		t.Errorf("a turn costs %d bytes at 100 turns and %d at 2,000", early, late)
	}
}

// TestAnEditInTheMiddleCostsItsSurroundings holds also where everything behind it moves.
func TestAnEditInTheMiddleCostsItsSurroundings(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	text := make([]byte, 1<<20)
	for i := range text {
		text[i] = byte(random.Uint32())
	}
	store := newKept()
	store.put(text)
	before := store.bytes
	store.put(append(append(bytes.Clone(text[:500_000]), "inserted"...), text[500_000:]...))
	if added := store.bytes - before; added > 64<<10 {
		t.Errorf("8 bytes in 1 MiB added %d bytes", added)
	}
}

// TestCorruptReferencesAreTypedErrors covers references that are cut or altered, and chunks that are missing.
func TestCorruptReferencesAreTypedErrors(t *testing.T) {
	t.Parallel()
	store := newKept()
	ref := store.put(bytes.Repeat([]byte("some text of no great variety. "), 5000))
	for n := range len(ref) {
		if _, err := content.Get(ref[:n], store.fetch); !errors.Is(err, content.ErrCorrupt) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
	for i := range ref {
		altered := bytes.Clone(ref)
		altered[i] ^= 0x55
		if _, err := content.Get(altered, store.fetch); !errors.Is(err, content.ErrCorrupt) {
			t.Errorf("byte %d altered: %v", i, err)
		}
	}
}

func BenchmarkPut(b *testing.B) {
	random := rand.New(rand.NewPCG(5, 6))
	text := make([]byte, 1<<20)
	for i := range text {
		text[i] = byte('a' + random.Uint32()%26)
	}
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		content.Put(text)
	}
}

// Names are those of the chunks that Get asks for: with them the text can be had, and without any one of them it cannot. Lists
// that texts share are read once.
func TestNamesAreWhatGetNeeds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		text := make([]byte, rapid.IntRange(0, 400_000).Draw(t, "size"))
		for i := range text {
			text[i] = byte('a' + random.IntN(26))
		}
		store, names := newKept(), content.NewNames()
		ref := store.put(text)
		read := 0
		fetch := func(hashes []content.Hash) (map[content.Hash][]byte, error) {
			read += len(hashes)
			return store.fetch(hashes)
		}
		if err := names.Add(ref, fetch); err != nil {
			t.Fatal(err)
		}
		lists := read
		if err := names.Add(ref, fetch); err != nil || read != lists {
			t.Fatalf("%d lists were read, and then %d: %v", lists, read, err)
		}
		for hash := range store.chunks {
			if !names.Has(hash) {
				t.Fatalf("chunk %x is not named", hash)
			}
		}
		if names.Has(content.HashOf([]byte("another"))) {
			t.Fatal("a chunk is named that nobody needs")
		}
		if lists > 0 {
			store.chunks = nil
			if err := content.NewNames().Add(ref, store.fetch); !errors.Is(err, content.ErrCorrupt) {
				t.Fatalf("without the lists: %v", err)
			}
		}
	})
	if err := content.NewNames().Add([]byte{0xff}, nil); !errors.Is(err, content.ErrCorrupt) {
		t.Errorf("no reference: %v", err)
	}
}

// Lists were longer once. Texts that were put then are read, and what they refer to is found.
func TestListsOfEarlierCuts(t *testing.T) {
	t.Parallel()
	store, text, list := newKept(), []byte(nil), []byte(nil)
	for i := range 256 {
		chunk := fmt.Appendf(nil, "chunk %d of a list that has no cut", i)
		hash := content.HashOf(chunk)
		store.chunks[hash] = chunk
		text, list = append(text, chunk...), append(list, hash[:]...)
	}
	root := content.HashOf(list)
	store.chunks[root] = list
	ref := binary.AppendUvarint([]byte{1}, uint64(len(text)))
	ref = append(ref, root[:]...)
	if got, err := content.Get(ref, store.fetch); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%d bytes of %d, %v", len(got), len(text), err)
	}
	names := content.NewNames()
	if err := names.Add(ref, store.fetch); err != nil {
		t.Error(err)
	}
	store.chunks[root] = append(list, list[:content.HashSize]...)
	if _, err := content.Get(ref, store.fetch); !errors.Is(err, content.ErrCorrupt) {
		t.Errorf("a longer list: %v", err)
	}
}
