package service_test

import (
	"bytes"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
)

func (h *historian) rewind(to *threadsvcv1.Moment) *threadsvcv1.RewindThreadResponse {
	h.t.Helper()
	return must(h.history.RewindThread(h.t.Context(), &threadsvcv1.RewindThreadRequest{Thread: threadName(h.thread), To: to}))(h.t)
}

func (h *historian) fork(at *threadsvcv1.Moment, id string) *threadsvcv1.Thread {
	h.t.Helper()
	req := &threadsvcv1.ForkThreadRequest{Source: threadName(h.thread), Moment: at, ThreadId: id}
	return must(h.history.ForkThread(h.t.Context(), req))(h.t).GetThread()
}

// State that was set when the thread was created is in the log as any other, and a rewind finds it.
func TestRewindKeepsTheStateThatTheThreadWasCreatedWith(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{})
	must(h.client.CreateThread(t.Context(), &threadsvcv1.CreateThreadRequest{Thread: threadName("t1"), State: []byte(`{"tenant":"x"}`)}))(t)
	h.record("r1", stateDelta(`[{"op":"add","path":"/a","value":1}]`))
	h.record("r2", stateDelta(`[{"op":"replace","path":"/a","value":2}]`))
	h.rewind(runMoment("r1"))
	h.wantState(`{"tenant":"x","a":1}`)
	h.record("r3", stateDelta(`[{"op":"add","path":"/b","value":1}]`))
	h.wantState(`{"tenant":"x","a":1,"b":1}`)
	h.rewind(versionMoment(1))
	h.wantState(`{"tenant":"x"}`)
	h.rewind(versionMoment(0))
	h.wantState(`{}`)
}

// After a rewind the context is that of the moment, on this server and on another; what was undone stays readable and is
// named; the history goes through it; and nothing is found by verifying.
func TestRewindToAnyMoment(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{CheckpointBytes: 2 << 10})
	h.converseAtLength()
	db := openStore(t, h.url)
	t.Cleanup(db.Close)
	was := slices.Clone(h.was)
	for i := len(was) - 2; i >= 0; i -= 13 {
		before := h.number(`SELECT version FROM threads`)
		resp := h.rewind(versionMoment(was[i].info.GetVersion()))
		if resp.GetToVersion() != was[i].info.GetVersion() || resp.GetVersion() != uint64(before)+1 {
			t.Errorf("%v from %d", resp, before)
		}
		h.look()
		now := h.was[len(h.was)-1]
		if now.state != was[i].state || !slices.EqualFunc(now.messages, was[i].messages, bytes.Equal) {
			t.Errorf("rewound to version %d: state %s, was %s", was[i].info.GetVersion(), now.state, was[i].state)
		}
		thread := must(h.client.GetThread(t.Context(), &threadsvcv1.GetThreadRequest{Thread: threadName("t1")}))(t).GetThread()
		last := thread.GetUndone()[len(thread.GetUndone())-1]
		if last.GetFirstVersion() != was[i].info.GetVersion()+1 || last.GetLastVersion() != uint64(before) {
			t.Errorf("undone %v", thread.GetUndone())
		}
		if findings := verify(t, db, store.KeyOf("test", "t1")); len(findings) > 0 {
			t.Fatalf("rewound to version %d: %v", was[i].info.GetVersion(), findings)
		}
	}
	h.checkPast("rewound")
	h.conversation.client = serveDatabase(t, h.url, service.Config{MergeRate: -1})
	h.checkPast("rewound, on another server")
	h.stillWorks()
	file := export(t, h.history, threadName("t1"))
	must(importFile(t.Context(), h.history, &threadsvcv1.ThreadName{Tenant: "copy", ThreadId: "t1"}, file))(t)
	if findings := verify(t, db, store.KeyOf("copy", "t1")); len(findings) > 0 {
		t.Errorf("exported and imported: %v", findings)
	}
}

