package service

import (
	"encoding/binary"
	"testing"

	"github.com/threadsvc/threadsvc/store"
)

// Open streams take from the memory for live threads, which come back to their share when the streams have ended; whatever the
// streams take, threads keep a quarter.
func TestStreamsCountTowardsTheCache(t *testing.T) {
	t.Parallel()
	const threads = 64
	empty := newLive(store.Key{}).memory()
	c := newCache(threads * empty)
	held := func() int {
		for i := range 2 * threads {
			var key store.Key
			binary.BigEndian.PutUint64(key[:], uint64(i))
			l := c.get(key)
			<-l.lock
			c.settle(l)
			l.release()
		}
		return len(c.lives)
	}
	if n := held(); n != threads {
		t.Errorf("%d threads are held without streams, want %d", n, threads)
	}
	streams := c.limit / 2 / streamMemory
	c.countStream(streams)
	if n, want := held(), int((c.limit-streams*streamMemory)/empty); n != want {
		t.Errorf("%d threads are held beside %d streams, want %d", n, streams, want)
	}
	c.countStream(1000)
	if n := held(); n != threads/4 {
		t.Errorf("%d threads are held beside many streams, want %d", n, threads/4)
	}
	c.countStream(-1000 - streams)
	if n := held(); n != threads {
		t.Errorf("%d threads are held after the streams, want %d", n, threads)
	}
}
