package service_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
)

func TestStartedAgainWithTheSameInputIsTheSameRun(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	c.record("r0", stateSnapshot(`{"a":1}`))
	request := func(r *threadsvcv1.StartRunRequest) {
		r.Messages = [][]byte{[]byte(userMessage("u1", "hello"))}
		r.Tools = []byte(`[{"name":"look","description":"looks","parameters":{"type":"object"}}]`)
		r.Context = []byte(`[{"description":"d","value":"v"}]`)
		r.ForwardedProps = []byte(`{"n":1.10}`)
		r.StateChange = &threadsvcv1.StartRunRequest_StatePatch{StatePatch: []byte(operations(add("/b", "2")))}
	}
	first, firstInput, err := c.tryStart("r1", request)
	if err != nil {
		t.Fatal(err)
	}
	stages := map[string][]string{
		"at once":                 nil,
		"after events":            append([]string{runStarted("t1", "r1"), stateDelta(operations(replace("/a", "5")))}, text("m1", "hi")...),
		"after the end":           {runFinished("t1", "r1")},
		"after another run began": nil,
	}
	for _, stage := range []string{"at once", "after events", "after the end", "after another run began"} {
		if events := stages[stage]; events != nil {
			c.append(events...)
		}
		if stage == "after another run began" {
			c.record("r2", stateSnapshot(`{"z":1}`))
		}
		offset := c.offset
		again, input, err := c.tryStart("r1", request)
		c.offset = offset
		if err != nil {
			t.Fatalf("%s: %v %s", stage, err, detailsOf(err))
		}
		if !again.GetRepeatedRequest() || again.GetVersion() != first.GetVersion() || string(input) != string(firstInput) ||
			again.GetLease().GetFencingToken() != first.GetLease().GetFencingToken() {
			t.Errorf("%s: %v with %s, want what the first call got: %v with %s", stage, again, input, first, firstInput)
		}
	}
	if runs := must(c.client.ListRuns(t.Context(), &threadsvcv1.ListRunsRequest{Thread: threadName("t1")}))(t); len(runs.GetRuns()) != 3 {
		t.Errorf("%d runs, want 3", len(runs.GetRuns()))
	}
}

func TestRunIDUsedBefore(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	c.start("r1", withMessages(userMessage("u1", "hello")))
	_, _, err := c.tryStart("r1", withMessages(userMessage("u1", "another")))
	wantReason(t, err, codes.AlreadyExists, "RUN_EXISTS")
	c.append(runStarted("t1", "r1"), runFinished("t1", "r1"))
	_, _, err = c.tryStart("r1", withMessages(userMessage("u1", "another")))
	wantReason(t, err, codes.AlreadyExists, "RUN_EXISTS")

	first := c.run
	_, err = c.tryAppend(textStart("m"))
	meta := wantReason(t, err, codes.InvalidArgument, "PROTOCOL_VIOLATION")
	if meta["code"] != "SEQUENCE_RUN_OVER" || meta["run_closed"] != "false" {
		t.Errorf("an event after the run's end: %v", meta)
	}
	c.record("r2")
	_, err = appendBatch(t.Context(), c.client, first, 2, textStart("m"))
	if meta := wantReason(t, err, codes.FailedPrecondition, "RUN_CLOSED"); meta["status"] != "FINISHED" {
		t.Errorf("status %q, want FINISHED", meta["status"])
	}
	c.wantStatus("r1", threadsvcv1.RunStatus_RUN_STATUS_FINISHED)
	c.stillWorks()
}

