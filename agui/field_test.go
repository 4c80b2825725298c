package agui_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/threadsvc/threadsvc/agui"
)

// What users of comparable systems have suffered from, as sequences of events and inputs.

// TestDeltaOnlyRuns: a run that sends nothing but deltas builds on what the last run left, and the thread goes on.
func TestDeltaOnlyRuns(t *testing.T) {
	t.Parallel()
	th := started(t)
	mustApply(t, th, `{"type":"STATE_SNAPSHOT","snapshot":{"count":1,"keep":"x"}}`, runFinished)
	for run, delta := range map[int]string{2: `{"op":"add","path":"/b","value":2}`, 3: `{"op":"replace","path":"/count","value":2}`} {
		begin(t, th, fmt.Sprintf(`{"threadId":"t","runId":"r%d"}`, run))
		mustApply(t, th, fmt.Sprintf(`{"type":"RUN_STARTED","threadId":"t","runId":"r%d"}`, run), `{"type":"STATE_DELTA","delta":[`+delta+`]}`,
			fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":"t","runId":"r%d"}`, run))
	}
	begin(t, th, `{"threadId":"t","runId":"r4"}`)
	if in := string(th.RunInput(false).Text); !strings.Contains(in, `"state":{"count":2,"keep":"x","b":2}`) {
		t.Errorf("run input %s", in)
	}
}

// TestInitialStateIsInTheLog: what a thread was created with is an entry like any other.
func TestInitialStateIsInTheLog(t *testing.T) {
	t.Parallel()
	th := agui.NewThread("t", agui.DefaultLimits())
	in, _, v := agui.DecodeInput([]byte(`{"threadId":"t","runId":"-","state":{"tenant":"x"},"messages":[{"id":"s","role":"system","content":"be kind"}]}`), agui.DefaultLimits())
	if v != nil {
		t.Fatal(v)
	}
	in.RunID = ""
	a, err := th.Create(in)
	if err != nil || a.RunID != "" || th.Running() {
		t.Fatalf("%+v, %v", a, err)
	}
	log := a.Stored
	for _, event := range []string{runStarted, `{"type":"STATE_DELTA","delta":[{"op":"add","path":"/a","value":1}]}`, runFinished} {
		a, v := th.Apply(0, []byte(event))
		if v != nil {
			t.Fatal(v)
		}
		log = append(log, a.Stored...)
	}
	again := replay(t, "t", log, agui.DefaultLimits())
	wantState(t, again, `{"tenant":"x","a":1}`)
	if wrong := differ(th, again); wrong != "" {
		t.Error(wrong)
	}
}

// TestResultUnderTwoIDs: a snapshot brings the result of a call under another id than the stream did.
func TestResultUnderTwoIDs(t *testing.T) {
	t.Parallel()
	th := agui.NewThread("t", agui.DefaultLimits())
	begin(t, th, `{"threadId":"t","runId":"r1","messages":[{"id":"u","role":"user","content":"?"}]}`)
	call := `{"id":"c1","role":"assistant","toolCalls":[{"id":"c1","type":"function","function":{"name":"n","arguments":""}}]}`
	mustApply(t, th, runStarted, `{"type":"TOOL_CALL_START","toolCallId":"c1","toolCallName":"n"}`, `{"type":"TOOL_CALL_END","toolCallId":"c1"}`,
		`{"type":"TOOL_CALL_RESULT","messageId":"x","toolCallId":"c1","content":"1"}`, `{"type":"TEXT_MESSAGE_START","messageId":"m2"}`,
		`{"type":"TEXT_MESSAGE_END","messageId":"m2"}`,
		`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"u","role":"user","content":"?"},`+call+`,{"id":"y","role":"tool","toolCallId":"c1","content":"1"},{"id":"m2","role":"assistant","content":""}]}`, runFinished)
	if ids := messageIDs(t, th.RunInput(false)); !slices.Equal(ids, []string{"u", "c1", "y", "m2"}) {
		t.Errorf("messages %v", ids)
	}
}

// TestResentHistory: an application that sends the whole conversation every time adds only what is new; one that sends
// less takes nothing away.
func TestResentHistory(t *testing.T) {
	t.Parallel()
	th := agui.NewThread("t", agui.DefaultLimits())
	var history []string
	for turn := range 20 {
		history = append(history, fmt.Sprintf(`{"id":"u%d","role":"user","content":"%d"}`, turn, turn))
		a := begin(t, th, fmt.Sprintf(`{"threadId":"t","runId":"r%d","messages":[%s]}`, turn, strings.Join(history, ",")))
		if len(a.Stored) > 120 {
			t.Errorf("turn %d stored %d bytes", turn, len(a.Stored))
		}
		mustApply(t, th, fmt.Sprintf(`{"type":"RUN_STARTED","threadId":"t","runId":"r%d"}`, turn), fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":"t","runId":"r%d"}`, turn))
	}
	begin(t, th, `{"threadId":"t","runId":"last","messages":[{"id":"new","role":"user","content":""}]}`)
	if th.MessageCount() != 21 {
		t.Errorf("%d messages", th.MessageCount())
	}
}

// TestLostProducer: what a run delivered before its producer was gone stays, and the next run is accepted.
func TestLostProducer(t *testing.T) {
	t.Parallel()
	th := agui.NewThread("t", agui.DefaultLimits())
	begin(t, th, `{"threadId":"t","runId":"r1","messages":[{"id":"u","role":"user","content":"go"}]}`)
	mustApply(t, th, runStarted, `{"type":"TEXT_MESSAGE_CHUNK","messageId":"m","delta":"par"}`, `{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"n"}`)
	a := th.Truncate(agui.LeaseExpired)
	if a.Ended == nil || a.Ended.Ending != agui.EndTruncated || !th.Over() || !th.Closed() {
		t.Errorf("ended %+v", a.Ended)
	}
	begin(t, th, `{"threadId":"t","runId":"r2","messages":[{"id":"v","role":"user","content":"on"}]}`)
	if pending := th.PendingToolCalls(); !slices.Equal(pending, []string{"c"}) {
		t.Errorf("pending %v", pending)
	}
	if in := th.RunInput(false); !strings.Contains(string(in.Text), `"content":"par"`) || !slices.Equal(messageIDs(t, in), []string{"u", "m", "c", "v"}) {
		t.Errorf("run input %s", in.Text)
	}
}

// TestReasoningReturns: reasoning without text keeps its signature for the next turn; activities stay behind.
func TestReasoningReturns(t *testing.T) {
	t.Parallel()
	th := started(t)
	mustApply(t, th, `{"type":"REASONING_MESSAGE_START","messageId":"m","role":"reasoning"}`, `{"type":"REASONING_MESSAGE_END","messageId":"m"}`,
		`{"type":"REASONING_ENCRYPTED_VALUE","subtype":"message","entityId":"m","encryptedValue":"a+/=\u0041","encryptedValueType":"p.sig"}`,
		`{"type":"ACTIVITY_SNAPSHOT","messageId":"a","activityType":"x","content":{}}`, runFinished)
	if in := string(th.RunInput(false).Text); !strings.Contains(in, `"messages":[{"id":"m","role":"reasoning","content":"","encryptedValue":"a+/=\u0041","encryptedValueType":"p.sig"}]`) {
		t.Errorf("run input %s", in)
	}
}

// TestManyEventsKeepTheirOrder: a text of a thousand deltas is their concatenation.
func TestManyEventsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	th, want := started(t), ""
	mustApply(t, th, `{"type":"TEXT_MESSAGE_START","messageId":"m"}`)
	for i := range 1000 {
		mustApply(t, th, fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"%d "}`, i))
		want += fmt.Sprint(i, " ")
	}
	wantMessages(t, th, `[{"id":"m","role":"assistant","content":"`+want+`"}]`)
}

// TestTextSplitAnywhere: a text comes out the same wherever it is cut, between code points or between surrogates.
func TestTextSplitAnywhere(t *testing.T) {
	t.Parallel()
	th, want := started(t), ""
	mustApply(t, th, `{"type":"TEXT_MESSAGE_START","messageId":"m"}`)
	for _, r := range "e\u0301 \U0001F469\u200d\U0001F467 \u0915\u094d\u0937" {
		mustApply(t, th, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"`+string(r)+`"}`)
		want += string(r)
	}
	wantMessages(t, th, `[{"id":"m","role":"assistant","content":"`+want+`"}]`)
}

