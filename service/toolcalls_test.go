package service_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store/storetest"
)

func TestCallsOfACrashedRunAreReportedAndCanBeRepaired(t *testing.T) {
	t.Parallel()
	c, db := ownDatabase(t, service.Config{})
	c.start("r1", withMessages(userMessage("u1", "look")))
	c.append(runStarted("t1", "r1"), callStart("c1"), callArgs("c1", "{}"), callEnd("c1"))
	expireLeases(t, db)

	start, input := c.start("r2", withMessages(userMessage("u2", "hello?")), withUnanswered(repair))
	if !slices.Equal(start.GetPendingToolCalls(), []string{"c1"}) || !slices.Equal(start.GetRepairedToolCalls(), []string{"c1"}) {
		t.Errorf("pending %q, repaired %q, want c1 both", start.GetPendingToolCalls(), start.GetRepairedToolCalls())
	}
	if got := outline(input.Messages); len(got) != 4 || got[1] != "assistant m-c1" || input.Messages[2].ToolCallID != "c1" || got[3] != "user u2" {
		t.Errorf("repaired input %q", got)
	}
	c.wantMessages("user u1", "assistant m-c1", "user u2")
	for _, e := range c.log() {
		if strings.Contains(string(e.GetPayload()), "repair") {
			t.Errorf("the repair was stored: %s", e.GetPayload())
		}
	}
	c.stillWorks()
}

func TestNewMessageAfterACancelInTheMidstOfACall(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	c.open("r1", callStart("c1"), callArgs("c1", `{"que`))
	c.append(callEnd("c1"), runFinished("t1", "r1", "outcome", `{"type":"cancelled"}`))
	start, _ := c.start("r2", withMessages(userMessage("u1", "never mind")))
	if !slices.Equal(start.GetPendingToolCalls(), []string{"c1"}) {
		t.Errorf("pending %q, want c1", start.GetPendingToolCalls())
	}
	c.wantMessages("assistant m-c1", "user u1")
	c.stillWorks()
}

func TestRepairLeavesCallsThatWaitForAnInterrupt(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	c.open("r1", callStart("c1"), callEnd("c1"), callStart("c2"), callEnd("c2"), callResult("x", "c2", "done"), interrupted("t1", "r1", "i1:c1"))
	start, input := c.start("r2", withResume(`[{"interruptId":"i1","status":"resolved","payload":true}]`), withUnanswered(repair))
	if len(start.GetRepairedToolCalls()) != 0 || !slices.Equal(start.GetPendingToolCalls(), []string{"c1"}) {
		t.Errorf("repaired %q, pending %q; want none and c1", start.GetRepairedToolCalls(), start.GetPendingToolCalls())
	}
	if got := outline(input.Messages); !slices.Equal(got, []string{"assistant m-c1", "assistant m-c2", "tool x"}) {
		t.Errorf("input %q", got)
	}
	c.append(runStarted("t1", "r2"), callResult("y", "c1", "approved"), runFinished("t1", "r2"))
	c.wantMessages("assistant m-c1", "tool y", "assistant m-c2", "tool x")
}

func TestResumeThatAnswersOnlySomeInterrupts(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	c.open("r1", interrupted("t1", "r1", "i1", "i2"))
	before, _ := c.info()
	for resume, missing := range map[string]string{
		``:   "i1,i2",
		`[]`: "i1,i2",
		`[{"interruptId":"i1","status":"resolved","payload":1}]`: "i2",
	} {
		_, _, err := c.tryStart("r2", withResume(resume))
		if meta := wantReason(t, err, codes.FailedPrecondition, "INTERRUPTS_OPEN"); meta["interrupt_ids"] != missing {
			t.Errorf("resume %s: missing %q, want %q", resume, meta["interrupt_ids"], missing)
		}
	}
	if after, _ := c.info(); after.GetVersion() != before.GetVersion() {
		t.Error("a refused start wrote something")
	}
	c.start("r2", withResume(`[{"interruptId":"i1","status":"resolved","payload":1},{"interruptId":"i2","status":"cancelled"}]`))
	c.append(runStarted("t1", "r2"), runFinished("t1", "r2"))
	c.stillWorks()
}

func TestOpenInterruptsAreReturned(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	c.open("r1", callStart("c1"), callEnd("c1"), interrupted("t1", "r1", "i1:c1"))
	const want = `{"id":"i1","reason":"approval","toolCallId":"c1","responseSchema":{"type":"boolean"}}`
	info, _ := c.info()
	thread := must(c.client.GetThread(t.Context(), &threadsvcv1.GetThreadRequest{Thread: threadName("t1")}))(t).GetThread()
	for where, got := range map[string][][]byte{"context": info.GetOpenInterrupts(), "thread": thread.GetOpenInterrupts()} {
		if len(got) != 1 || string(got[0]) != want {
			t.Errorf("%s: interrupts %s, want %s", where, got, want)
		}
	}
	c.wantStatus("r1", threadsvcv1.RunStatus_RUN_STATUS_INTERRUPTED)
}

