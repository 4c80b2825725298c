package agui_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/threadsvc/threadsvc/agui"
)

// wantRefusal checks why a run could not start.
func wantRefusal(t *testing.T, err error, reason agui.RefusalReason, ids ...string) {
	t.Helper()
	var refused *agui.RefusalError
	if !errors.As(err, &refused) || refused.Reason != reason || !slices.Equal(refused.IDs, ids) {
		t.Errorf("%v, want %s %v", err, reason, ids)
	}
}

// interrupted is a thread whose run r1 ended with interrupts i1, which concerns call c1 and expires at noon, and i2.
func interrupted(t *testing.T) *agui.Thread {
	th := started(t)
	mustApply(t, th, `{"type":"TOOL_CALL_START","toolCallId":"c1","toolCallName":"pay"}`, `{"type":"TOOL_CALL_END","toolCallId":"c1"}`,
		`{"type":"RUN_FINISHED","threadId":"t","runId":"r1","outcome":{"type":"interrupt","interrupts":[`+
			`{"id":"i1","reason":"approval","toolCallId":"c1","responseSchema":{"type":"object"},"expiresAt":"2026-05-01T14:00:00+02:00"},{"id":"i2","reason":"choice"}]}}`)
	return th
}

func TestResume(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		resume string
		reason agui.RefusalReason
		ids    []string
	}{
		"nothing":           {``, agui.InterruptsOpen, []string{"i1", "i2"}},
		"a part":            {`{"interruptId":"i1","status":"cancelled"}`, agui.InterruptsOpen, []string{"i2"}},
		"past the expiry":   {`{"interruptId":"i1","status":"resolved"},{"interruptId":"i2","status":"resolved"}`, agui.InterruptsExpired, []string{"i1"}},
		"more than is open": {`{"interruptId":"i1","status":"cancelled"},{"interruptId":"x","status":"resolved"},{"interruptId":"i2","status":"resolved"},{"interruptId":"y","status":"resolved"}`, agui.InterruptsUnknown, []string{"x", "y"}},
		"all":               {`{"interruptId":"i1","status":"cancelled"},{"interruptId":"i2","status":"resolved","payload":"refund"}`, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			th := interrupted(t)
			if open := th.OpenInterrupts(); len(open) != 2 || !strings.Contains(string(open[0]), `"responseSchema":{"type":"object"}`) {
				t.Errorf("open interrupts %s", open)
			}
			_, err := tryBegin(t, th, `{"threadId":"t","runId":"r2","resume":[`+c.resume+`]}`, false)
			if c.reason != "" {
				wantRefusal(t, err, c.reason, c.ids...)
				return
			}
			if err != nil || len(th.OpenInterrupts()) != 0 {
				t.Fatalf("%v, %d interrupts are open", err, len(th.OpenInterrupts()))
			}
			if in := string(th.RunInput(false).Text); !strings.Contains(in, `"resume":[`+c.resume+`]`) {
				t.Errorf("the answers are not in the run input: %s", in)
			}
		})
	}
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	for expires, expired := range map[string]bool{
		"2026-05-01T12:00:00Z": true, "2026-05-01T12:00:00.001Z": false, "2026-05-01": true, "2026-05-02": false,
		"2026-05-01T11:59:59": true, "tomorrow": false, "": false,
	} {
		th := started(t)
		mustApply(t, th, `{"type":"RUN_FINISHED","threadId":"t","runId":"r1","outcome":{"type":"interrupt","interrupts":[{"id":"i","reason":"","expiresAt":"`+expires+`"}]}}`)
		_, err := tryBegin(t, th, `{"threadId":"t","runId":"r2","resume":[{"interruptId":"i","status":"resolved"}]}`, false)
		if (err != nil) != expired {
			t.Errorf("expiresAt %q: %v", expires, err)
		}
	}
}

// TestInterruptsEnd: after a failure or an ordinary run nothing is left to answer.
func TestInterruptsEnd(t *testing.T) {
	t.Parallel()
	late := interrupted(t)
	mustApply(t, late, `{"type":"RUN_ERROR","message":"late"}`)
	begin(t, late, `{"threadId":"t","runId":"r2"}`)

	again := interrupted(t)
	mustApply(t, again, `{"type":"RUN_STARTED","threadId":"t","runId":"r2"}`, `{"type":"RUN_FINISHED","threadId":"t","runId":"r2"}`)
	begin(t, again, `{"threadId":"t","runId":"r3"}`)

	cancelled := started(t)
	mustApply(t, cancelled, `{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"n"}`, `{"type":"TOOL_CALL_END","toolCallId":"c"}`,
		`{"type":"RUN_FINISHED","threadId":"t","runId":"r1","outcome":{"type":"cancelled"}}`)
	begin(t, cancelled, `{"threadId":"t","runId":"r2"}`)
}