func TestBatchesSentAgain(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	c.start("r1")
	var events []string
	for i := range 15 {
		events = append(events, event("CUSTOM", "name", `"n"`, "value", fmt.Sprint(i)))
	}
	events[0] = runStarted("t1", "r1")
	send := func(from, to int) (*threadsvcv1.Progress, error) {
		return appendBatch(t.Context(), c.client, c.run, uint64(from), events[from:to]...)
	}
	first := must(send(0, 10))(t)
	if again := must(send(0, 10))(t); !proto.Equal(first, again) {
		t.Errorf("sent again: %v, want %v", again, first)
	}
	if p := must(send(7, 15))(t); p.GetNextOffset() != 15 || p.GetVersion() != first.GetVersion()+5 {
		t.Errorf("half new: %v, want 5 more than %v", p, first)
	}
	changed := slices.Clone(events)
	changed[8] = event("CUSTOM", "name", `"n"`, "value", "88")
	_, err := appendBatch(t.Context(), c.client, c.run, 6, changed[6:]...)
	if meta := wantReason(t, err, codes.AlreadyExists, "OFFSET_MISMATCH"); meta["offset"] != "8" {
		t.Errorf("metadata %v, want offset 8", meta)
	}
	_, err = appendBatch(t.Context(), c.client, c.run, 17, events[1])
	if meta := wantReason(t, err, codes.OutOfRange, "OFFSET_GAP"); meta["next_offset"] != "15" {
		t.Errorf("metadata %v, want next_offset 15", meta)
	}
	if got := c.events("r1"); !slices.Equal(got, events) {
		t.Errorf("the log has %q, want each event once", got)
	}
	c.offset = 15
	c.append(runFinished("t1", "r1"))
	c.stillWorks()
}

// The last batch may be sent again at any time; other bytes at its offsets are refused at any time.
func TestFinalBatchSentAgain(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	c.start("r1")
	// What was dropped, translated, stripped and expanded is recognised too.
	final := append(text("m1", "hi"), event("FROM_THE_FUTURE", "x", "1"), event("THINKING_START"), event("THINKING_END"),
		event("CUSTOM", "name", `"n"`, "value", "1", "unknown", "2"), event("TEXT_MESSAGE_CHUNK", "messageId", `"m2"`, "delta", `"x"`),
		runFinished("t1", "r1"))
	c.append(runStarted("t1", "r1"))
	first := c.run
	want := c.append(final...)
	changed := slices.Clone(final)
	changed[1] = textDelta("m1", "ho")
	check := func(stage string) {
		p, err := appendBatch(t.Context(), c.client, first, 1, final...)
		if err != nil || p.GetNextOffset() != want.GetNextOffset() || p.GetVersion() < want.GetVersion() {
			t.Errorf("%s: %v, %v %s, want an ack of %d", stage, p, err, detailsOf(err), want.GetNextOffset())
		}
		for i := range final { // one event at a time
			if _, err := appendBatch(t.Context(), c.client, first, uint64(i)+1, final[i]); err != nil {
				t.Errorf("%s: event %d: %v", stage, i+1, err)
			}
		}
		_, err = appendBatch(t.Context(), c.client, first, 1, changed...)
		if reason, _ := reasonOf(err); reason != "OFFSET_MISMATCH" && reason != "RUN_CLOSED" {
			t.Errorf("%s: other bytes: %v %s, want a refusal", stage, err, detailsOf(err))
		}
	}
	check("at once")
	c.start("r2")
	check("another run started")
	c.append(runStarted("t1", "r2"))
	check("another run goes on")
	c.append(runFinished("t1", "r2"))
	check("another run ended")
	if n := len(c.events("r1")); n != 11 {
		t.Errorf("the log has %d events of the run", n)
	}
}

