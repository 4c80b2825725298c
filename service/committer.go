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
	commit    store.Commit
	runs      map[string]*store.Run // rows to write, as the thread's run stands when they are taken
	opened    map[string]bool       // those of them that are new
	order     []string
	wantsFold bool // a run ended, or the thread was made with a state

	// due is when it may be taken at the latest; zero if at once. Guarded by the thread's lock.
	due    time.Time
	timed  bool // a timer will offer it then
	bar    barred
	bytes  int
	done   chan struct{}
	result store.Result
}

// committer writes what has queued up for many threads in one transaction: group commit. It adds no delay: if no
// transaction is under way a thread is taken at once, otherwise with all those that are waiting when one ends. Further
// transactions begin meanwhile if many threads wait, or if the last one takes long. A thread is in one transaction at a
// time, so its commits stay in order.
type committer struct {
	store store.Store
	cfg   Config
	cache *cache
	ended func(store.Key) // told of threads without an active run, after a commit
	tails *tails

	mu      sync.Mutex
	ready   *sync.Cond
	queue   []*live
	active  int         // transactions under way
	begun   time.Time   // when the last of them began
	nudge   *time.Timer // wakes a worker when the last one takes long
	hurry   bool        // delays that producers allow do not count any more
	closing bool
	workers sync.WaitGroup
	delayed sync.WaitGroup // timers of threads whose producers allow a delay
}

const (
	// crowd is how many threads must wait, for each transaction that is under way, for another to begin: what few threads
	// bring is cheaper to write together.
	crowd = 16
	// longCommit is how long a transaction may take before another begins in any case.
	longCommit = 10 * time.Millisecond
)

func newCommitter(st store.Store, cfg Config, c *cache, t *tails, ended func(store.Key)) *committer {
	w := &committer{store: st, cfg: cfg, cache: c, tails: t, ended: ended}
	w.ready = sync.NewCond(&w.mu)
	w.nudge = time.AfterFunc(longCommit, w.ready.Signal)
	w.workers.Add(cfg.Committers)
	for range cfg.Committers {
		go w.work()
	}
	return w
}

// close commits what is queued and waits for the workers.
func (w *committer) close() {
	w.mu.Lock()
	w.hurry = true
	w.mu.Unlock()
	w.delayed.Wait() // no timer is made from here on
	w.nudge.Stop()
	w.mu.Lock()
	w.closing = true
	w.mu.Unlock()
	w.ready.Broadcast()
	w.workers.Wait()
}

// enqueue puts a thread at the end of the queue.
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
		w.mu.Lock()
		w.active--
		w.mu.Unlock()
	}
}

// next waits for threads to commit and takes as many as fit into a transaction; nil when the committer closes.
func (w *committer) next() []*live {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.mayBegin() {
		if w.closing && len(w.queue) == 0 {
			return nil
		}
		w.ready.Wait()
	}
	w.active++
	w.begun = time.Now()
	w.nudge.Reset(longCommit)
	n := min(len(w.queue), w.cfg.CommitThreads)
	lives := append([]*live(nil), w.queue[:n]...)
	w.queue = append(w.queue[:0], w.queue[n:]...)
	return lives
}

// mayBegin reports whether a transaction shall begin. mu must be held.
func (w *committer) mayBegin() bool {
	n := len(w.queue)
	return n > 0 && (n >= crowd*w.active || w.closing || time.Since(w.begun) >= longCommit)
}

// commit writes what the threads have queued and tells everybody who waits for it.
func (w *committer) commit(lives []*live) {
	taken, commits := w.takeAll(lives)
	if len(commits) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.cfg.StoreTimeout)
	started := time.Now()
	results := w.store.Commit(ctx, commits)
	cancel()
	w.cfg.Logger.Debug("committed", "threads", len(taken), "took", time.Since(started))
	for i, l := range taken {
		if !errors.Is(results[i].Err, store.ErrLocked) || !w.again(l, &results[i]) {
			w.finish(l, results[i])
		}
	}
}

// maxCommitBytes bounds what one transaction of several threads writes.
const maxCommitBytes = 4 << 20

// takeAll takes what the threads have queued. A thread that somebody is folding into is put back, so that it does not hold
// up the others, unless it is the only one; so are those beyond the transaction's size.
func (w *committer) takeAll(lives []*live) (taken []*live, commits []*store.Commit) {
	size := 0
	for i, l := range lives {
		last := i == len(lives)-1 && len(taken) == 0
		if size > maxCommitBytes || !l.tryAcquire() {
			if !last {
				w.enqueue(l)
				continue
			}
			_ = l.acquire(context.Background())
		}
		if commit := l.take(w.cfg.FoldBytes); commit != nil {
			taken, commits = append(taken, l), append(commits, commit)
			size += l.inflight.bytes
		}
		l.release()
	}
	return taken, commits
}