func TestChangesGoThroughRewinds(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{})
	h.record("r1", stateDelta(`[{"op":"add","path":"/a","value":1}]`))
	h.record("r2", stateDelta(`[{"op":"replace","path":"/a","value":2},{"op":"add","path":"/b","value":2}]`))
	h.rewind(runMoment("r1"))
	want := []string{"9 replace0 /a: 2 -> 1", "7 replace0 /a: 1 -> 2", "3 add0 /a: none -> 1"}
	if got := h.changes(&threadsvcv1.ListStateChangesRequest{Pointer: "/a"}); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := h.changes(&threadsvcv1.ListStateChangesRequest{Pointer: "/b"}); len(got) != 2 || got[0] != "9 replace0 /b: 2 -> none" {
		t.Errorf("%q", got)
	}
}

// What is open at the moment is open again, and what runs after a rewind is as ever.
func TestRewindOpensWhatWasOpen(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{})
	h.open("r1", callStart("c1"), callEnd("c1"), interrupted("t1", "r1", "i1:c1"))
	answer := withResume(`[{"interruptId":"i1","status":"resolved","payload":true}]`)
	h.start("r2", answer)
	h.append(runStarted("t1", "r2"), callResult("x", "c1", "done"), runFinished("t1", "r2"))
	old := h.run
	h.rewind(runMoment("r1"))
	info, _ := h.info()
	if len(info.GetOpenInterrupts()) != 1 || len(info.GetPendingToolCalls()) != 1 {
		t.Errorf("open are %v", info)
	}
	_, _, err := h.tryStart("r3")
	wantReason(t, err, codes.FailedPrecondition, "INTERRUPTS_OPEN")
	_, err = appendBatch(t.Context(), h.client, old, 3, runStarted("t1", "r2b"))
	wantReason(t, err, codes.FailedPrecondition, "RUN_CLOSED")
	h.start("r4", answer)
	h.append(runStarted("t1", "r4"), callResult("y", "c1", "done again"), runFinished("t1", "r4"))
	h.wantMessages("assistant m-c1", "tool y")
}

func TestRewindIsRefused(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{})
	rewind := func(req *threadsvcv1.RewindThreadRequest) error {
		_, err := h.history.RewindThread(t.Context(), req)
		return err
	}
	name := threadName("t1")
	wantReason(t, rewind(&threadsvcv1.RewindThreadRequest{Thread: name, To: versionMoment(0)}), codes.NotFound, "THREAD_NOT_FOUND")
	h.open("r1", stateSnapshot(`{"a":1}`))
	wantReason(t, rewind(&threadsvcv1.RewindThreadRequest{Thread: name, To: versionMoment(1)}), codes.FailedPrecondition, "RUN_ACTIVE")
	wantReason(t, rewind(&threadsvcv1.RewindThreadRequest{Thread: name, To: versionMoment(9)}), codes.OutOfRange, "VERSION_NOT_FOUND")
	wantReason(t, rewind(&threadsvcv1.RewindThreadRequest{Thread: name}), codes.InvalidArgument, "INVALID_REQUEST")
	expected := uint64(7)
	meta := wantReason(t, rewind(&threadsvcv1.RewindThreadRequest{Thread: name, To: versionMoment(1), ExpectedVersion: &expected}), codes.Aborted, "VERSION_MISMATCH")
	if meta["version"] != "3" {
		t.Errorf("%v", meta)
	}
	h.append(stateDelta(`[{"op":"replace","path":"/a","value":2}]`)) // it goes on
	expireLeases(t, h.db)
	if err := rewind(&threadsvcv1.RewindThreadRequest{Thread: name, To: versionMoment(3)}); err != nil {
		t.Fatal(err)
	}
	h.wantState(`{"a":1}`)
	h.wantStatus("r1", threadsvcv1.RunStatus_RUN_STATUS_TRUNCATED)
	if got := h.marks(); !slices.Equal(got, []string{"RUN_TRUNCATED LEASE_EXPIRED", "REWOUND "}) {
		t.Errorf("marks %q", got)
	}
	_, err := h.tryAppend(textStart("m"))
	wantReason(t, err, codes.FailedPrecondition, "RUN_CLOSED")
	h.stillWorks()
}

