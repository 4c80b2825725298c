package service_test

import (
	"strings"
	"testing"

	"github.com/threadsvc/threadsvc/agui"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
)

// lostDelta is a STATE_DELTA that does not apply, keptDelta one that does.
const (
	lostDelta = `{"type":"STATE_DELTA","delta":[{"op":"remove","path":"/none"}]}`
	keptDelta = `{"type":"STATE_DELTA","delta":[{"op":"add","path":"/kept","value":1}]}`
)

// wantDue compares what a thread's state lacks, as the thread and its context say it; 0 lost is nothing.
func (c *conversation) wantDue(when string, since uint64, lost int64) {
	c.t.Helper()
	thread := must(c.client.GetThread(c.t.Context(), &threadsvcv1.GetThreadRequest{Thread: threadName(c.thread)}))(c.t).GetThread()
	isDue(c.t, when+": the thread", thread.GetStateResyncDue(), since, lost)
	c.wantDueAt(when, nil, since, lost)
}

func (c *conversation) wantDueAt(when string, moment *threadsvcv1.Moment, since uint64, lost int64) {
	c.t.Helper()
	info, _, err := contextAt(c, moment)
	if err != nil {
		c.t.Fatalf("%s: %v %s", when, err, detailsOf(err))
	}
	isDue(c.t, when+": the context", info.GetStateResyncDue(), since, lost)
}

func isDue(t testing.TB, what string, due *threadsvcv1.StateResync, since uint64, lost int64) {
	t.Helper()
	if (due == nil) != (lost == 0) || due.GetSinceVersion() != since || due.GetLostEvents() != lost {
		t.Errorf("%s says that %v is lost, want %d since %d", what, due, lost, since)
	}
}

// A delta that is lost makes a snapshot due, and every answer says so until one comes, on any server, whatever is resent.
func TestALostDeltaMakesASnapshotDue(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{CheckpointBytes: 2 << 10})
	start, _ := h.start("r1")
	isDue(t, "a new thread", start.GetStateResyncDue(), 0, 0)
	isDue(t, "good events", h.append(runStarted("t1", "r1"), stateSnapshot(`{"a":1}`), keptDelta).GetStateResyncDue(), 0, 0)
	first := h.append(lostDelta)
	since := first.GetVersion()
	isDue(t, "the first loss", first.GetStateResyncDue(), since, 1)
	isDue(t, "more", h.append(keptDelta, lostDelta).GetStateResyncDue(), since, 2)
	again, err := appendBatch(t.Context(), h.client, h.run, 3, lostDelta)
	if err != nil {
		t.Fatal(err)
	}
	isDue(t, "events that were sent again", again.GetStateResyncDue(), since, 2)
	h.wantDue("while the run goes on", since, 2)
	first1, here := h.client, converse(t, serveDatabase(t, h.url, service.Config{}), "t1")
	here.wantDue("on another server, while the run goes on", since, 2)
	h.append(runFinished("t1", "r1"))
	h.settle()
	h.conversation.client = serveDatabase(t, h.url, service.Config{})
	h.wantDue("on a third server", since, 2)

	start, _ = h.start("r2")
	isDue(t, "the next run", start.GetStateResyncDue(), since, 2)
	h.append(runStarted("t1", "r2"))
	isDue(t, "a snapshot", h.append(stateSnapshot(`{"a":2}`)).GetStateResyncDue(), 0, 0)
	h.wantDue("after a snapshot", 0, 0)
	last := h.append(lostDelta)
	isDue(t, "another loss", last.GetStateResyncDue(), last.GetVersion(), 1)
	isDue(t, "the same state again", h.append(stateSnapshot(`{"a":2}`), runFinished("t1", "r2")).GetStateResyncDue(), 0, 0)
	h.conversation.client = first1
	h.wantDue("on the first server", 0, 0)

	for moment, want := range map[*threadsvcv1.Moment]int64{
		versionMoment(since - 1): 0, versionMoment(since): 1, versionMoment(since + 1): 1, versionMoment(since + 2): 2,
		runMoment("r1"): 2, runMoment("r2"): 0,
	} {
		h.wantDueAt(moment.String(), moment, since*uint64(min(want, 1)), want)
	}
}

// A delta beyond the limits is lost as well, and a snapshot that is refused ends nothing.
func TestWhatIsBeyondTheLimitsIsLost(t *testing.T) {
	t.Parallel()
	limits := agui.DefaultLimits()
	limits.PatchOps, limits.State = 2, 100
	c := converse(t, newServer(t, service.Config{Limits: limits}), "t1")
	c.open("r1", stateSnapshot(`{"a":1}`))
	progress := c.append(stateDelta(`[{"op":"add","path":"/a","value":1},{"op":"add","path":"/b","value":1},{"op":"add","path":"/c","value":1}]`))
	isDue(t, "a long delta", progress.GetStateResyncDue(), progress.GetVersion(), 1)
	since := progress.GetVersion()
	progress = c.append(stateDelta(`[{"op":"add","path":"/b","value":"` + strings.Repeat("x", 100) + `"}]`))
	isDue(t, "a large delta", progress.GetStateResyncDue(), since, 2)
	if _, err := c.tryAppend(stateSnapshot(`"` + strings.Repeat("x", 100) + `"`)); err == nil {
		t.Error("a snapshot beyond the limits was taken")
	}
	c.wantDue("after a snapshot that was refused", since, 2)
	c.wantState(`{"a":1}`)
}

