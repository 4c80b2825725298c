package service_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

func withExpectedVersion(version uint64) startOption {
	return func(r *threadsvcv1.StartRunRequest) { r.ExpectedVersion = &version }
}

// Two writers that have read the same version: one writes, the other is told of the present version.
func TestWritersThatReadTheSameVersion(t *testing.T) {
	t.Parallel()
	sides := twoServers(t)
	sides[0].record("r0")
	for round := range 5 {
		info, _ := sides[round%2].info()
		expected := withExpectedVersion(info.GetVersion())
		var calls [2]*startCall
		for i, side := range sides {
			calls[i] = side.call(fmt.Sprint("r", round, "-", i), expected, withPolicy(takeOver))
		}
		won := -1
		for i, call := range calls {
			if <-call.done; call.err == nil {
				if won >= 0 {
					t.Fatalf("round %d: both wrote", round)
				}
				won = i
				continue
			}
			meta := wantReason(t, call.err, codes.Aborted, "VERSION_MISMATCH")
			if version, err := strconv.ParseUint(meta["version"], 10, 64); err != nil || version <= info.GetVersion() {
				t.Errorf("round %d: told of version %q after %d", round, meta["version"], info.GetVersion())
			}
		}
		if won < 0 {
			t.Fatalf("round %d: nobody wrote", round)
		}
		sides[won].through(calls[won])
	}
	sides[0].stillWorks()
}

