package store

import (
	"bytes"
	"sync"

	"github.com/klauspost/compress/s2"
)

const (
	// minScratch is the size below which fresh memory is as cheap as recycled; above, clearing and collecting it costs several
	// times the unpacking.
	minScratch = 16 << 10
	// maxScratch is the size above which memory is too large to be kept.
	maxScratch = 4 << 20
)

// scratches holds memory of unpacked texts that nobody reads any more.
var scratches = sync.Pool{New: func() any { return new([]byte) }}

// scratch is recycled memory. The zero value has none yet.
type scratch struct{ memory *[]byte }

// unpack is unpackCopy into the scratch where that pays; what it returns is valid until release.
func (s *scratch) unpack(codec int16, stored []byte) ([]byte, error) {
	n, err := s2.DecodedLen(stored)
	if codec != codecS2 || err != nil || n < minScratch || n > maxScratch || s.memory != nil {
		return unpackCopy(codec, stored)
	}
	s.memory = scratches.Get().(*[]byte)
	if cap(*s.memory) < n {
		*s.memory = make([]byte, n)
	}
	plain, err := s2.Decode((*s.memory)[:n], stored)
	if err != nil {
		return unpackCopy(codec, stored) // which says what is wrong
	}
	return plain, nil
}

// release gives the memory back: nothing may refer to what was unpacked into it.
func (s *scratch) release() {
	if s.memory != nil {
		scratches.Put(s.memory)
		s.memory = nil
	}
}

// keep returns the text that was unpacked as one that lasts: in the memory itself, unless that is much larger, which would stay
// for as long as the text does, and nobody would count it.
func (s *scratch) keep(text []byte) []byte {
	if s.memory != nil && cap(*s.memory) > 2*len(text) {
		text = bytes.Clone(text)
		s.release()
	}
	s.memory = nil
	return text
}
