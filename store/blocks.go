package store

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/threadsvc/threadsvc/agui"
)

// blockSize is the size of bodies, in bytes of plain text, beyond which messages are put into another block: what is
// rewritten when one of them changes.
const blockSize = 16 << 10

// messageBlock is a row of message_blocks: messages that are neighbours.
type messageBlock struct {
	first    int64 // the position it is stored under
	messages []agui.StoredMessage
}

// blockChange is what a commit does to a thread's blocks: those stored under gone are deleted, and then the others
// inserted.
type blockChange struct {
	key   Key
	gone  []int64
	added []messageBlock
}

// planBlocks decides how the messages of a fold change a thread's blocks. owners are the blocks that hold the positions
// that change, in order. New messages at the end, which is what a run brings, make blocks of their own and rewrite none.
func planBlocks(c *Commit, owners []messageBlock) blockChange {
	change := blockChange{key: c.Key}
	deleted := make(map[int64]bool, len(c.Fold.Deletes))
	for _, position := range c.Fold.Deletes {
		deleted[position] = true
	}
	tail := placeOf(c.Fold.Upserts, c.Fold.Stored+1)
	inner := c.Fold.Upserts[:tail]
	place := len(inner)
	if len(owners) > 0 {
		place = placeOf(inner, owners[0].first)
	}
	change.added = cutBlocks(inner[:place])
	for i, b := range owners {
		end := len(inner)
		if i+1 < len(owners) {
			end = placeOf(inner, owners[i+1].first)
		}
		change.gone = append(change.gone, b.first)
		change.added = append(change.added, cutBlocks(mergeMessages(b.messages, inner[place:end], deleted))...)
		place = end
	}
	change.added = append(change.added, cutBlocks(c.Fold.Upserts[tail:])...)
	return change
}

// placeOf is the place of the first message at a position or behind it.
func placeOf(messages []agui.StoredMessage, position int64) int {
	place, _ := slices.BinarySearchFunc(messages, position, func(m agui.StoredMessage, position int64) int {
		return cmp.Compare(m.Position, position)
	})
	return place
}

// mergeMessages returns a block's messages after a change, in order.
func mergeMessages(held, upserts []agui.StoredMessage, deleted map[int64]bool) []agui.StoredMessage {
	merged := make([]agui.StoredMessage, 0, len(held)+len(upserts))
	for _, m := range held {
		before := placeOf(upserts, m.Position)
		merged, upserts = append(merged, upserts[:before]...), upserts[before:]
		replaced := len(upserts) > 0 && upserts[0].Position == m.Position
		if !replaced && !deleted[m.Position] {
			merged = append(merged, m)
		}
	}
	return append(merged, upserts...)
}

// cutBlocks cuts neighbours into blocks of about blockSize.
func cutBlocks(messages []agui.StoredMessage) (blocks []messageBlock) {
	start, size := 0, 0
	for i, m := range messages {
		if size > 0 && size+len(m.Body) > blockSize {
			blocks = append(blocks, messageBlock{messages[start].Position, messages[start:i]})
			start, size = i, 0
		}
		size += len(m.Body)
	}
	if start < len(messages) {
		blocks = append(blocks, messageBlock{messages[start].Position, messages[start:]})
	}
	return blocks
}

// encode writes the messages one after another: the distance from the position before as a varint, and id, role and
// body with their lengths.
func (b *messageBlock) encode() []byte {
	const overhead = 80 // of a message: its id, its role, the numbers
	size := 0
	for _, m := range b.messages {
		size += len(m.Body) + overhead
	}
	text := make([]byte, 0, size)
	before := b.first
	for _, m := range b.messages {
		text = binary.AppendVarint(text, m.Position-before)
		for _, part := range [][]byte{[]byte(m.ID), []byte(m.Role), m.Body} {
			text = append(binary.AppendUvarint(text, uint64(len(part))), part...)
		}
		before = m.Position
	}
	return text
}

// decode reverses encode. The messages alias text. The error is ErrCorrupt.
func (b *messageBlock) decode(text []byte) error {
	before := b.first
	for len(text) > 0 {
		distance, n := binary.Varint(text)
		if n <= 0 {
			return fmt.Errorf("%w: the messages from position %d", ErrCorrupt, b.first)
		}
		text = text[n:]
		var parts [3][]byte
		for i := range parts {
			size, n := binary.Uvarint(text)
			if n <= 0 || size > uint64(len(text)-n) {
				return fmt.Errorf("%w: the messages from position %d", ErrCorrupt, b.first)
			}
			end := n + int(size)
			parts[i], text = text[n:end:end], text[end:]
		}
		before += distance
		b.messages = append(b.messages, agui.StoredMessage{
			Position: before, ID: string(parts[0]), Role: agui.Role(parts[1]), Body: parts[2],
		})
	}
	return nil
}
