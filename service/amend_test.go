package service_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"pgregory.net/rapid"

	"github.com/threadsvc/threadsvc/agui/aguitest"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
)

type amendOption func(*threadsvcv1.AmendThreadRequest)

func note(id string) amendOption {
	return func(r *threadsvcv1.AmendThreadRequest) {
		r.Messages = append(r.Messages, []byte(userMessage(id, "a note")))
	}
}

func fix(operations string) amendOption {
	return func(r *threadsvcv1.AmendThreadRequest) { r.StatePatch = []byte(operations) }
}

func atVersion(version uint64) amendOption {
	return func(r *threadsvcv1.AmendThreadRequest) { r.ExpectedVersion = &version }
}

func (c *conversation) tryAmend(id string, options ...amendOption) (*threadsvcv1.AmendThreadResponse, error) {
	req := &threadsvcv1.AmendThreadRequest{Thread: threadName(c.thread), AmendmentId: id}
	for _, option := range options {
		option(req)
	}
	return c.client.AmendThread(c.t.Context(), req)
}

func (c *conversation) amend(id string, options ...amendOption) *threadsvcv1.AmendThreadResponse {
	c.t.Helper()
	return must(c.tryAmend(id, options...))(c.t)
}

// amendments are the ids of the amendments in the log; each is an input without a run.
func (c *conversation) amendments() (ids []string) {
	c.t.Helper()
	for _, e := range c.log() {
		var input struct{ AmendmentID string }
		if err := json.Unmarshal(e.GetPayload(), &input); err != nil {
			c.t.Fatal(err)
		}
		if input.AmendmentID == "" {
			continue
		}
		if e.GetKind() != threadsvcv1.EntryKind_ENTRY_KIND_INPUT || e.GetRunId() != "" || e.GetOffset() != 0 {
			c.t.Errorf("the amendment is %v", e)
		}
		ids = append(ids, input.AmendmentID)
	}
	return ids
}

// checkWhole verifies the thread, exports it, imports it elsewhere, and compares the two.
func (h *historian) checkWhole() {
	h.t.Helper()
	db := openStore(h.t, h.url)
	defer db.Close()
	if findings := verify(h.t, db, store.KeyOf("test", h.thread)); len(findings) > 0 {
		h.t.Errorf("%v", findings)
	}
	file := export(h.t, h.history, threadName(h.thread))
	other := newHistorian(h.t, service.Config{})
	must(importFile(h.t.Context(), other.history, threadName(h.thread), file))(h.t)
	if again := export(h.t, other.history, threadName(h.thread)); !bytes.Equal(file, again) {
		h.t.Errorf("%d bytes were exported, and then %d others", len(file), len(again))
	}
	elsewhere := converse(h.t, other.client, h.thread)
	if one, two := fmt.Sprint(h.log(), h.ledgers(), string(h.context().text)), fmt.Sprint(elsewhere.log(), elsewhere.ledgers(), string(elsewhere.context().text)); one != two {
		h.t.Errorf("the thread was\n%s\nand is\n%s", one, two)
	}
}

