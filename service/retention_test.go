package service_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
)

// prune prunes the conversation's thread before a version, and returns the answer.
func (h *historian) prune(before uint64) *threadsvcv1.PruneThreadResponse {
	h.t.Helper()
	req := &threadsvcv1.PruneThreadRequest{Thread: threadName(h.thread), BeforeVersion: before}
	return must(h.keeper.PruneThread(h.t.Context(), req))(h.t)
}

// runs lists the thread's runs, oldest first.
func (c *conversation) runs() []*threadsvcv1.Run {
	c.t.Helper()
	req := &threadsvcv1.ListRunsRequest{Thread: threadName(c.thread), PageSize: 500}
	runs := must(c.client.ListRuns(c.t.Context(), req))(c.t).GetRuns()
	slices.Reverse(runs)
	return runs
}

// runEnd is the version at which a run ended.
func (c *conversation) runEnd(run string) uint64 {
	c.t.Helper()
	for _, r := range c.runs() {
		if r.GetRunId() == run {
			return r.GetLastVersion()
		}
	}
	c.t.Fatalf("there is no run %s", run)
	return 0
}

func (c *conversation) keptRuns() string {
	c.t.Helper()
	var ids []string
	for _, r := range c.runs() {
		ids = append(ids, r.GetRunId())
	}
	return strings.Join(ids, " ")
}

func (h *historian) setPolicy(policy *threadsvcv1.RetentionPolicy) {
	h.t.Helper()
	policy.Tenant = "test"
	must(h.keeper.UpdateRetentionPolicy(h.t.Context(), &threadsvcv1.UpdateRetentionPolicyRequest{Policy: policy}))(h.t)
}

// eventually waits until something holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// eager is a server that prunes at once.
func eager() service.Config {
	return service.Config{PruneInterval: 10 * time.Millisecond, PruneGrace: -1, CheckpointBytes: 2 << 10}
}

// A policy is kept as it is set, changed as a whole, and gone when it is deleted; one that is none is refused.
func TestRetentionPolicies(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{PruneInterval: -1})
	ctx := t.Context()
	get := func() *threadsvcv1.RetentionPolicy {
		return must(h.keeper.GetRetentionPolicy(ctx, &threadsvcv1.GetRetentionPolicyRequest{Tenant: "test"}))(t).GetPolicy()
	}
	if get() != nil {
		t.Error("there is a policy that nobody made")
	}
	h.setPolicy(&threadsvcv1.RetentionPolicy{MaxAge: durationpb.New(time.Hour), MaxRuns: 3, MaxBytes: 1 << 40})
	if p := get(); p.GetMaxAge().AsDuration() != time.Hour || p.GetMaxRuns() != 3 || p.GetMaxBytes() != 1<<40 || p.GetTenant() != "test" || p.GetUpdateTime() == nil {
		t.Errorf("policy %v", p)
	}
	h.setPolicy(&threadsvcv1.RetentionPolicy{MaxRuns: 7})
	if p := get(); p.GetMaxAge() != nil || p.GetMaxRuns() != 7 || p.GetMaxBytes() != 0 {
		t.Errorf("changed policy %v", p)
	}
	for range 2 {
		must(h.keeper.DeleteRetentionPolicy(ctx, &threadsvcv1.DeleteRetentionPolicyRequest{Tenant: "test"}))(t)
	}
	if get() != nil {
		t.Error("the policy is still there")
	}
	for name, policy := range map[string]*threadsvcv1.RetentionPolicy{
		"policy": {}, "policy.max_runs": {MaxRuns: -1}, "policy.max_bytes": {MaxBytes: -1}, "policy.tenant": {Tenant: "\x00", MaxRuns: 1},
		"policy.max_age": {MaxAge: durationpb.New(-time.Second)},
	} {
		_, err := h.keeper.UpdateRetentionPolicy(ctx, &threadsvcv1.UpdateRetentionPolicyRequest{Policy: policy})
		if meta := wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST"); meta["field"] != name {
			t.Errorf("%s: %v", name, meta)
		}
	}
	_, err := h.keeper.UpdateRetentionPolicy(ctx, &threadsvcv1.UpdateRetentionPolicyRequest{Policy: &threadsvcv1.RetentionPolicy{MaxAge: durationpb.New(1)}})
	wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST")
	_, err = h.keeper.GetRetentionPolicy(ctx, &threadsvcv1.GetRetentionPolicyRequest{Tenant: "\x00"})
	wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST")
	_, err = h.keeper.DeleteRetentionPolicy(ctx, &threadsvcv1.DeleteRetentionPolicyRequest{Tenant: "\x00"})
	wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST")
}

