package service

import (
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/mem"
)

// maxLent is the size above which the memory of a text is too large to be kept.
const maxLent = 4 << 20

// lentMemory holds memory of texts that were sent: fresh memory of a context's size costs more than putting the context
// together in it.
var lentMemory = sync.Pool{New: func() any { return new([]byte) }}

// lentText is a text in recycled memory, which is given back once gRPC has written all pieces of it. If one of them is never
// written, the garbage collector takes it.
type lentText struct {
	memory *[]byte
	pieces atomic.Int32 // that are not written yet
}

// lentPiece is a chunk of a lentText as a message: the codec sends it as chunkOf's messages.
type lentPiece struct {
	text  *lentText
	chunk []byte
}

// lend returns a text with empty memory for n bytes.
func lend(n int) *lentText {
	l := &lentText{memory: lentMemory.Get().(*[]byte)}
	if cap(*l.memory) < n {
		*l.memory = make([]byte, 0, n)
	}
	return l
}

// send sends what was written into the text's memory, which may have moved, in pieces.
func (l *lentText) send(text []byte, send func(message any) error) error {
	*l.memory = text[:0]
	l.pieces.Store(int32((len(text) + chunkSize - 1) / chunkSize))
	return sendChunks(text, func(chunk []byte) error { return send(&lentPiece{l, chunk}) })
}

// Get implements mem.BufferPool. Nothing calls it.
func (l *lentText) Get(n int) *[]byte {
	fresh := make([]byte, n)
	return &fresh
}

// Put implements mem.BufferPool: gRPC has written a piece.
func (l *lentText) Put(*[]byte) {
	if l.pieces.Add(-1) == 0 && cap(*l.memory) <= maxLent {
		lentMemory.Put(l.memory)
	}
}

// buffer is the piece as gRPC writes it.
func (p *lentPiece) buffer() mem.Buffer { return mem.NewBuffer(&p.chunk, p.text) }