// An operator's note during a run: the run keeps its lease and goes on in the midst of what it has opened; its acks count
// the note, its offsets do not; all that reads the log has it in its place.
func TestNoteDuringARun(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{CheckpointBytes: 1 << 10})
	h.record("r0", text("m0", "before")...)
	reader := h.follow(1)
	h.start("r1")
	h.look()
	sent := []string{runStarted("t1", "r1"), textStart("m"), callStart("c1"), textDelta("m", "a"), callArgs("c1", "{"), textDelta("m", "b"),
		callArgs("c1", "}"), textEnd("m"), callEnd("c1"), callResult("x", "c1", "done"), runFinished("t1", "r1")}
	p := h.produce()
	notes := uint64(0)
	first := h.log()
	for i, e := range sent {
		p.send(uint64(i), e)
		progress, err := p.ack()
		if want := uint64(len(first)+i+1) + notes; err != nil || progress.GetNextOffset() != uint64(i)+1 || progress.GetVersion() != want {
			t.Fatalf("event %d: %v, %v %s; want version %d", i, progress, err, detailsOf(err), want)
		}
		h.look()
		if i%3 != 0 {
			continue
		}
		resp := h.amend(fmt.Sprint("a", i), note(fmt.Sprint("n", i)))
		if notes++; resp.GetVersion() != progress.GetVersion()+1 || resp.GetRepeatedRequest() {
			t.Errorf("note %d: %v after version %d", i, resp, progress.GetVersion())
		}
		h.look()
	}
	p.end()
	h.wantStatus("r1", threadsvcv1.RunStatus_RUN_STATUS_FINISHED)
	h.wantMessages("assistant m0", "user n0", "assistant m", "assistant m-c1", "tool x", "user n3", "user n6", "user n9")
	if got := h.context().Messages[2].Content; got != "ab" {
		t.Errorf("content %q", got)
	}
	if got := h.events("r1"); !slices.Equal(got, sent) {
		t.Errorf("the log has %q", got)
	}
	if got := h.amendments(); !slices.Equal(got, []string{"a0", "a3", "a6", "a9"}) {
		t.Errorf("amendments %q", got)
	}
	h.offset = 0 // what was sent may be sent again
	if progress := h.append(sent...); progress.GetNextOffset() != uint64(len(sent)) {
		t.Errorf("sent again: %v", progress)
	}
	log := h.log()
	h.until(reader, uint64(len(log)))
	if err := reader.same(log); err != nil {
		t.Error(err)
	}
	h.checkPast("afterwards")
	h.settle() // the run's segments are merged around the notes
	h.checkPast("merged")
	h.checkWhole()
	h.stillWorks()
}

// The state is put right while the run patches it: both apply in their order, and history tells them apart.
func TestStateFixWhileTheRunPatches(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{FoldBytes: 1})
	h.open("r1", stateSnapshot(`{"n":0,"log":[]}`))
	for i := range 5 {
		h.each(stateDelta(operations(replace("/n", fmt.Sprint(2*i+1)), add("/log/-", fmt.Sprint(i)))))
		h.amend(fmt.Sprint("a", i), fix(operations(replace("/n", fmt.Sprint(2*i+2)))))
		h.look()
	}
	h.each(runFinished("t1", "r1"))
	h.amend("last", fix(operations(add("/by", `"operator"`))), note("n"))
	h.look()
	h.wantState(`{"n":10,"log":[0,1,2,3,4],"by":"operator"}`)
	h.checkPast("afterwards")

	resp := must(h.history.ListStateChanges(t.Context(), &threadsvcv1.ListStateChangesRequest{Thread: threadName("t1"), Pointer: "/n"}))(t)
	for i, c := range resp.GetChanges()[:10] {
		want := &threadsvcv1.EntrySource{Kind: threadsvcv1.EntryKind_ENTRY_KIND_INPUT}
		if i%2 == 1 {
			want = &threadsvcv1.EntrySource{Kind: threadsvcv1.EntryKind_ENTRY_KIND_EVENT, RunId: "r1", EventType: "STATE_DELTA", Offset: uint64(6 - i/2)}
		}
		want.Version, want.CommitTime = c.GetSource().GetVersion(), c.GetSource().GetCommitTime()
		if c.GetSource().String() != want.String() || textOf(c.GetAfter()) != fmt.Sprint(10-i) {
			t.Errorf("change %d: %v; want %v", i, c, want)
		}
	}
	blame := must(h.history.BlameState(t.Context(), &threadsvcv1.BlameStateRequest{Thread: threadName("t1"), Pointer: "/by"}))(t)
	if source := blame.GetLeaves()[0].GetSource(); source.GetRunId() != "" || source.GetVersion() != uint64(len(h.log())) || source.GetEventType() != "" {
		t.Errorf("blamed %v", source)
	}
	h.settle()
	h.checkWhole()
}

