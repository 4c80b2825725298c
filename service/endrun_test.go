package service_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
)

// tryEnd calls EndRun.
func (c *conversation) tryEnd(run, reason string) (*threadsvcv1.EndRunResponse, error) {
	return c.client.EndRun(c.t.Context(), &threadsvcv1.EndRunRequest{Thread: threadName(c.thread), RunId: run, Reason: reason})
}

func (c *conversation) end(run, reason string) *threadsvcv1.EndRunResponse {
	c.t.Helper()
	return must(c.tryEnd(run, reason))(c.t)
}

// lastMark is the payload of the last mark in the log.
func (c *conversation) lastMark() (mark struct{ Type, RunID, Code, Detail string }) {
	c.t.Helper()
	for _, e := range slices.Backward(c.log()) {
		if e.GetKind() == threadsvcv1.EntryKind_ENTRY_KIND_MARK {
			if err := json.Unmarshal(e.GetPayload(), &mark); err != nil {
				c.t.Fatal(err)
			}
			return mark
		}
	}
	c.t.Fatal("no mark")
	return mark
}

func TestActiveRunIsEnded(t *testing.T) {
	t.Parallel()
	sides := twoServers(t)
	sides[0].start("r1", withMessages(userMessage("u1", "hello")))
	sides[0].append(runStarted("t1", "r1"), stateSnapshot(`{"a":1}`), textStart("m1"), textDelta("m1", "par"))
	old, offset := sides[0].run, sides[0].offset

	ended := sides[1].end("r1", "the \"agent\"\x00 hangs")
	if run := ended.GetRun(); run.GetStatus() != threadsvcv1.RunStatus_RUN_STATUS_TRUNCATED || run.GetLastVersion() != ended.GetVersion() || ended.GetVersion() != 6 {
		t.Errorf("ended: %v", ended)
	}
	if mark := sides[0].lastMark(); mark.Type != "RUN_TRUNCATED" || mark.RunID != "r1" || mark.Code != "RUN_ENDED" || mark.Detail != "the \"agent\"\x00 hangs" {
		t.Errorf("mark %+v", mark)
	}
	for i, side := range sides {
		for _, events := range [][]string{{textDelta("m1", "tial")}, nil} {
			_, err := appendBatch(t.Context(), side.client, old, offset, events...)
			if meta := wantReason(t, err, codes.FailedPrecondition, "RUN_CLOSED"); meta["status"] != "TRUNCATED" {
				t.Errorf("server %d: %v", i, meta)
			}
		}
		// What was received before the end may be sent again, as always.
		if p, err := appendBatch(t.Context(), side.client, old, 3, textDelta("m1", "par")); err != nil || p.GetNextOffset() != offset {
			t.Errorf("server %d: sent again: %v, %v", i, p, err)
		}
		if again := side.end("r1", "again"); !proto.Equal(again, ended) {
			t.Errorf("server %d: ended again: %v, want %v", i, again, ended)
		}
	}
	info, input := sides[0].info()
	if !info.GetStateTouchedByIncompleteRun() || string(input.State) != `{"a":1}` || !slices.Equal(outline(input.Messages), []string{"user u1", "assistant m1"}) {
		t.Errorf("touched %v, state %s, messages %v", info.GetStateTouchedByIncompleteRun(), input.State, outline(input.Messages))
	}
	start, _ := sides[0].start("r2")
	if start.GetLease().GetFencingToken() <= old.GetFencingToken() {
		t.Errorf("token %d after %d", start.GetLease().GetFencingToken(), old.GetFencingToken())
	}
	sides[0].append(runStarted("t1", "r2"), runFinished("t1", "r2"))
	sides[1].stillWorks()
}

// keepAppending appends to the run, with so many batches outstanding all the time, until one is refused. It calls began when
// the first is acknowledged.
func (c *conversation) keepAppending(window int, began func()) error {
	stream, err := c.client.AppendEvents(c.t.Context())
	if err != nil {
		return err
	}
	send := func() error {
		c.offset++
		req := &threadsvcv1.AppendEventsRequest{Batch: batch(c.offset-1, textDelta("m", "x"))}
		if c.run != nil {
			req.Run, c.run = c.run, nil
		}
		return stream.Send(req)
	}
	for range window {
		err = errors.Join(err, send())
	}
	for first := true; err == nil; first = false {
		resp, recvErr := stream.Recv()
		if recvErr != nil {
			return recvErr
		}
		if first {
			began()
		}
		if err = status.ErrorProto(resp.GetError()); err == nil {
			err = send()
		}
	}
	return err
}