func TestResultWhoseCallWasNeverStored(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	orphan := callResult("x", "unknown", "found")
	if codes := c.record("r1", append(text("m", "hi"), orphan)...); !slices.Equal(codes, []string{"TOOL_RESULT_ORPHANED"}) {
		t.Errorf("warnings %q, want TOOL_RESULT_ORPHANED", codes)
	}
	if !slices.Contains(c.events("r1"), orphan) {
		t.Error("the log has not kept the result")
	}
	c.wantMessages("assistant m")
	c.stillWorks()
}

func TestSuspendedRunIsResumedAfterARestart(t *testing.T) {
	t.Parallel()
	server := startProcess(t, storetest.Database(t))
	c := converse(t, dial(t, server.address), "t1")
	c.start("r1", withMessages(userMessage("u1", "pay")))
	c.append(runStarted("t1", "r1"))
	c.append(text("m1", "are you sure?")...)
	c.append(callStart("c1"), callEnd("c1"), interrupted("t1", "r1", "i1:c1"))

	server.kill()
	server.start()
	info, input := c.info()
	if len(info.GetOpenInterrupts()) != 1 || !slices.Equal(outline(input.Messages), []string{"user u1", "assistant m1", "assistant m-c1"}) {
		t.Fatalf("after the restart: interrupts %s, messages %q", info.GetOpenInterrupts(), outline(input.Messages))
	}
	c.start("r2", withResume(`[{"interruptId":"i1","status":"resolved","payload":true}]`))
	c.append(runStarted("t1", "r2"), callResult("x", "c1", "paid"))

	server.kill()
	server.start()
	c.append(runFinished("t1", "r2"))
	c.wantMessages("user u1", "assistant m1", "assistant m-c1", "tool x")
	c.wantStatus("r2", threadsvcv1.RunStatus_RUN_STATUS_FINISHED)
}

func TestCallsThatTheApplicationHasToAnswer(t *testing.T) {
	t.Parallel()
	for name, outcome := range map[string]string{
		"listed by the producer": `{"type":"success","pendingToolCallIds":["c1"]}`,
		"derived":                `{"type":"success"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newConversation(t)
			c.open("r1", callStart("c1"), callEnd("c1"), runFinished("t1", "r1", "outcome", outcome))
			if info, _ := c.info(); !slices.Equal(info.GetPendingToolCalls(), []string{"c1"}) {
				t.Errorf("pending %q, want c1", info.GetPendingToolCalls())
			}
			_, _, err := c.tryStart("r2", withMessages(userMessage("u1", "and?")))
			if meta := wantReason(t, err, codes.FailedPrecondition, "TOOL_CALLS_UNANSWERED"); meta["tool_call_ids"] != "c1" {
				t.Errorf("metadata %v, want c1", meta)
			}
			start, _ := c.start("r2", withMessages(userMessage("u1", "and?")), withUnanswered(allow))
			if !slices.Equal(start.GetPendingToolCalls(), []string{"c1"}) {
				t.Errorf("the start does not report the call: %q", start.GetPendingToolCalls())
			}
			c.append(runStarted("t1", "r2"), runFinished("t1", "r2"))
			start, input := c.start("r3", withMessages(toolMessage("x", "c1", "found")))
			if len(start.GetPendingToolCalls()) != 0 || !slices.Equal(outline(input.Messages), []string{"assistant m-c1", "tool x", "user u1"}) {
				t.Errorf("answered: pending %q, messages %q", start.GetPendingToolCalls(), outline(input.Messages))
			}
		})
	}
}

func TestExpiredInterruptsCanOnlyBeCancelled(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	outcome, _ := json.Marshal(map[string]any{"type": "interrupt", "interrupts": []any{
		map[string]any{"id": "i1", "reason": "approval", "expiresAt": "2001-01-01T00:00:00Z"}}})
	c.open("r1", runFinished("t1", "r1", "outcome", string(outcome)))
	_, _, err := c.tryStart("r2", withResume(`[{"interruptId":"i1","status":"resolved"}]`))
	if meta := wantReason(t, err, codes.FailedPrecondition, "INTERRUPTS_EXPIRED"); meta["interrupt_ids"] != "i1" {
		t.Errorf("metadata %v, want i1", meta)
	}
	_, _, err = c.tryStart("r2", withResume(`[{"interruptId":"i1","status":"cancelled"},{"interruptId":"i9","status":"cancelled"}]`))
	if meta := wantReason(t, err, codes.InvalidArgument, "INTERRUPTS_UNKNOWN"); meta["interrupt_ids"] != "i9" {
		t.Errorf("metadata %v, want i9", meta)
	}
	c.start("r2", withResume(`[{"interruptId":"i1","status":"cancelled"}]`))
}