func TestManyCallersStartAThreadAtOnce(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		run  func(caller int) string
		wins int
	}{
		{"with the same run", func(int) string { return "r" }, 24},
		{"with a run each", func(caller int) string { return fmt.Sprint("r", caller) }, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c, db := ownDatabase(t, service.Config{})
			started := make([]*threadsvcv1.RunStart, 24)
			var callers sync.WaitGroup
			for i := range started {
				callers.Go(func() {
					start, _, err := startRun(t.Context(), c.client, c.request(tc.run(i)))
					if reason, meta := reasonOf(err); err != nil && (reason != "RUN_ACTIVE" || meta["active_run"] == "" || meta["lease_expires_at"] == "") {
						t.Errorf("caller %d: %v %s", i, err, detailsOf(err))
					}
					started[i] = start
				})
			}
			callers.Wait()
			wins := slices.DeleteFunc(started, func(s *threadsvcv1.RunStart) bool { return s == nil })
			if len(wins) != tc.wins {
				t.Fatalf("%d callers got the run, want %d", len(wins), tc.wins)
			}
			for _, win := range wins {
				if win.GetVersion() != 1 || win.GetLease().GetFencingToken() != wins[0].GetLease().GetFencingToken() {
					t.Errorf("a caller got %v, another %v", win, wins[0])
				}
			}
			var threads, runs int
			if err := db.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM threads), (SELECT count(*) FROM runs)`).Scan(&threads, &runs); err != nil || threads != 1 || runs != 1 {
				t.Errorf("%d threads with %d runs, want one (%v)", threads, runs, err)
			}
		})
	}
}

func TestCallersCreateAThreadAtOnce(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	var made, exists int
	var mu sync.Mutex
	var callers sync.WaitGroup
	for range 24 {
		callers.Go(func() {
			_, err := c.client.CreateThread(t.Context(), &threadsvcv1.CreateThreadRequest{Thread: threadName("t1")})
			mu.Lock()
			defer mu.Unlock()
			if reason, _ := reasonOf(err); reason == "THREAD_EXISTS" {
				exists++
			} else if err == nil {
				made++
			}
		})
	}
	callers.Wait()
	if made != 1 || exists != 23 {
		t.Errorf("%d callers made the thread, %d were told that it exists; want 1 and 23", made, exists)
	}
}

func TestRunsNobodyAnnounced(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	c.run = handle("t1", "r1", 0)
	started := event("RUN_STARTED", "threadId", `"t1"`, "runId", `"r1"`, "parentRunId", `"p1"`, "protocolVersion", `"1.0"`,
		"input", `{"threadId":"t1","runId":"r1","messages":[`+userMessage("u1", "hello")+`],"tools":[],"context":[]}`)
	c.append(append([]string{started}, text("m1", "hi")...)...)
	_, _, err := c.tryStart("r2")
	wantReason(t, err, codes.FailedPrecondition, "RUN_ACTIVE")
	// Several runs may follow each other in one stream.
	c.append(runFinished("t1", "r1"), runStarted("t1", "r2"), stateSnapshot(`1`), runFinished("t1", "r2"))
	c.wantMessages("user u1", "assistant m1")
	c.wantState("1")
	if run := c.wantStatus("r1", threadsvcv1.RunStatus_RUN_STATUS_FINISHED); run.GetParentRunId() != "p1" || run.GetProtocolVersion() != "1.0" {
		t.Errorf("run %v", run)
	}
	c.wantStatus("r2", threadsvcv1.RunStatus_RUN_STATUS_FINISHED)
	_, err = c.tryAppend(runStarted("t1", "r1"))
	if meta := wantReason(t, err, codes.InvalidArgument, "PROTOCOL_VIOLATION"); meta["code"] != "RUN_REUSED" {
		t.Errorf("metadata %v, want RUN_REUSED", meta)
	}
	c.stillWorks()
}

func TestAppendToAnErasedThread(t *testing.T) {
	t.Parallel()
	c, db := ownDatabase(t, service.Config{})
	c.open("r1", stateSnapshot(`{"a":1}`), event("FROM_THE_FUTURE"))
	version := uint64(4)
	gone := must(c.client.DeleteThread(t.Context(), &threadsvcv1.DeleteThreadRequest{Thread: threadName("t1")}))(t)
	if gone.GetVersion() != version || len(gone.GetLogHash()) != 32 {
		t.Errorf("erased %v, want version %d and a hash", gone, version)
	}
	_, err := c.tryAppend(textStart("m"))
	wantReason(t, err, codes.NotFound, "RUN_NOT_FOUND")
	stream := must(c.client.GetContext(t.Context(), &threadsvcv1.GetContextRequest{Thread: threadName("t1")}))(t)
	if _, err := stream.Recv(); errors.Is(err, io.EOF) {
		t.Error("an erased thread has a context")
	} else {
		wantReason(t, err, codes.NotFound, "THREAD_NOT_FOUND")
	}
	for _, table := range []string{"threads", "runs", "log_segments", "folds", "message_blocks", "states", "state_patches", "warnings"} {
		var rows int
		if err := db.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&rows); err != nil || rows > 0 {
			t.Errorf("%d rows left in %s (%v)", rows, table, err)
		}
	}
	c.recreate()
	c.stillWorks()
}
