package service

import (
	"context"
	"sync"
)

// gate bounds how many calls of the store that read are under way at once, below the number of its connections: what
// commits always finds one free. Who is beyond waits for as long as its caller does.
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
	leave := s.reads.enter(ctx)
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StoreTimeout)
	return ctx, func() {
		cancel()
		leave()
	}
}
