package service_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// forgetfulStore says that it has committed, and has not.
type forgetfulStore struct {
	store.Store
	forgets atomic.Bool
}

func (s *forgetfulStore) Commit(ctx context.Context, commits []*store.Commit) []store.Result {
	if !s.forgets.Load() {
		return s.Store.Commit(ctx, commits)
	}
	results := make([]store.Result, len(commits))
	for i := range results {
		results[i].CommittedAt = time.Now()
	}
	return results
}

// TestHistoryTellsOfABrokenServer records, by the clients of the chaos test, what a server is asked whose acknowledgements are
// not durable, and the same of one that is sound.
func TestHistoryTellsOfABrokenServer(t *testing.T) {
	t.Parallel()
	for want, forgets := range map[porcupine.CheckResult]bool{porcupine.Ok: false, porcupine.Illegal: true} {
		db := &forgetfulStore{Store: storetest.NewMemory()}
		rpc := dial(t, startNode(t, db, service.Config{}).address)
		l := newLoad()
		thread := l.thread("t1", true)
		thread.history = newHistory()
		c := newLoadClient(l, []threadsvcv1.ThreadServiceClient{rpc}, 1, "c")
		s := must(c.start(t.Context(), thread, c.newStream(thread, false)))(t)
		db.forgets.Store(forgets)
		for s.acked == 0 {
			if err := c.attempt(t.Context(), thread, s); err != nil {
				t.Fatal(err)
			}
		}
		op := thread.history.call(asked{kind: opRead})
		head := must(rpc.GetThread(t.Context(), &threadsvcv1.GetThreadRequest{Thread: threadName("t1")}))(t)
		thread.history.settle(op, answered{verdict: done, version: head.GetThread().GetVersion()})
		if got := linearize(thread.history.operations(&logFacts{}), time.Minute); got != want {
			t.Errorf("a server that forgets (%v): %v", forgets, got)
		}
	}
}
