package service

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/threadsvc/threadsvc/store"
)

// patiently makes a write of the store again while somebody else keeps a row of the thread locked, for as long as a call of
// the store may take. It waits with empty hands: neither a connection nor a place at a gate is taken meanwhile, so any number
// of writers that are stuck keep nobody else from anything. Of those of one thread only the first knocks.
func (s *Service) patiently(ctx context.Context, key store.Key, write func() error) error {
	waiting, cancel := context.WithTimeout(ctx, s.cfg.StoreTimeout)
	defer cancel()
	leave, err := s.turns.take(waiting, key, s.drain)
	if err != nil {
		return givenUp(ctx, err)
	}
	defer leave()
	for wait := firstBarred; ; wait = min(2*wait, maxBarred) {
		if err := write(); !errors.Is(err, store.ErrLocked) {
			return err
		}
		select {
		case <-time.After(wait/2 + rand.N(wait)):
		case <-waiting.Done():
			return givenUp(ctx, waiting.Err())
		case <-s.drain:
			return errShuttingDown
		}
	}
}

// givenUp says why a wait ended: the caller's own reason comes first.
func givenUp(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errBarred
	}
	return err
}

// errBarred says that a lock was waited for in vain.
var errBarred = fmt.Errorf("%w: somebody holds the lock of the thread's head", store.ErrUnavailable)

// turns is a queue for each thread, of those who write to it one after the other.
type turns struct {
	mu    sync.Mutex
	queue map[store.Key]*turn
}

// turn holds one token; users is how many have it or wait for it, guarded by the queue's lock.
type turn struct {
	token chan struct{}
	users int
}

func newTurns() *turns { return &turns{queue: map[store.Key]*turn{}} }

// take waits for a thread's turn and returns what gives it to the next. The error is the context's, or errShuttingDown once
// done is closed.
func (t *turns) take(ctx context.Context, key store.Key, done <-chan struct{}) (leave func(), err error) {
	t.mu.Lock()
	mine := t.queue[key]
	if mine == nil {
		mine = &turn{token: make(chan struct{}, 1)}
		t.queue[key] = mine
	}
	mine.users++
	t.mu.Unlock()
	select {
	case mine.token <- struct{}{}:
		return func() { <-mine.token; t.left(key, mine) }, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-done:
		err = errShuttingDown
	}
	t.left(key, mine)
	return nil, err
}

func (t *turns) left(key store.Key, mine *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if mine.users--; mine.users == 0 {
		delete(t.queue, key)
	}
}