// A fork has nothing in common with its source but what it was: each goes its own way.
func TestForksAreIndependent(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{})
	h.converseAtLength()
	file := export(t, h.history, threadName("t1"))
	for i := 4; i < len(h.was); i += 15 {
		was := h.was[i]
		id := "fork" + string(rune('a'+i%26)) + string(rune('a'+i/26))
		thread := h.fork(versionMoment(was.info.GetVersion()), id)
		origin := thread.GetOrigin()
		if origin.GetThreadId() != "t1" || origin.GetVersion() != was.info.GetVersion() || !bytes.Equal(origin.GetLogHash(), was.info.GetLogHash()) || thread.GetVersion() != 1 {
			t.Errorf("fork %v", thread)
		}
		fork := *h
		fork.conversation = converse(t, h.client, id)
		if _, state := fork.state(nil, ""); state != was.state {
			t.Errorf("the state of the fork is %s, want %s", state, was.state)
		}
		if info, _ := fork.info(); len(info.GetOpenInterrupts()) > 0 {
			fork.start("resume", withResume(`[{"interruptId":"i2","status":"cancelled"}]`), withUnanswered(allow))
			fork.append(runStarted(id, "resume"), runFinished(id, "resume"))
		}
		fork.record("r0", stateSnapshot(`{"fork":true}`)) // ids of the source's runs are free
		fork.wantState(`{"fork":true}`)
	}
	if again := export(t, h.history, threadName("t1")); !bytes.Equal(file, again) {
		t.Error("the source was changed by what its forks did")
	}
	h.record("r-more", stateSnapshot(`{"source":true}`))
	db := openStore(t, h.url)
	t.Cleanup(db.Close)
	for _, name := range must(db.Names(t.Context(), store.Key{}, 100))(t) {
		if findings := verify(t, db, name.Key); len(findings) > 0 {
			t.Errorf("%s: %v", name.ThreadID, findings)
		}
	}
	must(h.client.DeleteThread(t.Context(), &threadsvcv1.DeleteThreadRequest{Thread: threadName("t1")}))(t)
	fork := converse(t, h.client, "forkea")
	fork.wantState(`{"fork":true}`)
	fork.stillWorks()
}

func TestForkIsRefused(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{})
	h.record("r1")
	fork := func(req *threadsvcv1.ForkThreadRequest) error {
		_, err := h.history.ForkThread(t.Context(), req)
		return err
	}
	wantReason(t, fork(&threadsvcv1.ForkThreadRequest{Source: threadName("t1"), ThreadId: "t1"}), codes.AlreadyExists, "THREAD_EXISTS")
	wantReason(t, fork(&threadsvcv1.ForkThreadRequest{Source: threadName("nobody"), ThreadId: "t2"}), codes.NotFound, "THREAD_NOT_FOUND")
	wantReason(t, fork(&threadsvcv1.ForkThreadRequest{Source: threadName("t1")}), codes.InvalidArgument, "INVALID_REQUEST")
	wantReason(t, fork(&threadsvcv1.ForkThreadRequest{Source: threadName("t1"), ThreadId: "t2", Metadata: []byte("[]")}), codes.InvalidArgument, "INVALID_REQUEST")
	wantReason(t, fork(&threadsvcv1.ForkThreadRequest{Source: threadName("t1"), ThreadId: "t2", Moment: versionMoment(99)}), codes.OutOfRange, "VERSION_NOT_FOUND")
	if n := h.number(`SELECT count(*) FROM threads`); n != 1 {
		t.Errorf("there are %d threads", n)
	}
}
