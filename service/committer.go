package service

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
)

// pending gathers what one thread has to commit, until the committer takes it. done is closed when its outcome is known;
// result may be read then.
type pending struct {
	commit store.Commit
	runs   map[string]*store.Run // rows to write, as the thread's run stands when they are taken
	opened map[string]bool       // those of them that are new
	order  []string
	ended  bool // whether a run ended, or the thread was made with a state

	bytes  int
	done   chan struct{}
	result store.Result
}

// committer writes what has queued up for many threads in one transaction: group commit. It adds no delay: a thread is
// taken as soon as a worker is free, with all others that are waiting then. A thread is in one transaction at a time, so
// its commits stay in order.
type committer struct {
	store store.Store
	cfg   Config
	cache *cache

	mu      sync.Mutex
	ready   *sync.Cond
	queue   []*live
	closing bool
	workers sync.WaitGroup
}

func newCommitter(st store.Store, cfg Config, c *cache) *committer {
	w := &committer{store: st, cfg: cfg, cache: c}
	w.ready = sync.NewCond(&w.mu)
	w.workers.Add(cfg.Committers)
	for range cfg.Committers {
		go w.work()
	}
	return w
}

// close commits what is queued and waits for the workers.
func (w *committer) close() {
	w.mu.Lock()
	w.closing = true
	w.mu.Unlock()
	w.ready.Broadcast()
	w.workers.Wait()
}

// enqueue hands a thread with something queued to the committer, once for each pending and when no other is in flight.
func (w *committer) enqueue(l *live) {
	w.mu.Lock()
	w.queue = append(w.queue, l)
	w.mu.Unlock()
	w.ready.Signal()
}

func (w *committer) work() {
	defer w.workers.Done()
	for {
		lives := w.next()
		if lives == nil {
			return
		}
		w.commit(lives)
	}
}

// next waits for threads to commit and takes as many as fit into a transaction; nil when the committer closes.
func (w *committer) next() []*live {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queue) == 0 {
		if w.closing {
			return nil
		}
		w.ready.Wait()
	}
	n := min(len(w.queue), w.cfg.CommitThreads)
	lives := append([]*live(nil), w.queue[:n]...)
	w.queue = append(w.queue[:0], w.queue[n:]...)
	return lives
}

// commit writes what the threads have queued and tells everybody who waits for it.
func (w *committer) commit(lives []*live) {
	var commits []*store.Commit
	taken := lives[:0]
	for _, l := range lives {
		if commit := l.take(w.cfg.FoldBytes); commit != nil {
			taken, commits = append(taken, l), append(commits, commit)
		}
	}
	if len(commits) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.cfg.StoreTimeout)
	started := time.Now()
	results := w.store.Commit(ctx, commits)
	cancel()
	w.cfg.Logger.Debug("committed", "threads", len(taken), "took", time.Since(started))
	for i, l := range taken {
		w.finish(l, results[i])
	}
}

// finish publishes the outcome of a thread's commit. If it failed the thread is dropped, never patched up, and what had
// queued up behind it fails with it.
func (w *committer) finish(l *live, result store.Result) {
	_ = l.acquire(context.Background())
	defer l.release()
	done, next := l.inflight, l.queued
	l.inflight = nil
	done.recycle()
	done.result = result
	close(done.done)
	if result.Err != nil {
		w.cache.drop(l)
		if errors.Is(result.Err, store.ErrDuplicate) {
			w.cache.suspect(l.key)
		}
		if next != nil {
			l.queued = nil
			next.result = store.Result{Err: result.Err}
			close(next.done)
		}
		return
	}
	l.head.LeaseExpiresAt = result.LeaseExpiresAt
	if next != nil {
		w.enqueue(l)
	}
}

// take moves what is queued into flight and completes its commit: the rows of runs as they stand now and, when a run has
// ended and no other has begun, or the log since the last fold has grown long, the fold. It returns nil if what was queued
// has been abandoned.
func (l *live) take(foldBytes int) *store.Commit {
	_ = l.acquire(context.Background())
	defer l.release()
	p := l.queued
	if p == nil {
		return nil
	}
	l.queued, l.inflight = nil, p
	for _, id := range p.order {
		if p.opened[id] {
			p.commit.Opened = append(p.commit.Opened, *p.runs[id])
		} else {
			p.commit.Updated = append(p.commit.Updated, *p.runs[id])
		}
	}
	if l.tailBytes > foldBytes || p.ended && !l.thread.Running() {
		changes := l.thread.Changes()
		p.commit.Fold = &changes
		l.thread.Settle()
		l.tailBytes = 0
	}
	return &p.commit
}