func TestPendingToolCalls(t *testing.T) {
	t.Parallel()
	calls := []string{`{"type":"TOOL_CALL_START","toolCallId":"c1","toolCallName":"n"}`, `{"type":"TOOL_CALL_END","toolCallId":"c1"}`,
		`{"type":"TOOL_CALL_START","toolCallId":"c2","toolCallName":"n"}`, `{"type":"TOOL_CALL_END","toolCallId":"c2"}`,
		`{"type":"TOOL_CALL_START","toolCallId":"c3","toolCallName":"n"}`, `{"type":"TOOL_CALL_END","toolCallId":"c3"}`,
		`{"type":"TOOL_CALL_RESULT","messageId":"x","toolCallId":"c2","content":""}`}
	ended := func(outcome string) *agui.Thread {
		th := started(t)
		mustApply(t, th, calls...)
		mustApply(t, th, `{"type":"RUN_FINISHED","threadId":"t","runId":"r1"`+outcome+`}`)
		return th
	}
	for name, outcome := range map[string]string{"derived": "", "derived from an empty list": `,"outcome":{"type":"success","pendingToolCallIds":[]}`, "named": `,"outcome":{"type":"success","pendingToolCallIds":["c1","c3"]}`} {
		_, err := tryBegin(t, ended(outcome), `{"threadId":"t","runId":"r2","messages":[{"id":"u","role":"user","content":""}]}`, false)
		wantRefusal(t, err, agui.ToolCallsUnanswered, "c1", "c3")
		_, err = tryBegin(t, ended(outcome), `{"threadId":"t","runId":"r2","messages":[{"id":"y","role":"tool","toolCallId":"c3","content":"","error":"declined"}]}`, false)
		wantRefusal(t, err, agui.ToolCallsUnanswered, "c1")
		th := ended(outcome)
		begin(t, th, `{"threadId":"t","runId":"r2","messages":[{"id":"y","role":"tool","toolCallId":"c3","content":""},{"id":"z","role":"tool","toolCallId":"c1","content":""}]}`)
		if ids := messageIDs(t, th.RunInput(false)); !slices.Equal(ids, []string{"c1", "z", "c2", "x", "c3", "y"}) {
			t.Errorf("%s: messages %v", name, ids)
		}
		th = ended(outcome)
		if _, err := tryBegin(t, th, `{"threadId":"t","runId":"r2"}`, true); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if pending := th.PendingToolCalls(); !slices.Equal(pending, []string{"c1", "c3"}) {
			t.Errorf("%s: pending %v", name, pending)
		}
	}
}

func TestRepair(t *testing.T) {
	t.Parallel()
	th := started(t)
	long := strings.Repeat("c", agui.MaxIDBytes)
	mustApply(t, th, `{"type":"TOOL_CALL_START","toolCallId":"c1","toolCallName":"n"}`, `{"type":"TOOL_CALL_START","toolCallId":"`+long+`","toolCallName":"n"}`,
		`{"type":"TEXT_MESSAGE_START","messageId":"m"}`)
	th.Truncate(agui.LeaseExpired)
	begin(t, th, `{"threadId":"t","runId":"r2","messages":[{"id":"u","role":"user","content":"hi"}]}`)
	stored := rows(th)
	in := th.RunInput(true)
	if !slices.Equal(in.Repaired, []string{"c1", long}) {
		t.Errorf("repaired %v", in.Repaired)
	}
	ids := messageIDs(t, in)
	if len(ids) != 6 || ids[1] != "repair-c1" || len(ids[3]) > agui.MaxIDBytes || ids[4] != "m" {
		t.Errorf("messages %v", ids)
	}
	if _, _, v := agui.DecodeInput(in.Text, agui.DefaultLimits()); v != nil {
		t.Errorf("the repaired input is not valid: %v", v)
	}
	if string(rows(th)) != string(stored) || len(th.RunInput(false).Repaired) != 0 {
		t.Error("repair changed what is stored, or came unasked")
	}
}