// A run is closed although its producer, on this server or another, never pauses.
func TestRunOfABusyProducerIsClosed(t *testing.T) {
	t.Parallel()
	announced := func(c *conversation) { c.open("r1", textStart("m")) }
	recorded := func(c *conversation) {
		c.run, c.offset = handle("t1", "r1", 0), 2
		must(appendBatch(c.t.Context(), c.client, c.run, 0, runStarted("t1", "r1"), textStart("m")))(c.t)
	}
	for side, where := range []string{"on its server", "on another"} {
		for name, do := range map[string]struct{ open, closeRun func(c *conversation) }{
			"ended":                {announced, func(c *conversation) { c.end("r1", "") }},
			"taken over":           {announced, func(c *conversation) { c.start("r2", withPolicy(takeOver)) }},
			"recorded, ended":      {recorded, func(c *conversation) { c.end("r1", "") }},
			"recorded, taken over": {recorded, func(c *conversation) { c.start("r2", withPolicy(takeOver)) }},
		} {
			t.Run(name+" "+where, func(t *testing.T) {
				t.Parallel()
				sides := twoServers(t)
				do.open(sides[0])
				run := sides[0].run
				told := make(chan error, 1)
				started := make(chan struct{})
				go func() { told <- sides[0].keepAppending(16, func() { close(started) }) }()
				<-started
				closing := converse(t, sides[side].client, "t1")
				do.closeRun(closing)
				// Another server finds out by a commit that fails, and says so; what is sent again is refused for good.
				if reason, _ := reasonOf(<-told); reason != "RUN_CLOSED" && reason != "LEASE_LOST" && reason != "CONTENTION" {
					t.Errorf("the producer was told %q", reason)
				}
				_, err := appendBatch(t.Context(), sides[0].client, run, 1, textDelta("m", "another"))
				wantReason(t, err, codes.FailedPrecondition, "RUN_CLOSED")
				sides[1].wantStatus("r1", threadsvcv1.RunStatus_RUN_STATUS_TRUNCATED)
				wantOneAtATime(t, sides[1])
				sides[1].stillWorks()
			})
		}
	}
}

// Open interrupts are given up; their run stays as it ended.
func TestOpenInterruptsAreGivenUp(t *testing.T) {
	t.Parallel()
	sides := twoServers(t)
	sides[0].open("r1", callStart("c1"), callEnd("c1"), interrupted("t1", "r1", "i1:c1"))
	old, offset := sides[0].run, sides[0].offset
	_, _, err := sides[1].tryStart("r2")
	wantReason(t, err, codes.FailedPrecondition, "INTERRUPTS_OPEN")
	before := sides[0].wantStatus("r1", threadsvcv1.RunStatus_RUN_STATUS_INTERRUPTED)

	given := sides[1].end("r1", "nobody answers")
	if run := given.GetRun(); !proto.Equal(run, before) || given.GetVersion() != before.GetLastVersion()+1 {
		t.Errorf("given up: %v, want the run %v", given, before)
	}
	if mark := sides[0].lastMark(); mark.Type != "INTERRUPTS_ABANDONED" || mark.RunID != "r1" || mark.Code != "RUN_ENDED" || mark.Detail != "nobody answers" {
		t.Errorf("mark %+v", mark)
	}
	if again := sides[0].end("r1", ""); !proto.Equal(again, given) {
		t.Errorf("again: %v, want %v", again, given)
	}
	_, err = appendBatch(t.Context(), sides[0].client, old, offset, runStarted("t1", "r9"))
	wantReason(t, err, codes.FailedPrecondition, "RUN_CLOSED")
	info, _ := sides[0].info()
	if len(info.GetOpenInterrupts()) > 0 || !slices.Equal(info.GetPendingToolCalls(), []string{"c1"}) {
		t.Errorf("interrupts %s, pending %v", info.GetOpenInterrupts(), info.GetPendingToolCalls())
	}
	_, _, err = sides[0].tryStart("r2", withResume(`[{"interruptId":"i1","status":"cancelled"}]`))
	wantReason(t, err, codes.InvalidArgument, "INTERRUPTS_UNKNOWN")
	start, input := sides[0].start("r2", withUnanswered(repair))
	if !slices.Equal(start.GetRepairedToolCalls(), []string{"c1"}) || len(input.Messages) != 2 {
		t.Errorf("repaired %v, messages %v", start.GetRepairedToolCalls(), outline(input.Messages))
	}
	sides[0].append(runStarted("t1", "r2"), runFinished("t1", "r2"))
	sides[1].stillWorks()
}