// By count, by size and by age: what a policy asks for goes, in the background, on whichever of two servers comes first; the
// latest stays whatever it asks for, and a busy thread is left alone until it is not.
func TestPoliciesPruneInTheBackground(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]*threadsvcv1.RetentionPolicy{
		"count":       {MaxRuns: 2},
		"keep latest": {MaxBytes: 1},
		"age":         {MaxAge: durationpb.New(time.Microsecond)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := "r5"
			if name == "count" {
				want = "r4 r5"
			}
			h := newHistorian(t, eager())
			startNode(t, openStore(t, h.url), eager())
			busy := converse(t, h.client, "busy")
			for i := range 6 {
				h.record(fmt.Sprint("r", i), text(fmt.Sprint("m", i), "hello")...)
				busy.record(fmt.Sprint("r", i))
			}
			busy.open("active")
			before, _ := h.info()
			h.setPolicy(policy)
			eventually(t, "the pruning of the thread", func() bool { return h.keptRuns() == want })
			if after, _ := h.info(); after.String() != before.String() {
				t.Errorf("the context is %v and was %v", after, before)
			}
			if got := busy.keptRuns(); got != "r0 r1 r2 r3 r4 r5 active" {
				t.Errorf("the busy thread has %s", got)
			}
			busy.append(runFinished("busy", "active"))
			if want = "active"; name == "count" {
				want = "r5 active"
			}
			eventually(t, "the pruning of the busy thread", func() bool { return busy.keptRuns() == want })
			h.checkThreads("t1", "busy")
			h.stillWorks()
		})
	}
}

// checkThreads verifies threads once nothing is left to remove.
func (h *historian) checkThreads(ids ...string) {
	h.t.Helper()
	h.waitFor("the sweep", `SELECT NOT EXISTS (SELECT 1 FROM prunings)`)
	db := openStore(h.t, h.url)
	defer db.Close()
	for _, id := range ids {
		if findings := verify(h.t, db, store.KeyOf("test", id)); len(findings) > 0 {
			h.t.Errorf("%s: %v", id, findings)
		}
	}
}

// The end of a run is followed by a grace in which nothing of it is pruned in the background; people may still do so.
func TestGraceKeepsWhatMayBeSentAgain(t *testing.T) {
	t.Parallel()
	cfg := eager()
	cfg.PruneGrace = time.Hour
	h := newHistorian(t, cfg)
	other := converse(t, h.client, "old")
	for i := range 3 {
		h.record(fmt.Sprint("r", i))
		other.record(fmt.Sprint("r", i))
	}
	execSQL(t, h.db, `UPDATE runs SET ended_at = ended_at - interval '2 hours' WHERE thread_key = $1`, keyOf("old"))
	h.setPolicy(&threadsvcv1.RetentionPolicy{MaxRuns: 1})
	eventually(t, "the pruning of the old thread", func() bool { return other.keptRuns() == "r2" })
	h.waitFor("a look at the other", `SELECT prune_due > now() AND prune_due < now() + interval '1 hour' FROM threads WHERE thread_id = 't1'`)
	if got := h.keptRuns(); got != "r0 r1 r2" {
		t.Errorf("the runs are %s", got)
	}
	if resp := h.prune(0); resp.GetPrunedRuns() != 2 || h.keptRuns() != "r2" {
		t.Errorf("%v, the runs are %s", resp, h.keptRuns())
	}
}

