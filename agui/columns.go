package agui

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrColumnsCorrupt is returned for a text that is not entries in columns.
var ErrColumnsCorrupt = errors.New("agui: corrupt columns of log entries")

// AppendColumns appends the concatenated stored forms of entries in another order, which compresses better: what differs from
// entry to entry stands apart, so that nothing interrupts the payloads, which are much alike. First come groups of neighbours
// of one kind and the same flags whose offsets are consecutive: how many there are, the kind, the flags, the first offset, the
// digests if any, and the lengths of the payloads. A group of none ends them, and then come the payloads. JoinColumns
// reverses it. ok is false, and nothing is appended, if stored is not what Entry.Append writes.
func AppendColumns(dst, stored []byte) (_ []byte, ok bool) {
	before := len(dst)
	var short [512]byte
	group := entryGroup{lengths: short[:0]}
	for rest := stored; len(rest) > 0; {
		e, n := decodeEntry(rest)
		if n == 0 || n != e.headSize(len(e.Payload))+len(e.Payload) {
			return dst[:before], false
		}
		if !group.takes(&e) {
			dst = group.append(dst)
			group = entryGroup{kind: e.Kind, flags: e.Flags, first: e.Offset, lengths: group.lengths[:0], digests: group.digests[:0]}
		}
		group.add(&e)
		rest = rest[n:]
	}
	dst = append(group.append(dst), 0)
	for rest := stored; len(rest) > 0; {
		e, n := decodeEntry(rest)
		dst, rest = append(dst, e.Payload...), rest[n:]
	}
	return dst, true
}

// entryGroup is a group of entries on its way into columns.
type entryGroup struct {
	kind             Kind
	flags            Flags
	first            uint64
	entries          uint64
	lengths, digests []byte
}

// takes reports whether the entry can follow in the group.
func (g *entryGroup) takes(e *Entry) bool {
	return g.entries > 0 && e.Kind == g.kind && e.Flags == g.flags && e.Offset == g.first+g.entries
}

func (g *entryGroup) add(e *Entry) {
	g.entries++
	g.lengths = binary.AppendUvarint(g.lengths, uint64(len(e.Payload)))
	if e.Flags&FlagDigest != 0 {
		g.digests = append(g.digests, e.Digest[:]...)
	}
}

func (g *entryGroup) append(dst []byte) []byte {
	if g.entries == 0 {
		return dst
	}
	dst = append(binary.AppendUvarint(dst, g.entries), byte(g.kind), byte(g.flags))
	dst = binary.AppendUvarint(dst, g.first)
	return append(append(dst, g.digests...), g.lengths...)
}

// headSize is the length of what Append appends before a payload of so many bytes.
func (e *Entry) headSize(payload int) int {
	size := 2 + uvarintLen(e.Offset) + uvarintLen(uint64(payload))
	if e.Flags&FlagDigest != 0 {
		size += len(e.Digest)
	}
	return size
}

// uvarintLen is the length of a number as a uvarint.
func uvarintLen(n uint64) int {
	size := 1
	for ; n >= 1<<7; n >>= 7 {
		size++
	}
	return size
}

// JoinColumns returns the concatenated stored forms of entries from what AppendColumns appended, which are at most so many bytes.
// The error is ErrColumnsCorrupt.
func JoinColumns(columns []byte, most int) ([]byte, error) {
	payloads, size, ok := columnsPayloads(columns)
	if !ok || size > most {
		return nil, fmt.Errorf("%w: of %d bytes, for at most %d", ErrColumnsCorrupt, len(columns), most)
	}
	stored := make([]byte, 0, size+maxEntryHead)
	r := foldReader{rest: columns}
	for n := r.number(); n > 0; n = r.number() {
		e := Entry{Kind: Kind(r.byte()), Flags: Flags(r.byte()), Offset: r.number()}
		digests := r.digests(e.Flags, n)
		for ; n > 0; n-- {
			size := r.number()
			digests = digests[copy(e.Digest[:], digests):]
			e.Payload, payloads = payloads[:size], payloads[size:]
			stored = e.Append(stored)
			e.Offset++
		}
	}
	return stored, nil
}

// columnsPayloads checks columns, and returns where the payloads begin and what the entries' stored forms take.
func columnsPayloads(columns []byte) (payloads []byte, size int, ok bool) {
	r := foldReader{rest: columns}
	total := 0
	for n := r.number(); n > 0 && !r.bad; n = r.number() {
		e := Entry{Kind: Kind(r.byte()), Flags: Flags(r.byte()), Offset: r.number()}
		r.digests(e.Flags, n)
		for ; n > 0 && !r.bad; n-- { // each takes a byte at least, so no number is believed
			payload := int(min(r.number(), uint64(len(columns))+1))
			total, size = total+payload, size+e.headSize(payload)+payload
			e.Offset++
		}
	}
	return r.rest, size, !r.bad && total == len(r.rest)
}

// digests reads those of n entries.
func (r *foldReader) digests(flags Flags, n uint64) []byte {
	size := uint64(len(Entry{}.Digest))
	switch {
	case flags&FlagDigest == 0:
		return nil
	case n > uint64(len(r.rest))/size:
		r.bad = true
		return nil
	}
	digests := r.rest[:n*size]
	r.rest = r.rest[n*size:]
	return digests
}
