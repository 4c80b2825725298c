package service_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// takenRunStore fails the next commit as one that names a run id which is taken.
type takenRunStore struct {
	store.Store
	armed atomic.Bool
}

func (s *takenRunStore) Commit(ctx context.Context, commits []*store.Commit) []store.Result {
	if !s.armed.CompareAndSwap(true, false) {
		return s.Store.Commit(ctx, commits)
	}
	results := make([]store.Result, len(commits))
	for i := range results {
		results[i].Err = store.ErrDuplicate
	}
	return results
}

// A run id that is taken fails the commit of all that was queued with it. An amendment and the end of a run, which are not to
// blame for it, are made again.
func TestTakenRunIsNotTheFaultOfWhoCommitsWithIt(t *testing.T) {
	t.Parallel()
	db := &takenRunStore{Store: openStore(t, storetest.Database(t))}
	c := converse(t, dial(t, startNode(t, db, service.Config{}).address), "t1")
	c.open("r1", textStart("m"))
	db.armed.Store(true)
	c.amend("a1", note("n1"))
	db.armed.Store(true)
	c.end("r1", "")
	if db.armed.Load() {
		t.Error("no commit has failed")
	}
	c.stillWorks()
}
