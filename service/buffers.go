package service

import "sync"

// entryBuffers holds the memory of segments that have been written.
var entryBuffers = bufferPool{
	small: sync.Pool{New: func() any { return new([4 << 10]byte) }},
	large: sync.Pool{New: func() any { return new([64 << 10]byte) }},
}

// bufferPool recycles buffers of two sizes: what a token stream commits at a time, and what a run amounts to.
type bufferPool struct{ small, large sync.Pool }

// get returns an empty buffer with room for n bytes.
func (b *bufferPool) get(n int) []byte {
	switch {
	case n <= 4<<10:
		return b.small.Get().(*[4 << 10]byte)[:0]
	case n <= 64<<10:
		return b.large.Get().(*[64 << 10]byte)[:0]
	}
	return make([]byte, 0, n)
}

// put takes back a buffer, which nobody may use any more, unless it is of a size of its own.
func (b *bufferPool) put(buffer []byte) {
	switch cap(buffer) {
	case 4 << 10:
		b.small.Put((*[4 << 10]byte)(buffer[:4<<10]))
	case 64 << 10:
		b.large.Put((*[64 << 10]byte)(buffer[:64<<10]))
	}
}

// append is the built-in append, which takes larger buffers from the pool and gives outgrown ones back.
func (b *bufferPool) append(buffer, more []byte) []byte {
	if n := len(buffer) + len(more); n > cap(buffer) && n <= 64<<10 {
		grown := append(b.get(n), buffer...)
		b.put(buffer)
		buffer = grown
	}
	return append(buffer, more...)
}
