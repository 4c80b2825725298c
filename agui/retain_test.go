package agui_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/threadsvc/threadsvc/agui"
)

// TestWhatIsKeptIsACopy overwrites events once they were applied: what a thread keeps of a large one for longer has a
// text of its own, so that it does not hold the whole event in memory.
func TestWhatIsKeptIsACopy(t *testing.T) {
	t.Parallel()
	const calls = `{"id":"a","role":"assistant","toolCalls":[{"id":"c","type":"function","function":{"name":"n","arguments":"1"}}]}`
	snapshot := func(messages string) string { return `{"type":"MESSAGES_SNAPSHOT","messages":[` + messages + `]}` }
	for _, c := range []struct {
		name   string
		events []string
	}{
		{"a message of a snapshot", []string{runStarted, snapshot(`{"id":"u","role":"user","content":"1"}`)}},
		{"one with tool calls", []string{runStarted, snapshot(calls)}},
		{"one that is replaced", []string{runStarted, snapshot(calls), snapshot(strings.Replace(calls, `"1"`, `"2"`, 1))}},
		{"a declared version and an echoed input", []string{`{"type":"RUN_STARTED","threadId":"t","runId":"r1","protocolVersion":"1.0","input":{"threadId":"t","runId":"r1","state":{},"messages":[` + calls + `],"tools":[],"context":[],"forwardedProps":{}}}`}},
		{"an interrupt", []string{runStarted, `{"type":"RUN_FINISHED","threadId":"t","runId":"r1","outcome":{"type":"interrupt","interrupts":[{"id":"i","reason":"approval","message":"go on?"}]}}`}},
		{"an added value", []string{runStarted, `{"type":"STATE_DELTA","delta":[{"op":"add","path":"/name","value":{"a":"text","n":12.5}}]}`}},
		{"a token", []string{runStarted, `{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}`, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"hello"}`}},
		{"a tool call", []string{runStarted, `{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"search"}`, `{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"{}"}`, `{"type":"TOOL_CALL_END","toolCallId":"c"}`, `{"type":"TOOL_CALL_RESULT","messageId":"r","toolCallId":"c","content":"found","role":"tool"}`}},
		{"an activity", []string{runStarted, `{"type":"ACTIVITY_SNAPSHOT","messageId":"x","activityType":"PLAN","content":{"a":[1]}}`, `{"type":"ACTIVITY_DELTA","messageId":"x","activityType":"PLAN","patch":[{"op":"add","path":"/b","value":"two"}]}`}},
		{"a subagent and a step", []string{runStarted, `{"type":"SUBAGENT_STARTED","subagentRunId":"s","name":"helper"}`, `{"type":"STEP_STARTED","stepName":"think"}`}},
		{"reasoning", []string{runStarted, `{"type":"REASONING_MESSAGE_START","messageId":"m","role":"reasoning"}`, `{"type":"REASONING_MESSAGE_CONTENT","messageId":"m","delta":"hm"}`, `{"type":"REASONING_ENCRYPTED_VALUE","subtype":"message","entityId":"m","encryptedValue":"abc"}`}},
		{"metadata", []string{runStarted, `{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant","name":"n","metadata":{"a":1}}`, `{"type":"TEXT_MESSAGE_END","messageId":"m","metadata":{"b":[2]}}`}},
		{"a chunk", []string{runStarted, `{"type":"TOOL_CALL_CHUNK","toolCallId":"c","toolCallName":"search","delta":"{"}`, `{"type":"TOOL_CALL_CHUNK","delta":"}"}`}},
		{"a state", []string{runStarted, `{"type":"STATE_SNAPSHOT","snapshot":{"a":[1,"two"]}}`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			th := agui.NewThread("t", agui.DefaultLimits())
			for i, event := range c.events {
				text := []byte(event)
				if _, v := th.Apply(uint64(i), text); v != nil {
					t.Fatalf("%s: %v", event, v)
				}
				before := kept(th)
				copy(text, bytes.Repeat([]byte{'?'}, len(text)))
				if after := kept(th); after != before {
					t.Errorf("kept\n%s\nwas\n%s", after, before)
				}
			}
		})
	}
}

// kept is all that a thread would write.
func kept(th *agui.Thread) string {
	return string(rows(th)) + string(th.Changes().Tracking) + string(th.State(nil))
}