// An amendment has no part in the lease: it does not renew it, nor revive one that has ended.
func TestAmendmentLeavesTheLeaseAlone(t *testing.T) {
	t.Parallel()
	c, db := ownDatabase(t, service.Config{ReapInterval: -1})
	lease := func() string {
		thread := must(c.client.GetThread(t.Context(), &threadsvcv1.GetThreadRequest{Thread: threadName("t1")}))(t).GetThread()
		return fmt.Sprint(thread.GetActiveRunId(), " ", thread.GetLeaseExpireTime().AsTime())
	}
	c.open("r1")
	execSQL(t, db, `UPDATE threads SET lease_expires_at = now() + interval '8 seconds'`) // less than half is left
	before := lease()
	c.amend("a1", note("n1"))
	if after := lease(); after != before {
		t.Errorf("the lease is %s, and was %s", after, before)
	}
	c.append(textStart("m"))
	if after := lease(); after == before {
		t.Error("an append did not renew the lease")
	}
	expireLeases(t, db)
	before = lease()
	c.amend("a2", note("n2"))
	if after := lease(); after != before {
		t.Errorf("the lease that had ended is %s, and was %s", after, before)
	}
	c.start("r2")
	c.wantStatus("r1", threadsvcv1.RunStatus_RUN_STATUS_TRUNCATED)
	c.stillWorks()
}

// The agent's own snapshots replace what was amended, as they do all else.
func TestSnapshotAfterAnAmendment(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	c.open("r1", stateSnapshot(`{"a":1}`))
	c.amend("a1", note("n1"), note("n2"), fix(operations(add("/fix", "1"))))
	c.wantState(`{"a":1,"fix":1}`)
	c.append(messagesSnapshot(userMessage("n2", "known to the agent"), assistantMessage("m", "x")), stateSnapshot(`{"a":2}`), runFinished("t1", "r1"))
	c.wantMessages("user n2", "assistant m")
	c.wantState(`{"a":2}`)
	c.stillWorks()
}

func TestAmendmentThatIsRepeated(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	c.open("r1")
	first := c.amend("a1", note("n"), fix(operations(add("/x", "1"))))
	c.append(textStart("m"))
	again := c.amend("a1", note("n"), fix(operations(add("/x", "1"))), atVersion(1)) // the version was the first request's
	if again.GetVersion() != first.GetVersion() || !again.GetRepeatedRequest() || first.GetRepeatedRequest() {
		t.Errorf("%v, and then %v", first, again)
	}
	for _, other := range [][]amendOption{{note("n")}, {note("n2"), fix(operations(add("/x", "1")))}, {note("n"), fix(operations(add("/x", "2")))}} {
		_, err := c.tryAmend("a1", other...)
		meta := wantReason(t, err, codes.AlreadyExists, "AMENDMENT_EXISTS")
		if checkError(t, err); meta["version"] != fmt.Sprint(first.GetVersion()) {
			t.Errorf("metadata %v", meta)
		}
	}
	var versions [16]uint64
	var all sync.WaitGroup
	for i := range versions { // at once, one is made
		all.Go(func() {
			resp, err := c.tryAmend("a2", note("n2"))
			if err != nil {
				t.Error(err, detailsOf(err))
			}
			versions[i] = resp.GetVersion()
		})
	}
	all.Wait()
	if slices.Max(versions[:]) != slices.Min(versions[:]) {
		t.Errorf("versions %v", versions)
	}
	if got := c.amendments(); !slices.Equal(got, []string{"a1", "a2"}) {
		t.Errorf("amendments %q", got)
	}
	c.stillWorks()
}

