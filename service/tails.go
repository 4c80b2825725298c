package service

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
)

// tails knows the threads that are followed on this server and how far each is committed. It is told by the committers of
// this server, and asks the store, for all threads at once, what other servers have committed. Followers read by version:
// what was committed last comes out of memory, which all of them share and which is bounded, everything else out of the
// store. So nobody who commits ever waits for a follower.
type tails struct {
	store  store.Store
	cfg    Config
	reads  chan struct{} // holds a token for each read of the store under way
	joined chan struct{} // tells the poller that somebody follows
	poller sync.WaitGroup
	stop   func()

	followed atomic.Int64 // the number of threads

	mu      sync.Mutex // guards what follows, and the tails
	threads map[store.Key]*tail
	recent  []*chunk // of all threads, oldest first
	bytes   int
}

// tail is the end of one thread's log, for all who follow it.
type tail struct {
	key       store.Key
	created   time.Time // when the thread was made: another of the same name is none of this one
	followers int

	recent  []*chunk // what was committed last, without gaps, up to version end
	end     uint64
	known   uint64        // the highest version that is known to be committed
	filling bool          // a follower is reading what comes after end
	gone    bool          // the thread was deleted
	changed chan struct{} // closed, and replaced, when one of these changes
}

// chunk is a piece of a log that was committed, from version first to last.
type chunk struct {
	tail        *tail
	first, last uint64
	bytes       int
	// messages are its entries as they are sent, made by the first who needs them. They are shared, and never changed.
	messages func() []*threadsvcv1.ReadLogResponse
}

// parallelReads bounds the reads of the store that followers make at once, so that they leave connections to others.
const parallelReads = 4

func newTails(st store.Store, cfg Config) *tails {
	h := &tails{
		store: st, cfg: cfg, threads: map[store.Key]*tail{},
		reads: make(chan struct{}, parallelReads), joined: make(chan struct{}, 1),
	}
	h.startPolling()
	return h
}

// join adds a follower to the thread whose head was read just now. It is false if that head is out of date: the thread was
// deleted and made again meanwhile.
func (h *tails) join(head *store.Head) (*tail, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.threads[head.Key]
	if t != nil && head.CreatedAt.After(t.created) {
		h.lose(t)
		t = nil
	}
	if t == nil {
		t = &tail{
			key: head.Key, created: head.CreatedAt, end: head.Version, known: head.Version, changed: make(chan struct{}),
		}
		h.threads[t.key] = t
		h.followed.Add(1)
	}
	if !t.created.Equal(head.CreatedAt) {
		return nil, false
	}
	t.followers++
	t.note(head.Version)
	select {
	case h.joined <- struct{}{}:
	default:
	}
	return t, true
}

// leave takes a follower away.
func (h *tails) leave(t *tail) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.followers--; t.followers == 0 {
		h.remove(t)
	}
}

// remove forgets a thread. What is in memory of it goes as it gets old. mu must be held.
func (h *tails) remove(t *tail) {
	if h.threads[t.key] == t {
		delete(h.threads, t.key)
		h.followed.Add(-1)
	}
}

// lose ends those who follow a thread that was deleted. mu must be held.
func (h *tails) lose(t *tail) {
	h.remove(t)
	t.gone = true
	t.wake()
}

// committed is told of every commit of this server, with the time the thread was made. It may keep the memory of the
// commit's entries, which it takes out of it then.
func (h *tails) committed(created time.Time, c *store.Commit, at time.Time) {
	if h.followed.Load() == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.threads[c.Key]
	switch {
	case t == nil || created.Before(t.created):
		return
	case created.After(t.created):
		h.lose(t)
	case len(c.Segments) > 0 && c.Segments[0].FirstVersion == t.end+1:
		h.keep(t, taken(c.Segments, at))
	default:
		t.note(c.Version)
	}
}

// taken are committed segments that can be kept: of buffers that are mostly empty a copy, so that they can be used again,
// the others themselves, which the commit no longer has then.
func taken(committed []store.Segment, at time.Time) []store.Segment {
	segments := slices.Clone(committed)
	for i := range segments {
		segments[i].CommittedAt = at
		if entries := segments[i].Entries; 2*len(entries) < cap(entries) {
			segments[i].Entries = bytes.Clone(entries)
		} else {
			committed[i].Entries = nil
		}
	}
	return segments
}

// note tells the followers that the log is committed up to a version. mu must be held.
func (t *tail) note(version uint64) {
	if version > t.known {
		t.known = version
		t.wake()
	}
}

// wake tells the followers to look again. mu must be held.
func (t *tail) wake() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// keep adds committed segments to the end of what is in memory, and lets go of what is oldest if that is too much. What
// is there already is passed over; after a gap nothing is added. mu must be held.
func (h *tails) keep(t *tail, segments []store.Segment) {
	for len(segments) > 0 && segments[0].LastVersion <= t.end {
		segments = segments[1:]
	}
	if len(segments) == 0 || segments[0].FirstVersion > t.end+1 {
		return
	}
	c := newChunk(t, segments)
	t.recent, h.recent = append(t.recent, c), append(h.recent, c)
	t.end = c.last
	for h.bytes += c.bytes; h.bytes > h.cfg.TailBytes && len(h.recent) > 1; {
		h.dropOldest()
	}
	t.known = max(t.known, t.end)
	t.wake()
}

func newChunk(t *tail, segments []store.Segment) *chunk {
	const perEntry = 256 // what a LogEntry takes beside its payload
	c := &chunk{tail: t, first: t.end + 1, last: segments[len(segments)-1].LastVersion}
	for i := range segments {
		c.bytes += cap(segments[i].Entries)
	}
	c.bytes += int(c.last-c.first+1) * perEntry
	c.messages = sync.OnceValue(func() []*threadsvcv1.ReadLogResponse { return logMessages(segments, c.first) })
	return c
}

// dropOldest lets go of the chunk that was committed first, which is also the first of its thread. mu must be held.
func (h *tails) dropOldest() {
	oldest := h.recent[0]
	h.recent[0] = nil
	h.recent = h.recent[1:]
	h.bytes -= oldest.bytes
	t := oldest.tail
	t.recent[0] = nil
	t.recent = t.recent[1:]
}

// logMessages are the entries of segments from a version on, in messages.
func logMessages(segments []store.Segment, from uint64) (messages []*threadsvcv1.ReadLogResponse) {
	out := logSender{send: func(m *threadsvcv1.ReadLogResponse) error {
		messages = append(messages, m)
		return nil
	}}
	for i := range segments {
		_ = out.segment(&segments[i], from)
	}
	_ = out.flush()
	return messages
}
