// Package content stores large texts by content: it cuts them into chunks where their bytes say so, so that two texts
// that share long stretches share chunks, and names each chunk by its hash. The list of a text's chunks is cut and named
// in the same way, level by level, so that a text of which little has changed needs little that is new, however long
// it is.
//
// The package holds no store: Put gives the chunks to be kept, and Get asks for those it needs.
package content

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	// HashSize is the length of a chunk's name: the first bytes of its SHA-256.
	HashSize = 16

	minChunk = 512
	maxChunk = 16 << 10
	// chunkMask makes a cut after 1 in 2,048 bytes on average.
	chunkMask = 1<<11 - 1

	minList = 4
	maxList = 64
	// longestList is how long lists may be that are read: earlier ones were cut at other places.
	longestList = 256
	// listMask makes a cut after 1 in 8 hashes on average: of a text to which is added, the last list is written anew each time.
	listMask = 1<<3 - 1
	// maxRoot is the number of hashes that a reference holds itself.
	maxRoot = 16

	// maxDepth is more levels than any text that fits into memory needs, though each list had minList hashes.
	maxDepth = 16
)

// Hash names a chunk.
type Hash [HashSize]byte

// HashOf returns a chunk's name.
func HashOf(chunk []byte) Hash {
	sum := sha256.Sum256(chunk)
	return Hash(sum[:HashSize])
}

// ErrCorrupt is returned when a reference, or what it refers to, is not as it was put.
var ErrCorrupt = errors.New("content: corrupt")

// Put cuts a text and returns its reference, and the chunks that must be kept for Get. The chunks alias the text.
func Put(text []byte) (ref []byte, chunks map[Hash][]byte) {
	chunks = map[Hash][]byte{}
	level := name(cut(text), chunks)
	depth := 0
	for ; len(level) > maxRoot; depth++ {
		level = name(cutList(level), chunks)
	}
	ref = binary.AppendUvarint(nil, uint64(depth))
	ref = binary.AppendUvarint(ref, uint64(len(text)))
	for _, hash := range level {
		ref = append(ref, hash[:]...)
	}
	return ref, chunks
}

// Get returns the text of a reference. fetch returns the chunks of the given names; it is called once for each level.
func Get(ref []byte, fetch func([]Hash) (map[Hash][]byte, error)) ([]byte, error) {
	depth, size, level, err := readRef(ref)
	if err != nil {
		return nil, err
	}
	for ; depth > 0; depth-- {
		list, err := join(level, fetch, len(level)*longestList*HashSize)
		if err != nil {
			return nil, err
		}
		if level, err = hashes(list); err != nil {
			return nil, err
		}
	}
	text, err := join(level, fetch, size)
	if err == nil && len(text) != size {
		err = fmt.Errorf("%w: %d bytes where %d were put", ErrCorrupt, len(text), size)
	}
	return text, err
}

func readRef(ref []byte) (depth, size int, level []Hash, err error) {
	d, n := binary.Uvarint(ref)
	if n <= 0 || d > maxDepth {
		return 0, 0, nil, fmt.Errorf("%w: the reference's depth", ErrCorrupt)
	}
	s, m := binary.Uvarint(ref[n:])
	if m <= 0 || s > 1<<40 {
		return 0, 0, nil, fmt.Errorf("%w: the reference's size", ErrCorrupt)
	}
	level, err = hashes(ref[n+m:])
	return int(d), int(s), level, err
}

// join fetches chunks and concatenates them; more than limit bytes are corrupt.
func join(level []Hash, fetch func([]Hash) (map[Hash][]byte, error), limit int) ([]byte, error) {
	chunks, err := fetch(level)
	if err != nil {
		return nil, err
	}
	size := 0
	for _, hash := range level {
		chunk, ok := chunks[hash]
		if !ok {
			return nil, fmt.Errorf("%w: chunk %x is missing", ErrCorrupt, hash)
		}
		size += len(chunk)
	}
	if size > limit {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrCorrupt, limit)
	}
	text := make([]byte, 0, size)
	for _, hash := range level {
		text = append(text, chunks[hash]...)
	}
	return text, nil
}

func hashes(list []byte) ([]Hash, error) {
	if len(list)%HashSize != 0 {
		return nil, fmt.Errorf("%w: a list of %d bytes", ErrCorrupt, len(list))
	}
	level := make([]Hash, 0, len(list)/HashSize)
	for ; len(list) > 0; list = list[HashSize:] {
		level = append(level, Hash(list))
	}
	return level, nil
}

// name names chunks and notes them.
func name(cuts [][]byte, chunks map[Hash][]byte) []Hash {
	level := make([]Hash, len(cuts))
	for i, chunk := range cuts {
		level[i] = HashOf(chunk)
		chunks[level[i]] = chunk
	}
	return level
}

// gear gives every byte a random number for the rolling hash of the content-defined cuts ("gear" hashing). It is fixed:
// texts are cut in the same way for ever, so that they go on sharing chunks.
var gear = func() (table [256]uint64) {
	for i := range table {
		sum := sha256.Sum256([]byte{'g', 'e', 'a', 'r', byte(i)})
		table[i] = binary.BigEndian.Uint64(sum[:])
	}
	return table
}()

// cut cuts a text where the rolling hash of the last 64 bytes says so.
func cut(text []byte) [][]byte {
	var cuts [][]byte
	for len(text) > 0 {
		n := cutAt(text)
		cuts = append(cuts, text[:n:n])
		text = text[n:]
	}
	return cuts
}

func cutAt(text []byte) int {
	end := min(len(text), maxChunk)
	var hash uint64
	for i := max(0, minChunk-64); i < end; i++ {
		hash = hash<<1 + gear[text[i]]
		if i >= minChunk && hash>>53&chunkMask == 0 {
			return i + 1
		}
	}
	return end
}

// cutList cuts a list of hashes after those that say so themselves.
func cutList(level []Hash) [][]byte {
	var cuts [][]byte
	for len(level) > 0 {
		n := 1
		for n < min(len(level), maxList) && (n < minList || level[n-1][0]&listMask != 0) {
			n++
		}
		list := make([]byte, 0, n*HashSize)
		for _, hash := range level[:n] {
			list = append(list, hash[:]...)
		}
		cuts = append(cuts, list)
		level = level[n:]
	}
	return cuts
}
