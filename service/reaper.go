package service

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
)

const (
	// reapPage is how many leases that have ended are listed at once.
	reapPage = 64
	// reapers is how many threads are closed at once.
	reapers = 4
)

// reaper closes, in the background, runs whose lease has ended: their producers are gone, and nobody may start another run
// for a long time. Several servers may do so at once: each closes by comparing and setting, and who comes second finds
// nothing to do.
type reaper struct {
	service *Service
	cancel  context.CancelFunc
	done    sync.WaitGroup
}

func newReaper(s *Service) *reaper {
	ctx, cancel := context.WithCancel(context.Background())
	r := &reaper{service: s, cancel: cancel}
	if s.cfg.ReapInterval > 0 {
		r.done.Go(func() { r.run(ctx) })
	}
	return r
}

func (r *reaper) run(ctx context.Context) {
	cfg := &r.service.cfg
	wait := func() time.Duration { return cfg.ReapInterval*3/4 + rand.N(cfg.ReapInterval/2+1) }
	for next := max(wait(), cfg.ReapGrace); pause(ctx, next); {
		next = wait()
		if err := r.sweep(ctx); err != nil {
			r.failed(ctx, "", err)
			next = max(next, cfg.ReapGrace)
		}
	}
}

// close stops the reaper and waits for it.
func (r *reaper) close() {
	r.cancel()
	r.done.Wait()
}

// sweep closes what has expired, page by page. It passes every thread once, so one that cannot be closed keeps none of the
// others from it. The error is that of looking for them.
func (r *reaper) sweep(ctx context.Context) error {
	for after := (store.ExpiredLease{}); ctx.Err() == nil; {
		page, err := r.service.expired(ctx, after)
		if err != nil {
			return err
		}
		r.reapAll(ctx, page)
		if len(page) < reapPage {
			return nil
		}
		after = page[len(page)-1]
	}
	return nil
}

func (s *Service) expired(ctx context.Context, after store.ExpiredLease) ([]store.ExpiredLease, error) {
	ctx, cancel := s.storeContext(ctx)
	defer cancel()
	return s.store.Expired(ctx, after, reapPage)
}

// reapAll closes the runs of a page, a few at once.
func (r *reaper) reapAll(ctx context.Context, page []store.ExpiredLease) {
	next := make(chan store.ExpiredLease)
	var workers sync.WaitGroup
	for range min(reapers, len(page)) {
		workers.Go(func() {
			for lease := range next {
				if err := r.service.reap(ctx, lease); err != nil {
					r.failed(ctx, lease.Key.String(), err)
				}
			}
		})
	}
	for _, lease := range page {
		next <- lease
	}
	close(next)
	workers.Wait()
}

func (r *reaper) failed(ctx context.Context, threadKey string, err error) {
	if ctx.Err() == nil {
		r.service.cfg.Logger.Warn("closing an expired run failed", "thread_key", threadKey, "error", err)
	}
}

// reap closes a thread's run if its lease has ended. That somebody was faster, or has renewed the lease, is no error.
func (s *Service) reap(ctx context.Context, lease store.ExpiredLease) error {
	ctx, cancel := context.WithTimeout(ctx, 2*s.cfg.StoreTimeout)
	defer cancel()
	for attempt := 1; ; attempt++ {
		commit, err := s.tryReap(ctx, lease)
		if err == nil && commit != nil {
			err = commit.outcome(ctx)
		}
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
		if attempt == maxAttempts { // somebody is busy with the thread, who closes the run or renews its lease
			return nil
		}
	}
}

// tryReap queues the end of the run, or returns nil if there is nothing to do.
func (s *Service) tryReap(ctx context.Context, lease store.ExpiredLease) (*pending, error) {
	l, err := s.acquire(ctx, lease.Key, lease.ThreadID)
	if err != nil {
		return nil, err
	}
	defer s.letGo(l)
	if l.busy() != nil || !l.exists { // it is being written to, or gone
		return nil, nil
	}
	if err := s.checkCurrent(ctx, l, &l.head); err != nil {
		return nil, err
	}
	if l.head.ActiveRun == "" || s.closeExpired(ctx, l) != nil {
		return nil, nil
	}
	l.fence(l.queued)
	return l.queued, nil
}

// closeExpired closes the active run if its lease has expired by the database's clock, and refuses otherwise. That is
// looked at again when it is committed: a renewal in between wins.
func (s *Service) closeExpired(ctx context.Context, l *live) error {
	head, err := s.head(ctx, l.key)
	if err != nil {
		return err
	}
	if !head.LeaseExpired {
		return errRunActive(&head)
	}
	p := l.pend()
	p.commit.ExpectExpired = true
	s.truncate(l, agui.LeaseExpired)
	return nil
}
