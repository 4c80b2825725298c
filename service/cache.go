package service

import (
	"container/list"
	"sync"

	"github.com/threadsvc/threadsvc/store"
)

// cache holds the live threads. Those in use, or with something to commit, are never evicted; the others are, least
// recently used first, once all together exceed the limit.
type cache struct {
	limit int64

	mu      sync.Mutex
	used    int64 // by the live threads
	streams int64 // AppendEvents streams that are open
	// suspects are threads to be loaded with suspect set, at most maxSuspects.
	suspects map[store.Key]bool
	lives    map[store.Key]*list.Element
	order    list.List // of *cached, most recently used first
}

type cached struct {
	live   *live
	memory int64
}

func newCache(limit int64) *cache {
	return &cache{limit: limit, lives: map[store.Key]*list.Element{}, suspects: map[store.Key]bool{}}
}

// get returns the live thread of a key, making one that is yet to be loaded if there is none.
func (c *cache) get(key store.Key) *live {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok := c.lives[key]; ok {
		c.order.MoveToFront(at)
		return at.Value.(*cached).live
	}
	l := newLive(key)
	l.suspect = c.suspects[key]
	delete(c.suspects, key)
	c.lives[key] = c.order.PushFront(&cached{live: l})
	return l
}

// maxSuspects bounds the threads that are remembered as suspect; more are forgotten, and found out about again.
const maxSuspects = 10_000

// suspect makes the thread, when it is loaded anew, look run ids up.
func (c *cache) suspect(key store.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.suspects) >= maxSuspects {
		clear(c.suspects)
	}
	c.suspects[key] = true
}

// settle notes what a live thread takes now, and evicts others if it is too much. The thread's lock must be held.
func (c *cache) settle(l *live) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.lives[l.key]
	if !ok || at.Value.(*cached).live != l {
		return
	}
	entry := at.Value.(*cached)
	memory := l.memory()
	c.used += memory - entry.memory
	entry.memory = memory
	for at := c.order.Back(); at != nil && c.used > c.room(); {
		before := at.Prev()
		c.evict(at)
		at = before
	}
}

// streamMemory is about what an AppendEvents stream takes that is idle: 8 KiB of stack, the rest are the buffers, contexts and
// metadata of gRPC, and ours.
const streamMemory = 14 << 10

// countStream adds an open stream, or -1 for one that has ended. Streams take from the memory for live threads.
func (c *cache) countStream(change int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams += change
}

// room is the memory for live threads: the limit without what open streams take, which is at least a quarter of it, so that
// the threads of those streams that send are not read again for each batch. mu must be held.
func (c *cache) room() int64 { return max(c.limit-c.streams*streamMemory, c.limit/4) }

// evict drops a live thread unless it is in use. mu must be held.
func (c *cache) evict(at *list.Element) {
	l := at.Value.(*cached).live
	if !l.tryAcquire() {
		return
	}
	defer l.release()
	if l.busy() == nil {
		c.remove(at)
		l.dead = true
	}
}

// drop forgets a live thread, so that it is loaded anew. The thread's lock must be held.
func (c *cache) drop(l *live) {
	l.dead = true
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok := c.lives[l.key]; ok && at.Value.(*cached).live == l {
		c.remove(at)
	}
}

func (c *cache) remove(at *list.Element) {
	entry := c.order.Remove(at).(*cached)
	delete(c.lives, entry.live.key)
	c.used -= entry.memory
}