// A run recorded as it passes by needs no token, and is ended all the same.
func TestRecordedRunIsEnded(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	c.run = handle("t1", "r1", 0)
	c.append(runStarted("t1", "r1"), runFinished("t1", "r1"), runStarted("t1", "r2"), textStart("m"))
	if ended := c.end("r2", ""); ended.GetRun().GetStatus() != threadsvcv1.RunStatus_RUN_STATUS_TRUNCATED {
		t.Errorf("ended: %v", ended)
	}
	_, err := c.tryAppend(textDelta("m", "x"))
	wantReason(t, err, codes.FailedPrecondition, "RUN_CLOSED")
	c.stillWorks()
}

func TestRunsThatCannotBeEnded(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	_, err := c.tryEnd("r1", "")
	wantReason(t, err, codes.NotFound, "THREAD_NOT_FOUND")
	c.record("r1")
	_, err = c.tryEnd("r2", "")
	wantReason(t, err, codes.NotFound, "RUN_NOT_FOUND")
	for field, req := range map[string]*threadsvcv1.EndRunRequest{
		"thread": {RunId: "r1"},
		"run_id": {Thread: threadName("t1")},
		"reason": {Thread: threadName("t1"), RunId: "r1", Reason: strings.Repeat("x", 1025)},
	} {
		_, err := c.client.EndRun(t.Context(), req)
		if meta := wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST"); meta["field"] != field {
			t.Errorf("field %q, want %q", meta["field"], field)
		}
	}
	// One that is over stays as it is, also when another is active.
	over := c.end("r1", "")
	c.open("r2", textStart("m"))
	if again := c.end("r1", ""); !proto.Equal(again.GetRun(), over.GetRun()) || again.GetRun().GetStatus() != threadsvcv1.RunStatus_RUN_STATUS_FINISHED {
		t.Errorf("ended %v, and again %v", over, again)
	}
	c.append(textDelta("m", "x"))
	if marks := c.marks(); len(marks) > 0 {
		t.Errorf("marks %q", marks)
	}
}

// Many who end one run end it once.
func TestManyEndARunAtOnce(t *testing.T) {
	t.Parallel()
	sides := twoServers(t)
	sides[0].open("r1", textStart("m"))
	var callers sync.WaitGroup
	for i := range 16 {
		callers.Go(func() {
			if _, err := sides[i%2].tryEnd("r1", ""); err != nil {
				t.Errorf("caller %d: %v %s", i, err, detailsOf(err))
			}
		})
	}
	callers.Wait()
	if marks := sides[0].marks(); !slices.Equal(marks, []string{"RUN_TRUNCATED RUN_ENDED"}) {
		t.Errorf("marks %q", marks)
	}
	sides[1].stillWorks()
}

func TestEndedRunIsTheSameAfterARestart(t *testing.T) {
	t.Parallel()
	c, db := ownDatabase(t, service.Config{})
	c.open("r1", interrupted("t1", "r1", "i1"))
	c.end("r1", "")
	before, _ := c.info()
	var version int64
	if err := db.QueryRow(t.Context(), `SELECT version FROM folds`).Scan(&version); err != nil || uint64(version) != before.GetVersion() {
		t.Errorf("the fold is at version %d (%v), want %d", version, err, before.GetVersion())
	}
	c.start("r2")
	c.append(runStarted("t1", "r2"), runFinished("t1", "r2"))
	c.stillWorks()
}