// finish publishes the outcome of a thread's commit. If it failed the thread is dropped, never patched up, and what had
// queued up behind it fails with it.
func (w *committer) finish(l *live, result store.Result) {
	_ = l.acquire(context.Background())
	defer l.release()
	done, next := l.inflight, l.queued
	l.inflight = nil
	if result.Err == nil {
		if done.commit.Create != nil {
			l.head.CreatedAt = result.CommittedAt
		}
		w.tails.committed(l.head.CreatedAt, &done.commit, result.CommittedAt)
	}
	done.recycle()
	done.result = result
	close(done.done)
	if result.Err != nil {
		if errors.Is(result.Err, store.ErrDuplicate) {
			w.cache.suspect(l.key)
		}
		w.cache.drop(l)
		if next != nil {
			l.queued = nil
			next.result = store.Result{Err: result.Err}
			close(next.done)
		}
		return
	}
	l.head.LeaseExpiresAt = result.LeaseExpiresAt
	if done.commit.ActiveRun == "" {
		w.ended(l.key)
	}
	w.offer(l)
}

// offer hands a thread with something queued to the committer, unless it has it already, is writing what came before, or
// the thread's producer allows a delay. The thread's lock must be held.
func (w *committer) offer(l *live) {
	if l.queued == nil || l.inflight != nil || l.offered {
		return
	}
	if wait := time.Until(l.queued.due); wait > 0 && w.offerLater(l, wait) {
		return
	}
	l.offered = true
	w.enqueue(l)
}

// offerLater makes a timer that offers the thread, if it has none yet for what is queued. It refuses once the committer
// closes.
func (w *committer) offerLater(l *live, wait time.Duration) bool {
	p := l.queued
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.timed || w.hurry {
		return !w.hurry
	}
	p.timed = true
	w.delayed.Add(1)
	time.AfterFunc(wait, func() {
		defer w.delayed.Done()
		_ = l.acquire(context.Background())
		defer l.release()
		if l.queued == p {
			p.due = time.Time{}
			w.offer(l)
		}
	})
	return true
}

// hasten makes what a thread has queued due at once, because somebody waits for it. The thread's lock must be held.
func (w *committer) hasten(l *live) {
	if l.queued != nil {
		l.queued.due = time.Time{}
		w.offer(l)
	}
}

// take moves what is queued into flight and completes its commit: the rows of runs as they stand now and, when a run has
// ended and no other has begun, or the log since the last fold has grown long, the fold. It returns nil if what was queued
// has been cancelled. The lock must be held.
func (l *live) take(foldBytes int) *store.Commit {
	l.offered = false
	if p := l.inflight; p != nil && p.bar.again {
		p.bar.again = false
		return &p.commit
	}
	p := l.queued
	if p == nil || l.inflight != nil {
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
	if l.tailBytes > foldBytes || p.wantsFold && !l.thread.Running() {
		changes := l.thread.Changes()
		p.commit.Fold = &changes
		l.thread.Settle()
		l.tailBytes = 0
	}
	return &p.commit
}

// pend returns what the thread is gathering for its next commit, starting it if there is nothing yet. The lock must be
// held, and seal be called before it is let go, which is when the committer is told.
func (l *live) pend() *pending {
	if l.queued != nil {
		return l.queued
	}
	l.queued = &pending{
		done:   make(chan struct{}),
		commit: store.Commit{Key: l.key, ExpectVersion: l.head.Version, ExpectFence: l.head.Fence},
	}
	return l.queued
}

// cancel forgets a pending commit that turned out to be empty. The lock must be held.
func (l *live) cancel(p *pending) {
	l.queued = nil
	close(p.done)
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
	l.countWarnings(p, a.RunID, len(a.Warnings))
	p.bytes += len(a.Stored) + 64
	l.tailBytes += len(a.Stored)
}

// gatherSegment adds the entries to the log, continuing the last segment if they belong to the same run.
func (l *live) gatherSegment(p *pending, a *agui.Applied, first, firstOffset, nextOffset uint64) {
	segments := p.commit.Segments
	if n := len(segments); n > 0 {
		last := &segments[n-1]
		if last.RunID == a.RunID && last.StreamID == l.head.StreamID && last.NextOffset == firstOffset {
			last.Entries = entryBuffers.append(last.Entries, a.Stored)
			last.LastVersion, last.NextOffset = l.head.Version, nextOffset
			return
		}
	}
	p.commit.Segments = append(segments, store.Segment{
		FirstVersion: first, LastVersion: l.head.Version, RunID: a.RunID,
		StreamID: l.head.StreamID, FirstOffset: firstOffset, NextOffset: nextOffset,
		Entries: append(entryBuffers.get(len(a.Stored)), a.Stored...),
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