// A counter that many raise, each guarded by the version it has read, counts every success.
func TestGuardedIncrementsAreNeverLost(t *testing.T) {
	t.Parallel()
	sides := twoServers(t)
	sides[0].record("r0", stateSnapshot(`{"n":0}`))
	const callers, increments = 8, 5
	var conflicts atomic.Int64
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			c := converse(t, sides[caller%2].client, "t1")
			for done := 0; done < increments; {
				ok, err := c.increment(fmt.Sprint("r", caller, "-", done))
				if err != nil {
					t.Errorf("caller %d: %v %s", caller, err, detailsOf(err))
					return
				}
				if ok {
					done++
				} else {
					conflicts.Add(1)
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d conflicts", conflicts.Load())
	sides[0].wantState(fmt.Sprintf(`{"n":%d}`, callers*increments))
	wantOneAtATime(t, sides[0])
}

// increment raises the state's n in a run of its own, unless somebody else was faster.
func (c *conversation) increment(run string) (bool, error) {
	info, text, err := getContext(c.t.Context(), c.client, c.thread)
	if err != nil {
		return false, err
	}
	var input struct{ State struct{ N int } }
	if err := json.Unmarshal(text, &input); err != nil {
		return false, err
	}
	patch := operations(replace("/n", fmt.Sprint(input.State.N+1)))
	_, _, err = c.tryStart(run, withExpectedVersion(info.GetVersion()), withStatePatch(patch))
	switch reason, _ := reasonOf(err); reason {
	case "VERSION_MISMATCH", "RUN_ACTIVE", "CONTENTION":
		return false, nil
	}
	if err == nil {
		_, err = c.tryAppend(runStarted(c.thread, run), runFinished(c.thread, run))
	}
	return true, err
}

// Timestamps, of producers or of the database, decide nothing: the order is that of the versions.
func TestTimestampsDecideNothing(t *testing.T) {
	t.Parallel()
	sides := [2]*conversation{}
	c, db := ownDatabase(t, service.Config{})
	sides[0], sides[1] = c, converse(t, c.client, "t1")
	at := func(state string, timestamp int) string {
		return event("STATE_SNAPSHOT", "snapshot", state, "timestamp", fmt.Sprint(timestamp))
	}
	sides[0].record("r1", at(`1`, 2000))
	sides[1].record("r2", at(`2`, 2000))
	sides[0].record("r3", at(`3`, 1500)) // a clock that went back
	execSQL(t, db, `UPDATE log_segments SET committed_at = now() - first_version * interval '1 minute'`)
	execSQL(t, db, `UPDATE runs SET started_at = now() - ordinal * interval '1 hour', ended_at = now() - ordinal * interval '1 hour'`)
	c.wantState(`3`)
	if got := c.runIDs(); !slices.Equal(got, []string{"r1", "r2", "r3"}) {
		t.Errorf("runs %q", got)
	}
	version := uint64(0)
	for _, e := range c.log() {
		if version++; e.GetVersion() != version {
			t.Fatalf("version %d, want %d", e.GetVersion(), version)
		}
	}
	// Nor does an equal timestamp hide a conflict.
	_, _, err := sides[1].tryStart("r4", withExpectedVersion(version-1))
	wantReason(t, err, codes.Aborted, "VERSION_MISMATCH")
	c.start("r4", withExpectedVersion(version))
	c.append(runStarted("t1", "r4"), at(`4`, 2000))
	_, err = appendBatch(t.Context(), c.client, c.run, 1, at(`5`, 2000))
	wantReason(t, err, codes.AlreadyExists, "OFFSET_MISMATCH")
	c.wantState(`4`)
	c.stillWorks()
}

// While a run is active, no other server gets events of another run onto the thread.
func TestRunsOfTwoServersNeverInterleave(t *testing.T) {
	t.Parallel()
	sides := twoServers(t)
	sides[0].open("r1", textStart("m1"))
	_, err := appendBatch(t.Context(), sides[1].client, handle("t1", "r2", 0), 0, runStarted("t1", "r2"))
	if meta := wantReason(t, err, codes.FailedPrecondition, "RUN_ACTIVE"); meta["active_run"] != "r1" {
		t.Errorf("metadata %v", meta)
	}
	sides[0].append(textDelta("m1", "x"), textEnd("m1"), runFinished("t1", "r1"))
	must(appendBatch(t.Context(), sides[1].client, handle("t1", "r2", 0), 0, runStarted("t1", "r2"), runFinished("t1", "r2")))(t)
	wantOneAtATime(t, sides[0])
	sides[0].stillWorks()
}

// A runner that was silent during a long tool call comes back after another has taken its place: what it sends then is
// refused, and the log stays as it was.
func TestRunnerThatComesBackTooLate(t *testing.T) {
	t.Parallel()
	sides := twoServers(t)
	sides[0].start("r1", func(r *threadsvcv1.StartRunRequest) { r.LeaseTtl = durationpb.New(time.Second) })
	sides[0].append(runStarted("t1", "r1"), callStart("c1"), callEnd("c1"))
	old, offset := sides[0].run, sides[0].offset
	start, input := sides[1].start("r2", withPolicy(wait), withUnanswered(repair))
	if !slices.Equal(start.GetRepairedToolCalls(), []string{"c1"}) || len(input.Messages) != 2 {
		t.Errorf("repaired %v, messages %v", start.GetRepairedToolCalls(), outline(input.Messages))
	}
	sides[1].append(append([]string{runStarted("t1", "r2")}, text("m2", "anew")...)...)
	before := sides[0].log()
	for _, side := range sides {
		for _, events := range [][]string{{callResult("x", "c1", "done"), runFinished("t1", "r1")}, nil, {stateSnapshot(`{"zombie":1}`)}} {
			_, err := appendBatch(t.Context(), side.client, old, offset, events...)
			if meta := wantReason(t, err, codes.FailedPrecondition, "RUN_CLOSED"); meta["status"] != "TRUNCATED" {
				t.Errorf("metadata %v", meta)
			}
		}
	}
	after := sides[1].log()
	if len(after) != len(before) {
		t.Fatalf("%d entries, before there were %d", len(after), len(before))
	}
	for i := range before {
		if string(before[i].GetPayload()) != string(after[i].GetPayload()) {
			t.Errorf("version %d changed: %s, and %s", i+1, before[i].GetPayload(), after[i].GetPayload())
		}
	}
	sides[1].append(runFinished("t1", "r2"))
	sides[0].stillWorks()
}

// A client that dies takes nothing with it: after the time of its lease the next run gets the thread.
func TestRunOfADeadClient(t *testing.T) {
	t.Parallel()
	n := startNode(t, openStore(t, storetest.Database(t)), service.Config{ReapInterval: -1})
	doomed := connection(t, n.address)
	dying := converse(t, threadsvcv1.NewThreadServiceClient(doomed), "t1")
	start, _ := dying.start("r1", func(r *threadsvcv1.StartRunRequest) { r.LeaseTtl = durationpb.New(time.Second) })
	p := dying.produce()
	p.send(0, runStarted("t1", "r1"), textStart("m"), textDelta("m", "par"))
	if _, err := p.ack(); err != nil {
		t.Fatal(err)
	}
	if err := doomed.Close(); err != nil {
		t.Fatal(err)
	}
	c := converse(t, dial(t, n.address), "t1")
	next, _ := c.start("r2", withPolicy(wait))
	if next.GetLease().GetExpiresAt().AsTime().Before(start.GetLease().GetExpiresAt().AsTime()) {
		t.Errorf("the lease ends at %v, the dead one's at %v", next.GetLease().GetExpiresAt().AsTime(), start.GetLease().GetExpiresAt().AsTime())
	}
	c.wantStatus("r1", threadsvcv1.RunStatus_RUN_STATUS_TRUNCATED)
	c.wantMessages("assistant m")
	if marks := c.marks(); !slices.Equal(marks, []string{"RUN_TRUNCATED LEASE_EXPIRED"}) {
		t.Errorf("marks %q", marks)
	}
	c.append(runStarted("t1", "r2"), runFinished("t1", "r2"))
	c.stillWorks()
}

// A thread that is erased while a run streams stays erased, whichever server the runner goes on to; the token of before is
// none of a thread made anew.
func TestErasedThreadDoesNotComeBack(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	sides := [2]*conversation{}
	for i := range sides {
		sides[i] = converse(t, serveDatabase(t, url, reaping()), "t1")
	}
	db := connect(t, url)
	sides[0].open("r1", textStart("m"), stateSnapshot(`{"secret":"canary"}`), event("FROM_THE_FUTURE"))
	run := sides[0].run
	told := make(chan error, 1)
	started := make(chan struct{})
	go func() { told <- sides[0].keepAppending(8, func() { close(started) }) }()
	<-started
	must(sides[1].client.DeleteThread(t.Context(), &threadsvcv1.DeleteThreadRequest{Thread: threadName("t1")}))(t)
	if err := <-told; err == nil {
		t.Error("the producer was told nothing")
	}
	for _, side := range sides {
		for _, offset := range []uint64{0, 4, 9} {
			_, err := appendBatch(t.Context(), side.client, run, offset, textDelta("m", "late"))
			wantReason(t, err, codes.NotFound, "RUN_NOT_FOUND")
		}
		_, err := side.tryEnd("r1", "")
		wantReason(t, err, codes.NotFound, "THREAD_NOT_FOUND")
	}
	for _, table := range []string{"threads", "runs", "log_segments", "contents", "folds", "message_blocks", "states", "state_patches", "warnings"} {
		var rows int
		if err := db.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&rows); err != nil || rows > 0 {
			t.Errorf("%d rows left in %s (%v)", rows, table, err)
		}
	}
	created := sides[1].recreate().GetVersion()
	start, _ := sides[1].start("r1")
	if start.GetVersion() != created+1 || start.GetLease().GetFencingToken() == run.GetFencingToken() {
		t.Errorf("made anew: %v, the old token was %d", start, run.GetFencingToken())
	}
	for _, side := range sides {
		_, err := appendBatch(t.Context(), side.client, run, 0, runStarted("t1", "r1"))
		wantReason(t, err, codes.FailedPrecondition, "LEASE_LOST")
	}
	sides[1].append(runStarted("t1", "r1"), runFinished("t1", "r1"))
	sides[0].stillWorks()
}

// callsOfStore counts the calls of a store that read a thread.
type callsOfStore struct {
	store.Store
	reads, commits, threads atomic.Int64
}

func (s *callsOfStore) Load(ctx context.Context, key store.Key) (*store.Loaded, error) {
	s.reads.Add(1)
	return s.Store.Load(ctx, key)
}

func (s *callsOfStore) Log(ctx context.Context, key store.Key, from uint64, maxBytes int) ([]store.Segment, error) {
	s.reads.Add(1)
	return s.Store.Log(ctx, key, from, maxBytes)
}

func (s *callsOfStore) Commit(ctx context.Context, commits []*store.Commit) []store.Result {
	s.commits.Add(1)
	s.threads.Add(int64(len(commits)))
	return s.Store.Commit(ctx, commits)
}

// An append to a thread with a long history reads nothing of it, and holds up no other thread.
func TestAppendsDoNotDependOnTheHistory(t *testing.T) {
	t.Parallel()
	counted := &callsOfStore{Store: openStore(t, storetest.Database(t))}
	client := dial(t, startNode(t, counted, service.Config{ReapInterval: -1, MergeRate: -1}).address)
	took := map[int]time.Duration{}
	for _, history := range []int{0, 50_000} {
		c := converse(t, client, fmt.Sprint("t", history))
		c.open("r1", textStart("m"))
		events := slices.Repeat([]string{textDelta("m", "x")}, 1000)
		for range history / len(events) {
			c.append(events...)
		}
		before, started := counted.reads.Load(), time.Now()
		for range 20 {
			c.append(textDelta("m", "y"))
		}
		took[history] = time.Since(started) / 20
		if reads := counted.reads.Load() - before; reads > 0 {
			t.Errorf("20 appends after %d events read the thread %d times", history, reads)
		}
	}
	t.Logf("an append takes %v on a new thread and %v after 50,000 events", took[0], took[50_000])
}

// A thread whose row somebody else has locked holds up its own appends, and no reads; the other threads of the tenant go on.
func TestLockedThreadHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	c, db := ownDatabase(t, service.Config{ReapInterval: -1})
	locked := converse(t, c.client, "locked")
	locked.open("r1", textStart("m"))
	var others []*conversation
	for i := range 50 {
		others = append(others, converse(t, c.client, fmt.Sprint("t", i)))
		others[i].open("r1", textStart("m"))
	}
	tx := must(db.Begin(t.Context()))(t)
	if _, err := tx.Exec(t.Context(), `SELECT 1 FROM threads WHERE thread_id = 'locked' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error, 1)
	go func() {
		_, err := locked.tryAppend(textDelta("m", "x"))
		waiting <- err
	}()
	time.Sleep(20 * time.Millisecond)
	for _, other := range others {
		other.append(textDelta("m", "x"), textEnd("m"), runFinished(other.thread, "r1"))
	}
	locked.wantMessages("assistant m")
	select {
	case err := <-waiting:
		t.Errorf("the append to the locked thread did not wait: %v", err)
	default:
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; err != nil {
		t.Errorf("the append to the locked thread: %v", err)
	}
	locked.stillWorks()
}

// What an operator changes about a thread while a run goes on leaves the run its lease.
func TestOperatorsChangeLeavesTheRunAlone(t *testing.T) {
	t.Parallel()
	sides := twoServers(t)
	sides[0].open("r1", textStart("m"))
	for i := range 5 {
		patch := fmt.Sprintf(`{"note":"seen by an operator %d times"}`, i+1)
		must(sides[1].client.UpdateThread(t.Context(), &threadsvcv1.UpdateThreadRequest{Thread: threadName("t1"), MetadataPatch: []byte(patch)}))(t)
		sides[0].append(textDelta("m", "x"))
	}
	sides[0].append(textEnd("m"), runFinished("t1", "r1"))
	if marks := sides[0].marks(); len(marks) > 0 {
		t.Errorf("marks %q", marks)
	}
	sides[1].stillWorks()
}