// TestRepairLeavesApprovalsAlone: a call that waits for an answer is not given up, before and while it is answered; after
// the answering run is lost, it is.
func TestRepairLeavesApprovalsAlone(t *testing.T) {
	t.Parallel()
	th := interrupted(t)
	if repaired := th.RunInput(true).Repaired; len(repaired) != 0 {
		t.Errorf("repaired %v while the interrupt is open", repaired)
	}
	begin(t, th, `{"threadId":"t","runId":"r2","resume":[{"interruptId":"i1","status":"cancelled"},{"interruptId":"i2","status":"resolved"}]}`)
	if repaired := th.RunInput(true).Repaired; len(repaired) != 0 {
		t.Errorf("repaired %v while the interrupt is answered", repaired)
	}
	th.Truncate(agui.LeaseExpired)
	want := []string{"c1"}
	if repaired := th.RunInput(true).Repaired; !slices.Equal(repaired, want) {
		t.Errorf("repaired %v, want %v", repaired, want)
	}
	begin(t, th, `{"threadId":"t","runId":"r3"}`)
	if repaired := th.RunInput(true).Repaired; !slices.Equal(repaired, want) {
		t.Errorf("repaired %v, want %v", repaired, want)
	}
}

func TestRunInput(t *testing.T) {
	t.Parallel()
	th := agui.NewThread("t", agui.DefaultLimits())
	begin(t, th, `{"threadId":"t","runId":"r1","parentRunId":"p","state":{"z":1.10,"a":1e400},"messages":[{"id":"u","role":"user","content":"\u0000\ud800"}],`+
		`"tools":[{"name":"n","description":"d"}],"context":[{"description":"d","value":"v"}],"forwardedProps":{ "x" : null }}`)
	const messages = `"messages":[{"id":"u","role":"user","content":"\u0000\ud800"}]`
	want := `{"threadId":"t","runId":"r1","parentRunId":"p","protocolVersion":"1.1","state":{"z":1.10,"a":1e400},` + messages +
		`,"tools":[{"name":"n","description":"d"}],"context":[{"description":"d","value":"v"}],"forwardedProps":{ "x" : null }}`
	if got := string(th.RunInput(false).Text); got != want {
		t.Errorf("run input\n%s\nwant\n%s", got, want)
	}
	mustApply(t, th, runStarted, `{"type":"STATE_SNAPSHOT","snapshot":null}`, `{"type":"ACTIVITY_SNAPSHOT","messageId":"a","activityType":"x","content":{}}`, runFinished)
	want = `{"threadId":"t","protocolVersion":"1.1",` + messages + `,"tools":[],"context":[],"forwardedProps":{}}`
	if got := string(th.RunInput(false).Text); got != want {
		t.Errorf("run input\n%s\nwant\n%s", got, want)
	}
}

func TestStateOfAnInput(t *testing.T) {
	t.Parallel()
	th := started(t)
	mustApply(t, th, `{"type":"STATE_SNAPSHOT","snapshot":{"a":1}}`)
	th.Truncate(agui.LeaseExpired)
	if !th.TouchedByIncompleteRun() {
		t.Error("the state was last touched by a truncated run")
	}
	in, _, _ := agui.DecodeInput([]byte(`{"threadId":"t","runId":"r2"}`), agui.DefaultLimits())
	if _, err := th.Begin(agui.Start{Input: in, StatePatch: agui.Value(`[{"op":"add","path":"/b","value":2}]`)}); err != nil {
		t.Fatal(err)
	}
	wantState(t, th, `{"a":1,"b":2}`)
	th.Truncate(agui.TakenOver)
	begin(t, th, `{"threadId":"t","runId":"r3","state":[]}`)
	wantState(t, th, `[]`)
	if th.TouchedByIncompleteRun() {
		t.Error("the application has replaced the state")
	}
	th.Truncate(agui.TakenOver)
	in, _, _ = agui.DecodeInput([]byte(`{"threadId":"t","runId":"r4"}`), agui.DefaultLimits())
	_, err := th.Begin(agui.Start{Input: in, StatePatch: agui.Value(`[{"op":"remove","path":"/b"}]`)})
	var v *agui.Violation
	if !errors.As(err, &v) || v.Code != agui.PatchNotApplied || v.Path != "/statePatch/0" {
		t.Errorf("%v", err)
	}
}