// What is refused is refused whole, and the run goes on: its stream is told nothing of it.
func TestAmendmentsThatAreRefused(t *testing.T) {
	t.Parallel()
	c := converse(t, newServer(t, smallLimits()), "t1")
	c.open("r1", stateSnapshot(`{"n":1}`), textStart("m"))
	version := uint64(len(c.log()))
	for name, refused := range map[string]struct {
		id      string
		options []amendOption
		code    codes.Code
		reason  string
	}{
		"no id":         {"", []amendOption{note("n")}, codes.InvalidArgument, "INVALID_REQUEST"},
		"id with NUL":   {"a\x00", []amendOption{note("n")}, codes.InvalidArgument, "INVALID_REQUEST"},
		"nothing":       {"a", nil, codes.InvalidArgument, "INVALID_REQUEST"},
		"long reason":   {"a", []amendOption{note("n"), because(strings.Repeat("x", 1025))}, codes.InvalidArgument, "INVALID_REQUEST"},
		"stale version": {"a", []amendOption{note("n"), atVersion(version - 1)}, codes.Aborted, "VERSION_MISMATCH"},
		"patch":         {"a", []amendOption{note("n"), fix(operations(add("/a", "1"), replace("/absent", "1")))}, codes.InvalidArgument, "INVALID_INPUT"},
		"no patch":      {"a", []amendOption{note("n"), fix(`{`)}, codes.InvalidArgument, "INVALID_INPUT"},
		"message": {"a", []amendOption{func(r *threadsvcv1.AmendThreadRequest) {
			r.Messages = [][]byte{[]byte(`{"id":5,"role":"user","content":"x"}`)}
		}}, codes.InvalidArgument, "INVALID_INPUT"},
		"two in one": {"a", []amendOption{func(r *threadsvcv1.AmendThreadRequest) {
			r.Messages = [][]byte{[]byte(userMessage("n", "x") + "," + userMessage("o", "x"))}
		}}, codes.InvalidArgument, "INVALID_INPUT"},
		"context too large": {"a", []amendOption{func(r *threadsvcv1.AmendThreadRequest) {
			r.Messages = [][]byte{[]byte(userMessage("n", strings.Repeat("x", 2<<20)))}
		}}, codes.ResourceExhausted, "LIMIT_EXCEEDED"},
	} {
		_, err := c.tryAmend(refused.id, refused.options...)
		if reason, _ := reasonOf(err); reason != refused.reason {
			t.Errorf("%s: %v %s, want %s", name, err, detailsOf(err), refused.reason)
			continue
		}
		wantReason(t, err, refused.code, refused.reason)
		checkError(t, err)
	}
	if got := uint64(len(c.log())); got != version {
		t.Errorf("version %d, want %d", got, version)
	}
	c.wantState(`{"n":1}`)
	c.append(textDelta("m", "on"), textEnd("m"), runFinished("t1", "r1"))
	c.wantMessages("assistant m")

	absent := converse(t, c.client, "absent")
	_, err := absent.tryAmend("a", note("n"))
	wantReason(t, err, codes.NotFound, "THREAD_NOT_FOUND")
	must(c.client.DeleteThread(t.Context(), &threadsvcv1.DeleteThreadRequest{Thread: threadName("t1")}))(t)
	_, err = c.tryAmend("a", note("n"))
	wantReason(t, err, codes.NotFound, "THREAD_NOT_FOUND")
	_, err = absent.tryAmend("a", note("n"))
	wantReason(t, err, codes.NotFound, "THREAD_NOT_FOUND")
}

func because(reason string) amendOption {
	return func(r *threadsvcv1.AmendThreadRequest) { r.Reason = reason }
}

