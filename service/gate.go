package service

import (
	"context"
	"sync"
	"time"
)

// gate bounds how many calls of the store of a kind are under way at once, those that read and those that write something
// else than commits, together below the number of its connections: what commits always finds one free. Who is beyond waits for as long as its caller does.
type gate chan struct{}

func newGate(n int) gate { return make(gate, n) }

// enter waits for a place and returns what gives it back, which may be called more than once. If the context ends first
// there is no place, and the context's error for whoever uses it.
func (g gate) enter(ctx context.Context) (leave func()) {
	select {
	case g <- struct{}{}:
		return sync.OnceFunc(func() { <-g })
	case <-ctx.Done():
		return func() {}
	}
}

// storeContext bounds one call of the store. The time for it begins when the gate lets it in; cancel, which must be called
// when the call has returned, makes room for the next. Nobody may hold two.
func (s *Service) storeContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return s.reads.pass(ctx, s.cfg.StoreTimeout)
}

// writeContext is storeContext for a call that writes something else than commits: these have a gate of their own, so that
// they keep no reader waiting.
func (s *Service) writeContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return s.writes.pass(ctx, s.cfg.StoreTimeout)
}

func (g gate) pass(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	leave := g.enter(ctx)
	ctx, cancel := context.WithTimeout(ctx, limit)
	return ctx, func() {
		cancel()
		leave()
	}
}
