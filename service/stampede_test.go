package service_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// crowdedStore counts how many reads are under way at once.
type crowdedStore struct {
	store.Store
	now, most atomic.Int64
}

func (s *crowdedStore) Load(ctx context.Context, key store.Key) (*store.Loaded, error) {
	now := s.now.Add(1)
	defer s.now.Add(-1)
	for most := s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); most = s.most.Load() {
	}
	return s.Store.Load(ctx, key)
}

// Many more threads than connections, all opened at once, queue up: each gets its run, and its events are acknowledged.
func TestManyThreadsOnFewConnections(t *testing.T) {
	t.Parallel()
	db, err := store.Open(t.Context(), store.Options{URL: storetest.Database(t), MaxConns: 5})
	if err != nil {
		t.Fatal(err)
	}
	crowded := &crowdedStore{Store: db}
	client := dial(t, startNode(t, crowded, service.Config{Reads: 2, Committers: 2}).address)
	const threads = 2000
	var failed atomic.Int64
	var callers sync.WaitGroup
	for i := range threads {
		callers.Go(func() {
			thread := fmt.Sprint("t", i)
			start, _, err := startRun(t.Context(), client, &threadsvcv1.StartRunRequest{Thread: threadName(thread), RunId: "r1"})
			if err == nil {
				_, err = appendBatch(t.Context(), client, handle(thread, "r1", start.GetLease().GetFencingToken()), 0, runStarted(thread, "r1"))
			}
			if err != nil && failed.Add(1) <= 3 {
				t.Errorf("thread %d: %v %s", i, err, detailsOf(err))
			}
		})
	}
	callers.Wait()
	if n := failed.Load(); n > 0 {
		t.Errorf("%d of %d failed", n, threads)
	}
	if most := crowded.most.Load(); most > 2 {
		t.Errorf("%d loads at once, want 2 at most", most)
	}
}

// slowLoads is a store that takes its time to load.
type slowLoads struct {
	store.Store
	entered chan struct{}
	proceed chan struct{}
}

func (s *slowLoads) Load(ctx context.Context, key store.Key) (*store.Loaded, error) {
	s.entered <- struct{}{}
	select {
	case <-s.proceed:
		return s.Store.Load(ctx, key)
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
	}
}

// Who waits to read does so for as long as its caller, whatever the time of one call of the store; it can leave; and it holds
// up nobody who commits.
func TestWaitingToReadTakesTheCallersTime(t *testing.T) {
	t.Parallel()
	slow := &slowLoads{Store: openStore(t, storetest.Database(t)), entered: make(chan struct{}, 10), proceed: make(chan struct{})}
	n := startNode(t, slow, service.Config{Reads: 1, ReapInterval: -1})
	c := converse(t, dial(t, n.address), "t1")
	first := c.call("r1")
	<-slow.entered
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, _, err := startRun(ctx, c.client, &threadsvcv1.StartRunRequest{Thread: threadName("t2"), RunId: "r1"})
	if code := status.Code(err); code != codes.DeadlineExceeded {
		t.Errorf("who had little time: %v", err)
	}
	patient := converse(t, c.client, "t3").call("r1")
	close(slow.proceed)
	first.answered(t)
	patient.answered(t)
	c.through(first)
}