// A thread without a run: right after it was made, with an interrupt open, with calls that wait for a result.
func TestAmendmentsBetweenRuns(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{})
	must(h.client.CreateThread(t.Context(), &threadsvcv1.CreateThreadRequest{Thread: threadName("t1"), State: []byte(`{"a":1}`)}))(t)
	h.look()
	amend := func(id string, options ...amendOption) {
		t.Helper()
		h.amend(id, options...)
		h.look()
	}
	amend("a1", note("n1"), because("it was\u0000 asked for"))
	amend("a2", fix(operations(add("/b", "2"))))
	if got := string(h.log()[1].GetPayload()); !strings.Contains(got, `"reason":"it was`) {
		t.Errorf("the log has %s", got)
	}
	stripped := h.amend("a3", func(r *threadsvcv1.AmendThreadRequest) {
		r.Messages = [][]byte{[]byte(`{"id":"n3","role":"user","content":"x","extra":1}`)}
	})
	if got := codesOf(stripped.GetWarnings()); !slices.Equal(got, []string{"PROPERTY_UNKNOWN"}) {
		t.Errorf("warnings %q", got)
	}
	h.record("r1", callStart("c1"), callEnd("c1"))
	_, _, err := h.tryStart("r2")
	wantReason(t, err, codes.FailedPrecondition, "TOOL_CALLS_UNANSWERED")
	amend("a4", func(r *threadsvcv1.AmendThreadRequest) {
		r.Messages = [][]byte{[]byte(toolMessage("x", "c1", "the operator's answer"))}
	})
	h.start("r2")
	h.append(runStarted("t1", "r2"), callStart("c2"), callEnd("c2"), interrupted("t1", "r2", "i1:c2"))
	amend("a5", note("n5"))
	_, _, err = h.tryStart("r3")
	wantReason(t, err, codes.FailedPrecondition, "INTERRUPTS_OPEN")
	h.start("r3", withResume(`[{"interruptId":"i1","status":"cancelled"}]`), withUnanswered(allow))
	h.append(runStarted("t1", "r3"), runFinished("t1", "r3"))
	h.wantMessages("user n1", "user n3", "assistant m-c1", "tool x", "assistant m-c2", "user n5")
	h.wantState(`{"a":1,"b":2}`)
	h.checkPast("afterwards")
	h.rewind(versionMoment(2)) // before the second: the first of them stays, and the others are undone, but known
	h.wantState(`{"a":1}`)
	h.wantMessages("user n1")
	if again := h.amend("a2", fix(operations(add("/b", "2")))); !again.GetRepeatedRequest() || again.GetVersion() != 3 {
		t.Errorf("%v", again)
	}
	h.settle()
	h.checkWhole()
	h.stillWorks()
}

// Whatever producers send, and whenever threads are amended: nothing is found, and an export is imported as the same.
func TestNothingIsFoundInAmendedThreads(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{CheckpointBytes: 1 << 10, FoldBytes: 4 << 10})
	other := newHistorian(t, service.Config{})
	db := openStore(t, h.url)
	t.Cleanup(db.Close)
	var count atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		id := fmt.Sprint("random", count.Add(1))
		c := converse(t, h.client, id)
		amended := 0
		for i, step := range aguitest.Stream(rt, aguitest.Options{ThreadID: id, Runs: 3, Events: 12, Faults: rapid.SampledFrom([]int{0, 0, 3}).Draw(rt, "faults")}) {
			c.step(rt, step)
			if rapid.IntRange(0, 3).Draw(rt, "amend") > 0 {
				continue
			}
			patch := rapid.SampledFrom([]string{``, `[{"op":"add","path":"/fix","value":1.10}]`, `[{"op":"remove","path":"/fix"}]`}).Draw(rt, "patch")
			if _, err := c.tryAmend(fmt.Sprint("a", i), note(fmt.Sprint("note", i)), fix(patch)); err == nil {
				amended++
			} else if reason, _ := reasonOf(err); reason != "INVALID_INPUT" && reason != "THREAD_NOT_FOUND" {
				rt.Fatalf("%v %s", err, detailsOf(err))
			}
		}
		if c.run == nil || len(c.log()) == 0 {
			return
		}
		if findings := verify(t, db, store.KeyOf("test", id)); len(findings) > 0 {
			rt.Fatalf("%s: %v", id, findings)
		}
		if got := len(c.amendments()); got != amended {
			rt.Fatalf("%d amendments, want %d", got, amended)
		}
		file := export(t, h.history, threadName(id))
		must(importFile(t.Context(), other.history, threadName(id), file))(t)
		if again := export(t, other.history, threadName(id)); !bytes.Equal(file, again) {
			rt.Fatalf("%s is exported otherwise", id)
		}
	})
	h.settle()
	for n := range count.Load() {
		id := fmt.Sprint("random", n+1)
		if h.number(`SELECT count(*) FROM threads WHERE thread_key = $1`, keyOf(id)) == 0 {
			continue
		}
		if findings := verify(t, db, store.KeyOf("test", id)); len(findings) > 0 {
			t.Errorf("%s, merged: %v", id, findings)
		}
	}
}