// pend returns what the thread is gathering for its next commit, starting it if there is nothing yet. The lock must be
// held, and not let go before seal was called: the committer takes the commit as soon as it gets the lock.
func (s *Service) pend(l *live) *pending {
	if l.queued != nil {
		return l.queued
	}
	l.queued = &pending{
		runs: map[string]*store.Run{}, opened: map[string]bool{}, done: make(chan struct{}),
		commit: store.Commit{Key: l.key, ExpectVersion: l.head.Version, ExpectFence: l.head.Fence},
	}
	if l.inflight == nil {
		s.committer.enqueue(l)
	}
	return l.queued
}

// cancel forgets a pending commit that turned out to be empty. The lock must be held.
func (l *live) cancel(p *pending) {
	l.queued = nil
	close(p.done)
}

// entryBuffers holds the memory of segments that have been written.
var entryBuffers = bufferPool{sync.Pool{New: func() any { return new([16 << 10]byte) }}}

// bufferPool recycles buffers of one size.
type bufferPool struct{ pool sync.Pool }

func (b *bufferPool) get() []byte { return b.pool.Get().(*[16 << 10]byte)[:0] }

// put takes back a buffer unless it has been outgrown.
func (b *bufferPool) put(buffer []byte) {
	if cap(buffer) == 16<<10 {
		b.pool.Put((*[16 << 10]byte)(buffer[:16<<10]))
	}
}

// recycle gives back the memory of what has been written.
func (p *pending) recycle() {
	for i := range p.commit.Segments {
		entryBuffers.put(p.commit.Segments[i].Entries)
		p.commit.Segments[i].Entries = nil
	}
}

// abandon fails what is queued, because the thread in memory can no longer be trusted. The lock must be held.
func (l *live) abandon(err error) {
	if p := l.queued; p != nil {
		l.queued = nil
		p.result = store.Result{Err: err}
		close(p.done)
	}
}

// add gathers what was applied to the thread.
func (l *live) add(p *pending, a *agui.Applied, firstOffset, nextOffset uint64) {
	first := l.head.Version + 1
	l.head.Version += uint64(a.Entries)
	l.head.NextOffset = nextOffset
	l.gatherRuns(p, a, first, firstOffset)
	l.gatherSegment(p, a, first, firstOffset, nextOffset)
	for i := range a.Warnings {
		p.commit.Warnings = append(p.commit.Warnings, store.Warning{
			Version: l.head.Version, RunID: a.RunID, Offset: firstOffset, Warning: a.Warnings[i], Ordinal: int32(i),
		})
	}
	if l.run != nil && l.run.RunID == a.RunID {
		l.run.Warnings += int64(len(a.Warnings))
	}
	p.bytes += len(a.Stored) + 64
	l.tailBytes += len(a.Stored)
}

// gatherSegment adds the entries to the log, continuing the last segment if they belong to the same run.
func (l *live) gatherSegment(p *pending, a *agui.Applied, first, firstOffset, nextOffset uint64) {
	segments := p.commit.Segments
	if n := len(segments); n > 0 {
		last := &segments[n-1]
		if last.RunID == a.RunID && last.StreamID == l.head.StreamID && last.NextOffset == firstOffset {
			last.Entries = append(last.Entries, a.Stored...)
			last.LastVersion, last.NextOffset = l.head.Version, nextOffset
			return
		}
	}
	p.commit.Segments = append(segments, store.Segment{
		FirstVersion: first, LastVersion: l.head.Version, RunID: a.RunID,
		StreamID: l.head.StreamID, FirstOffset: firstOffset, NextOffset: nextOffset,
		Entries: append(entryBuffers.get(), a.Stored...),
	})
}

// seal completes the head of a pending commit after a change.
func (l *live) seal(p *pending) {
	l.head.Hash = l.thread.Hash()
	c := &p.commit
	c.Version, c.Hash, c.Fence = l.head.Version, l.head.Hash, l.head.Fence
	c.StreamID, c.NextOffset = l.head.StreamID, l.head.NextOffset
	c.ActiveRun, c.LeaseTTL, c.Runs = l.head.ActiveRun, l.head.LeaseTTL, l.head.Runs
}