// A run that brings the whole state ends it; one that starts from an earlier state has what that one lacked.
func TestRunsThatSetTheStateAndWhatItLacks(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{})
	h.open("r1", stateSnapshot(`{}`))
	since := h.append(lostDelta).GetVersion()
	h.append(runFinished("t1", "r1"))
	h.open("r2", lostDelta, stateSnapshot(`{"half":1}`), event("RUN_ERROR", "message", `"broke"`))
	h.wantDue("after a snapshot of a run that failed", 0, 0)
	start, _ := h.start("r3", func(r *threadsvcv1.StartRunRequest) {
		r.StartingState = threadsvcv1.StartingState_STARTING_STATE_LAST_COMPLETED
	})
	isDue(t, "started from the last completed state", start.GetStateResyncDue(), since, 1)
	h.wantState(`{}`)
	h.append(runStarted("t1", "r3"), runFinished("t1", "r3"))
	h.settle()
	h.wantDue("after that run", since, 1)
	converse(t, serveDatabase(t, h.url, service.Config{}), "t1").wantDue("on another server", since, 1)
	h.wantDueAt("when the failed run was over", runMoment("r2"), 0, 0)
	start, _ = h.start("r4", func(r *threadsvcv1.StartRunRequest) {
		r.StateChange = &threadsvcv1.StartRunRequest_StatePatch{StatePatch: []byte(`[{"op":"add","path":"/p","value":1}]`)}
	})
	isDue(t, "started with a patch", start.GetStateResyncDue(), since, 1)
	h.append(runStarted("t1", "r4"), runFinished("t1", "r4"))
	start, _ = h.start("r5", func(r *threadsvcv1.StartRunRequest) {
		r.StateChange = &threadsvcv1.StartRunRequest_State{State: []byte(`{"whole":1}`)}
	})
	isDue(t, "started with a state", start.GetStateResyncDue(), 0, 0)
	db := openStore(t, h.url)
	t.Cleanup(db.Close)
	if findings := verify(t, db, store.KeyOf("test", "t1")); len(findings) > 0 {
		t.Errorf("found %v", findings)
	}
}

// What is due goes with the state: back by a rewind, along into a fork and through a file, and through the pruning of the log
// that it came from.
func TestWhatIsDueGoesWithTheState(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{CheckpointBytes: 2 << 10, PruneInterval: -1, PruneGrace: -1})
	h.open("r1", stateSnapshot(`{}`))
	since := h.append(lostDelta, lostDelta).GetVersion() - 1
	h.append(runFinished("t1", "r1"))
	h.record("r2", stateSnapshot(`{"a":1}`))
	h.wantDue("before the rewind", 0, 0)
	h.rewind(runMoment("r1"))
	h.wantDue("rewound to the loss", since, 2)
	h.rewind(runMoment("r2"))
	h.wantDue("rewound to the snapshot", 0, 0)
	h.rewind(versionMoment(since - 1))
	h.wantDue("rewound to before the loss", 0, 0)
	h.rewind(runMoment("r1"))

	h.fork(runMoment("r1"), "fork")
	fork := converse(t, h.client, "fork")
	fork.wantDue("a fork", 1, 2)
	h.fork(runMoment("r2"), "whole")
	converse(t, h.client, "whole").wantDue("a fork of a whole state", 0, 0)
	fork.record("f1", lostDelta)
	fork.wantDue("a fork that lost more", 1, 3)

	other := newHistorian(t, service.Config{})
	for _, id := range []string{"t1", "fork"} {
		must(importFile(t.Context(), other.history, threadName(id), export(t, h.history, threadName(id))))(t)
	}
	other.wantDue("imported", since, 2)
	converse(t, other.client, "fork").wantDue("an imported fork", 1, 3)

	h.record("r3", keptDelta)
	h.record("r4", keptDelta)
	if pruned := h.prune(h.runEnd("r3")); pruned.GetFirstVersion() <= since {
		t.Fatalf("nothing was pruned: %v", pruned)
	}
	h.wantDue("pruned", since, 2)
	converse(t, serveDatabase(t, h.url, service.Config{}), "t1").wantDue("pruned, on another server", since, 2)
	h.record("r5", stateSnapshot(`{}`))
	h.wantDue("after a snapshot", 0, 0)
}
