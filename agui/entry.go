package agui

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"slices"
	"sync"
)

// Kind says what a log entry is.
type Kind uint8

// The kinds of log entries. They are stored: their numbers never change.
const (
	// KindEvent is one canonical event: enforced, translated, expanded. Its payload is the event's JSON text.
	KindEvent Kind = 1
	// KindInput is what the application brought when it created the thread, started a run, or amended the thread. Its
	// payload is an object with members of RunAgentInput, reduced to what the thread did not hold yet, and "statePatch"; that
	// of an amendment has "amendmentId", the "digest" of what was sent, and "reason" too.
	KindInput Kind = 2
	// KindMark is something the service itself did; its payload is a Mark.
	KindMark Kind = 3
)

// Flags qualify a log entry. They are stored: their bits never change meaning.
type Flags uint8

const (
	// FlagChunk: the event was expanded from a chunk, or closes an item that chunks were assembling.
	FlagChunk Flags = 1 << iota
	// FlagInert: the event's patch or snapshot did not apply when it was recorded. Replay honours the decision, so that it
	// does not depend on limits that may have changed since.
	FlagInert
	// FlagDigest: the entry carries the digest of the received event, because its text is not the payload.
	FlagDigest
)

// Entry is one entry of a thread's log, without its version, which is its place.
type Entry struct {
	Kind  Kind
	Flags Flags
	// Offset is the index of the received event in its producer stream; 0 for entries that no event caused.
	Offset uint64
	// Digest is DigestOf the received event if FlagDigest is set.
	Digest  [8]byte
	Payload []byte
}

// ErrEntryCorrupt is returned when stored entries do not decode.
var ErrEntryCorrupt = errors.New("agui: corrupt log entry")

// DigestOf is what identifies a received event whose canonical text differs from it.
func DigestOf(text []byte) [8]byte {
	sum := sha256.Sum256(text)
	return [8]byte(sum[:8])
}

// Caused reports whether the received event text, at the entry's offset, is the one that caused this entry.
func (e *Entry) Caused(text []byte) bool {
	if e.Flags&FlagDigest != 0 {
		return e.Digest == DigestOf(text)
	}
	return bytes.Equal(e.Payload, text)
}

// maxEntryHead is the most that an entry's stored form has before the payload.
const maxEntryHead = 2 + 2*binary.MaxVarintLen64 + len(Entry{}.Digest)

// Append appends the entry's stored form: kind, flags, offset, digest if any, payload, the numbers as uvarints.
func (e *Entry) Append(dst []byte) []byte {
	dst = slices.Grow(dst, len(e.Payload)+maxEntryHead)
	dst = append(dst, byte(e.Kind), byte(e.Flags))
	dst = binary.AppendUvarint(dst, e.Offset)
	if e.Flags&FlagDigest != 0 {
		dst = append(dst, e.Digest[:]...)
	}
	dst = binary.AppendUvarint(dst, uint64(len(e.Payload)))
	return append(dst, e.Payload...)
}

// chainHash is a hash with memory for what goes into it and what comes out. They are pooled: what the compiler makes of
// sha256.Sum256 takes memory from the heap for each entry, or not, depending on what it inlines.
type chainHash struct {
	hash.Hash
	sum [sha256.Size]byte
}

var chainHashes = sync.Pool{New: func() any { return &chainHash{Hash: sha256.New()} }}

// Chain returns the hash of the log that ends with this entry, where prev is the hash of the log before it and stored
// is the entry's stored form. It does not depend on how the log is cut into segments.
func Chain(prev [32]byte, stored []byte) [32]byte {
	h := chainHashes.Get().(*chainHash)
	defer chainHashes.Put(h)
	h.Reset()
	h.sum = prev
	h.Write(h.sum[:])
	h.Write(stored)
	h.Sum(h.sum[:0])
	return h.sum
}

// DecodeEntries splits the concatenated stored forms of entries. The payloads alias data.
// It returns ErrEntryCorrupt, wrapped with the position, and the entries before the corrupt one.
func DecodeEntries(data []byte) ([]Entry, error) {
	entries := make([]Entry, 0, len(data)/128+1)
	for rest := data; len(rest) > 0; {
		entry, n := decodeEntry(rest)
		if n == 0 {
			return entries, fmt.Errorf("%w at byte %d of %d", ErrEntryCorrupt, len(data)-len(rest), len(data))
		}
		entries = append(entries, entry)
		rest = rest[n:]
	}
	return entries, nil
}

// LargestPayload is the length of the longest payload among the concatenated stored forms of entries, up to the first that
// is corrupt.
func LargestPayload(data []byte) int {
	largest := 0
	for len(data) > 0 {
		entry, n := decodeEntry(data)
		if n == 0 {
			break
		}
		largest, data = max(largest, len(entry.Payload)), data[n:]
	}
	return largest
}

// decodeEntry reads one entry and returns its stored length, 0 if it is corrupt.
func decodeEntry(data []byte) (Entry, int) {
	if len(data) < 2 {
		return Entry{}, 0
	}
	entry := Entry{Kind: Kind(data[0]), Flags: Flags(data[1])}
	at := 2
	offset, n := binary.Uvarint(data[at:])
	if n <= 0 {
		return Entry{}, 0
	}
	entry.Offset, at = offset, at+n
	if entry.Flags&FlagDigest != 0 {
		at += copy(entry.Digest[:], data[at:])
	}
	size, n := binary.Uvarint(data[at:])
	if n <= 0 || size > uint64(len(data)-at-n) {
		return Entry{}, 0
	}
	at += n
	entry.Payload = data[at : at+int(size) : at+int(size)]
	return entry, at + int(size)
}
