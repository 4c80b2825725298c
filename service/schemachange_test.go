package service_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// schemaChanges alter every table that appends and reads use, first by another column and then, where no view stands in the
// way, by another type of one that is read, which makes the prepared statements that return it useless (SQLSTATE 0A000).
func schemaChanges() (all []string) {
	for _, table := range []string{"threads", "log_segments", "runs", "folds", "message_blocks", "states", "state_patches", "warnings"} {
		all = append(all, fmt.Sprintf(`ALTER TABLE %s ADD COLUMN later text`, table))
	}
	for _, table := range []string{"runs", "folds", "message_blocks", "states", "state_patches"} {
		all = append(all, fmt.Sprintf(`ALTER TABLE %s ALTER COLUMN codec TYPE integer`, table))
	}
	return all
}

func TestSchemaChangesUnderLoad(t *testing.T) {
	t.Parallel()
	direct := storetest.Database(t)
	underSchemaChanges(t, direct, direct)
}

func TestSchemaChangesUnderLoadBehindPgBouncer(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a while")
	}
	t.Parallel()
	direct := storetest.Database(t)
	underSchemaChanges(t, direct, storetest.Pooler(t, direct))
}

// underSchemaChanges changes the schema while many append, read, follow and ask for the past. None of their calls fails.
func underSchemaChanges(t *testing.T, direct, url string) {
	node := startNode(t, openStore(t, url), service.Config{ReapInterval: -1})
	rpc, history := dial(t, node.address), threadsvcv1.NewHistoryServiceClient(connection(t, node.address))
	db := connect(t, direct)
	var done atomic.Bool
	var work sync.WaitGroup
	followed := converse(t, rpc, "t0")
	followed.start("r0")
	followed.append(runStarted("t0", "r0"), runFinished("t0", "r0"))
	follower := followed.follow(0)
	var rounds [3]atomic.Int64
	for i := range rounds {
		work.Go(func() {
			for n := 1; !done.Load() && !t.Failed(); n++ {
				liveThrough(t, rpc, history, fmt.Sprint("t", i), fmt.Sprint("r", n))
				rounds[i].Add(1)
			}
		})
	}
	for _, sql := range schemaChanges() {
		execSQL(t, db, sql)
		for i := range rounds { // every kind of call has been made since
			for seen := rounds[i].Load(); rounds[i].Load() < seen+2 && !t.Failed(); time.Sleep(time.Millisecond) {
			}
		}
	}
	done.Store(true)
	work.Wait()
	if t.Failed() {
		return
	}
	log := followed.log()
	followed.until(follower, uint64(len(log)))
	ok(t, follower.same(log))
}

// liveThrough makes the calls of a run, of its readers and of an auditor. It fails the test at the first error.
func liveThrough(t *testing.T, rpc threadsvcv1.ThreadServiceClient, history threadsvcv1.HistoryServiceClient, thread, run string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream, err := rpc.StartRun(ctx, &threadsvcv1.StartRunRequest{Thread: threadName(thread), RunId: run})
	var first *threadsvcv1.StartRunResponse
	if err == nil {
		first, err = stream.Recv()
	}
	if err != nil {
		t.Errorf("start: %v %s", err, detailsOf(err))
		return
	}
	events := slices.Concat([]string{runStarted(thread, run), stateSnapshot(`{"n":0}`)}, text("m"+run, "hello"), []string{runFinished(thread, run)})
	for i, e := range events {
		if _, err := appendBatch(ctx, rpc, handle(thread, run, first.GetStart().GetLease().GetFencingToken()), uint64(i), e); err != nil {
			t.Errorf("append: %v %s", err, detailsOf(err))
			return
		}
	}
	for name, call := range map[string]func() error{
		"context": func() error { _, _, err := getContext(ctx, rpc, thread); return err },
		"log":     func() error { _, _, err := readLog(ctx, rpc, thread, 0); return err },
		"metadata": func() error {
			_, err := rpc.UpdateThread(ctx, &threadsvcv1.UpdateThreadRequest{Thread: threadName(thread), MetadataPatch: []byte(`{"a":1}`)})
			return err
		},
		"runs": func() error {
			_, err := rpc.ListRuns(ctx, &threadsvcv1.ListRunsRequest{Thread: threadName(thread)})
			return err
		},
		"blame": func() error {
			_, err := history.BlameState(ctx, &threadsvcv1.BlameStateRequest{Thread: threadName(thread), Pointer: "/n"})
			return err
		},
	} {
		if err := call(); err != nil {
			t.Errorf("%s: %v %s", name, err, detailsOf(err))
		}
	}
}