// A cursor or a moment before the cut gets an error that names the first version; the context there and the log after it
// lead to the present, whoever reads.
func TestCursorsBeforeTheCutAreTold(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{PruneInterval: -1})
	other := dial(t, startNode(t, openStore(t, h.url), service.Config{PruneInterval: -1}).address)
	for i := range 12 {
		h.record(fmt.Sprint("r", i), text(fmt.Sprint("m", i), strings.Split(strings.Repeat("word ", 20), " ")...)...)
	}
	log, first := h.log(), h.runEnd("r8")
	tailing := must(follow(t.Context(), other, h.thread, 1))(t) // has not read what is pruned, or has: both are in order
	if resp := h.prune(first + 7); resp.GetFirstVersion() != first || resp.GetPrunedRuns() != 9 {
		t.Fatalf("%v, want version %d and 9 runs", resp, first)
	}
	if err := tailing.until(uint64(len(log))); err != nil {
		if meta := wantReason(t, cause(err), codes.OutOfRange, "VERSION_PRUNED"); meta["first_version"] != fmt.Sprint(first) {
			t.Errorf("a follower under way: %v", meta)
		}
	}
	h.wantPruned(first)
	for _, client := range []threadsvcv1.ThreadServiceClient{h.client, other} {
		for _, from := range []uint64{0, 1, 10, first} {
			r, err := follow(t.Context(), client, h.thread, from)
			if err == nil {
				err = r.receive()
			}
			if meta := wantReason(t, err, codes.OutOfRange, "VERSION_PRUNED"); meta["first_version"] != fmt.Sprint(first) || meta["version"] != fmt.Sprint(max(from, 1)) {
				t.Errorf("from %d: %v", from, meta)
			}
		}
		info, _, err := contextAt(converse(t, client, h.thread), versionMoment(first))
		if err != nil || info.GetVersion() != first {
			t.Fatalf("the context at version %d: %v %v", first, info, err)
		}
		r := must(follow(t.Context(), client, h.thread, first+1))(t)
		if err := r.until(uint64(len(log))); err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprint(r.entries), fmt.Sprint(log[first:]); got != want {
			t.Errorf("the log after the cut is\n%s\nand was\n%s", got, want)
		}
	}
	h.stillWorks()
}

// cause is the error of gRPC within another.
func cause(err error) error {
	for inner := err; inner != nil; {
		err = inner
		unwrapped, ok := inner.(interface{ Unwrap() error })
		if !ok {
			break
		}
		inner = unwrapped.Unwrap()
	}
	return err
}

// wantPruned asks every reader for what is before the cut.
func (h *historian) wantPruned(first uint64) {
	h.t.Helper()
	ctx, name, gone := h.t.Context(), threadName(h.thread), versionMoment(first-1)
	recv := func(stream interface{ RecvMsg(any) error }, err error, m any) error {
		if err != nil {
			return err
		}
		return stream.RecvMsg(m)
	}
	state, err := h.history.GetState(ctx, &threadsvcv1.GetStateRequest{Thread: name, Moment: gone})
	errs := map[string]error{"GetState": recv(state, err, &threadsvcv1.GetStateResponse{})}
	diff, err := h.history.DiffContext(ctx, &threadsvcv1.DiffContextRequest{Thread: name, From: gone})
	errs["DiffContext"] = recv(diff, err, &threadsvcv1.DiffContextResponse{})
	_, _, errs["GetContext"] = contextAt(h.conversation, gone)
	_, _, errs["GetContext at a time"] = contextAt(h.conversation, timeMoment(time.Unix(1, 0)))
	_, errs["ListMessages"] = h.client.ListMessages(ctx, &threadsvcv1.ListMessagesRequest{Thread: name, Moment: gone})
	_, errs["ListStateChanges"] = h.history.ListStateChanges(ctx, &threadsvcv1.ListStateChangesRequest{Thread: name, From: gone})
	_, errs["BlameState"] = h.history.BlameState(ctx, &threadsvcv1.BlameStateRequest{Thread: name, Moment: gone})
	_, errs["RewindThread"] = h.history.RewindThread(ctx, &threadsvcv1.RewindThreadRequest{Thread: name, To: gone})
	_, errs["ForkThread"] = h.history.ForkThread(ctx, &threadsvcv1.ForkThreadRequest{Source: name, ThreadId: "fork", Moment: gone})
	_, _, errs["ReadLog"] = readLog(ctx, h.client, h.thread, first)
	for call, err := range errs {
		reason, meta := reasonOf(err)
		if reason != "VERSION_PRUNED" || meta["first_version"] != fmt.Sprint(first) {
			h.t.Errorf("%s: %v %s", call, err, detailsOf(err))
		}
	}
	if _, _, err := contextAt(h.conversation, runMoment("r0")); err == nil {
		h.t.Error("the end of a run that was pruned can be read")
	}
}