// TestOrphanedResult: a result without its call stays in the thread and is left out of run inputs.
func TestOrphanedResult(t *testing.T) {
	t.Parallel()
	th := started(t)
	wantCodes(t, mustApply(t, th, `{"type":"TOOL_CALL_RESULT","messageId":"x","toolCallId":"lost","content":"1"}`, runFinished), agui.ToolResultOrphaned)
	if th.MessageCount() != 1 || len(messageIDs(t, th.RunInput(false))) != 0 {
		t.Errorf("%d messages, in the run input %v", th.MessageCount(), messageIDs(t, th.RunInput(false)))
	}
}

// TestSubagentStateHasItsProvenance: the update applies to the one state, and the log says who sent it.
func TestSubagentStateHasItsProvenance(t *testing.T) {
	t.Parallel()
	th := started(t)
	const event = `{"type":"STATE_DELTA","delta":[{"op":"add","path":"/a","value":1,"note":"kept"}],"subagentRunId":"s"}`
	a, v := th.Apply(1, []byte(event))
	if v != nil {
		t.Fatal(v)
	}
	entries, err := agui.DecodeEntries(a.Stored)
	if err != nil || len(entries) != 1 || string(entries[0].Payload) != event || !entries[0].Caused([]byte(event)) {
		t.Errorf("entries %+v, %v", entries, err)
	}
	wantState(t, th, `{"a":1}`)
}
