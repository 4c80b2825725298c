package service

import (
	"context"
	"fmt"
	"time"

	"github.com/threadsvc/threadsvc/store"
)

// barred is what a commit in flight knows of the lock in its way: somebody else, another node or a person with psql, holds
// the thread's head. The commit is made again, each time with whatever other threads bring then, so that nobody waits for
// a lock but those who need it.
type barred struct {
	since time.Time     // when it was first in the way; zero if it never was
	pause time.Duration // before the next attempt
	again bool          // the commit in flight is to be made again. Guarded by the thread's lock
}

const (
	// firstBarred and maxBarred are the pauses between attempts. A lock is held for a millisecond as a rule.
	firstBarred = 2 * time.Millisecond
	maxBarred   = 100 * time.Millisecond
)

// again makes a commit in flight, which found its head locked, once more after a pause. It returns false, with the result
// changed to say so, when the time for it is up or the committer closes; whoever waits is told to come back then.
func (w *committer) again(l *live, result *store.Result) bool {
	p := l.inflight // stays until finish
	if p.bar.since.IsZero() {
		p.bar = barred{since: time.Now(), pause: firstBarred}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hurry || time.Since(p.bar.since) > w.cfg.StoreTimeout {
		result.Err = fmt.Errorf("%w: somebody holds the lock of the thread's head", store.ErrUnavailable)
		return false
	}
	w.delayed.Add(1)
	time.AfterFunc(p.bar.pause, func() {
		defer w.delayed.Done()
		_ = l.acquire(context.Background())
		p.bar.again = true
		l.release()
		w.enqueue(l)
	})
	p.bar.pause = min(2*p.bar.pause, maxBarred)
	return true
}