// What PruneThread cannot do it says; that there is nothing to do is no error.
func TestPruneRefusals(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{PruneInterval: -1})
	h.record("r1")
	end := h.runEnd("r1")
	prune := func(ctx context.Context, thread string, before uint64) error {
		_, err := h.keeper.PruneThread(ctx, &threadsvcv1.PruneThreadRequest{Thread: threadName(thread), BeforeVersion: before})
		return err
	}
	wantReason(t, prune(t.Context(), "nobody", 1), codes.NotFound, "THREAD_NOT_FOUND")
	wantReason(t, prune(t.Context(), "", 1), codes.InvalidArgument, "INVALID_REQUEST")
	wantReason(t, prune(t.Context(), h.thread, 0), codes.InvalidArgument, "INVALID_REQUEST")
	wantReason(t, prune(t.Context(), h.thread, end+1), codes.OutOfRange, "VERSION_NOT_FOUND")
	if resp := h.prune(end); resp.GetFirstVersion() != 0 || resp.GetPrunedRuns() != 0 {
		t.Errorf("the only run: %v", resp)
	}
	h.record("r2")
	h.open("r3")
	wantReason(t, prune(t.Context(), h.thread, end), codes.FailedPrecondition, "RUN_ACTIVE")
	h.append(runFinished(h.thread, "r3"))
	if resp := h.prune(end - 1); resp.GetFirstVersion() != 0 {
		t.Errorf("within the first run: %v", resp)
	}
	for _, runs := range []int64{1, 0} {
		if resp := h.prune(end); resp.GetFirstVersion() != end || resp.GetPrunedRuns() != runs {
			t.Errorf("%v, want version %d and %d runs", resp, end, runs)
		}
	}
	thread := must(h.client.GetThread(t.Context(), &threadsvcv1.GetThreadRequest{Thread: threadName(h.thread)}))(t).GetThread()
	if thread.GetFirstVersion() != end || thread.GetRunCount() != 3 {
		t.Errorf("thread %v", thread)
	}
}

// Runs of one producer stream go together, so that whatever is sent again of it is known; of a run that is gone nothing is
// taken with its token, nor from the middle.
func TestSendingAgainAfterPruning(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{PruneInterval: -1})
	h.record("r1")
	gone := h.run
	stream := handle(h.thread, "s1", 0)
	events := []string{
		runStarted(h.thread, "s1"), runFinished(h.thread, "s1"), runStarted(h.thread, "s2"), runFinished(h.thread, "s2"),
	}
	must(appendBatch(t.Context(), h.client, stream, 0, events...))(t)
	h.record("r2")
	if resp := h.prune(h.runEnd("s1")); resp.GetPrunedRuns() != 1 {
		t.Errorf("within a stream: %v", resp)
	}
	must(appendBatch(t.Context(), h.client, stream, 0, events...))(t) // all of it was received
	_, err := appendBatch(t.Context(), h.client, gone, 0, runStarted(h.thread, "r1"))
	wantReason(t, err, codes.NotFound, "RUN_NOT_FOUND")
	_, err = appendBatch(t.Context(), h.client, handle(h.thread, "r1", 0), 1, runFinished(h.thread, "r1"))
	wantReason(t, err, codes.OutOfRange, "OFFSET_GAP")
	if resp := h.prune(h.runEnd("s2")); resp.GetPrunedRuns() != 2 || h.keptRuns() != "r2" {
		t.Errorf("the whole stream: %v, %s", resp, h.keptRuns())
	}
	h.record("r1") // its id is nobody's
	if got := h.keptRuns(); got != "r2 r1" {
		t.Errorf("the runs are %s", got)
	}
}
