package service

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/threadsvc/threadsvc/store"
)

// One of a thread has its turn at a time, those of other threads do not wait for it, and nothing is left of any.
func TestTurns(t *testing.T) {
	t.Parallel()
	q := newTurns()
	one, other := store.KeyOf("acme", "t1"), store.KeyOf("acme", "t2")
	leave, err := q.take(t.Context(), one, nil)
	if err != nil {
		t.Fatal(err)
	}
	leaveOther, err := q.take(t.Context(), other, nil)
	if err != nil {
		t.Fatal(err)
	}
	leaveOther()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := q.take(ctx, one, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
	done := make(chan struct{})
	close(done)
	if _, err := q.take(t.Context(), one, done); !errors.Is(err, errShuttingDown) {
		t.Errorf("error %v, want errShuttingDown", err)
	}
	var inside atomic.Int32
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			leave, err := q.take(t.Context(), one, nil)
			if err != nil || inside.Add(1) != 1 {
				t.Errorf("%d have the turn at once, %v", inside.Load(), err)
				return
			}
			inside.Add(-1)
			leave()
		})
	}
	leave()
	all.Wait()
	if len(q.queue) != 0 {
		t.Errorf("%d threads are left", len(q.queue))
	}
}
