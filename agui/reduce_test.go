package agui_test

import (
	"testing"

	"github.com/threadsvc/threadsvc/agui"
)

// reduction is what events within one run build: the messages byte by byte, the state, and the warnings.
type reduction struct {
	name     string
	events   []string
	messages string // "[]" if empty
	state    string // "{}" if empty
	warnings []agui.Code
}

func (c *reduction) check(t *testing.T) {
	th := started(t)
	warnings := mustApply(t, th, c.events...)
	wantCodes(t, warnings, c.warnings...)
	if c.messages == "" {
		c.messages = "[]"
	}
	wantMessages(t, th, c.messages)
	if c.state == "" {
		c.state = "{}"
	}
	wantState(t, th, c.state)
	if wrong := sound(th); wrong != "" {
		t.Error(wrong)
	}
}

func checkAll(t *testing.T, cases []reduction) {
	t.Parallel()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.check(t) })
	}
}

func TestTextMessages(t *testing.T) {
	checkAll(t, []reduction{
		{"start alone", []string{`{"type":"TEXT_MESSAGE_START","messageId":"m"}`},
			`[{"id":"m","role":"assistant","content":""}]`, "", nil},
		{"role and name", []string{`{"type":"TEXT_MESSAGE_START","messageId":"m","role":"user","name":"Ann","subagentRunId":"s"}`},
			`[{"id":"m","role":"user","content":"","name":"Ann","subagentRunId":"s"}]`, "", nil},
		{"deltas concatenate, the empty one too", []string{`{"type":"TEXT_MESSAGE_START","messageId":"m"}`,
			`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"a"}`, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":""}`,
			`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"b"}`, `{"type":"TEXT_MESSAGE_END","messageId":"m"}`},
			`[{"id":"m","role":"assistant","content":"ab"}]`, "", nil},
		{"a surrogate pair in two deltas", []string{`{"type":"TEXT_MESSAGE_START","messageId":"m"}`,
			`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"\ud83d"}`, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"\ude00"}`},
			`[{"id":"m","role":"assistant","content":"\ud83d\ude00"}]`, "", nil},
		{"NUL, literal backslash-u0000 and a lone surrogate", []string{`{"type":"TEXT_MESSAGE_START","messageId":"m","name":"\u0000"}`,
			`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"\u0000\\u0000\udc00"}`},
			`[{"id":"m","role":"assistant","content":"\u0000\\u0000\udc00","name":"\u0000"}]`, "", nil},
		{"reopened: appends, established values stand", []string{`{"type":"TEXT_MESSAGE_START","messageId":"m","name":"A"}`,
			`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"x"}`, `{"type":"TEXT_MESSAGE_END","messageId":"m"}`,
			`{"type":"TEXT_MESSAGE_START","messageId":"m","role":"user","name":"B"}`, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"y"}`},
			`[{"id":"m","role":"assistant","content":"xy","name":"A"}]`, "", nil},
		{"metadata of start, content and end", []string{`{"type":"TEXT_MESSAGE_START","messageId":"m","metadata":{"a":{"x":1},"b":1}}`,
			`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"","metadata":{"a":{"y":2}}}`,
			`{"type":"TEXT_MESSAGE_END","messageId":"m","metadata":{"\u0062":null,"c":1.10}}`},
			`[{"id":"m","role":"assistant","content":"","metadata":{"a":{"y":2},"b":null,"c":1.10}}]`, "", nil},
		{"never onto an activity", []string{`{"type":"ACTIVITY_SNAPSHOT","messageId":"m","activityType":"a","content":{}}`,
			`{"type":"TEXT_MESSAGE_START","messageId":"m","metadata":{"k":1}}`, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"x","metadata":{"k":1}}`,
			`{"type":"TEXT_MESSAGE_END","messageId":"m","metadata":{"k":1}}`},
			`[{"id":"m","role":"activity","activityType":"a","content":{}}]`, "",
			[]agui.Code{agui.TargetConflict, agui.TargetConflict, agui.TargetConflict}},
		{"a message that came whole continues", []string{`{"type":"MESSAGES_SNAPSHOT","messages":[ { "id" : "m", "role":"assistant", "content":"a" } ]}`,
			`{"type":"TEXT_MESSAGE_START","messageId":"m"}`, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"b"}`},
			`[{"id":"m","role":"assistant","content":"ab"}]`, "", nil},
		{"content parts are not lost to a text", []string{`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"m","role":"user","content":[{"type":"text","text":"a"}]}]}`,
			`{"type":"TEXT_MESSAGE_START","messageId":"m"}`, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"b"}`},
			`[{"id":"m","role":"user","content":[{"type":"text","text":"a"}]}]`, "", []agui.Code{agui.TargetConflict}},
	})
}

func TestReasoning(t *testing.T) {
	start := `{"type":"REASONING_MESSAGE_START","messageId":"r","role":"reasoning"}`
	checkAll(t, []reduction{
		{"a span builds nothing", []string{`{"type":"REASONING_START","messageId":"r","metadata":{"k":1}}`, `{"type":"REASONING_END","messageId":"r"}`}, "", "", nil},
		{"a message", []string{start, `{"type":"REASONING_MESSAGE_CONTENT","messageId":"r","delta":"hm","metadata":{"k":1}}`, `{"type":"REASONING_MESSAGE_END","messageId":"r","metadata":{"l":2}}`},
			`[{"id":"r","role":"reasoning","content":"hm","metadata":{"k":1,"l":2}}]`, "", nil},
		{"never onto an activity", []string{`{"type":"ACTIVITY_SNAPSHOT","messageId":"r","activityType":"a","content":{}}`, start,
			`{"type":"REASONING_MESSAGE_CONTENT","messageId":"r","delta":"hm"}`},
			`[{"id":"r","role":"activity","activityType":"a","content":{}}]`, "", []agui.Code{agui.TargetConflict, agui.TargetConflict}},
		{"encrypted value with and without type", []string{start,
			`{"type":"REASONING_ENCRYPTED_VALUE","subtype":"message","entityId":"r","encryptedValue":"\u0041=","encryptedValueType":"p.x"}`},
			`[{"id":"r","role":"reasoning","content":"","encryptedValue":"\u0041=","encryptedValueType":"p.x"}]`, "", nil},
		{"a new value without type removes the type", []string{start,
			`{"type":"REASONING_ENCRYPTED_VALUE","subtype":"message","entityId":"r","encryptedValue":"1","encryptedValueType":"p.x"}`,
			`{"type":"REASONING_ENCRYPTED_VALUE","subtype":"message","entityId":"r","encryptedValue":"2","metadata":{"not":"merged"}}`},
			`[{"id":"r","role":"reasoning","content":"","encryptedValue":"2"}]`, "", nil},
		{"encrypted value of a call", []string{`{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"n"}`,
			`{"type":"REASONING_ENCRYPTED_VALUE","subtype":"tool-call","entityId":"c","encryptedValue":"v"}`},
			`[{"id":"c","role":"assistant","toolCalls":[{"id":"c","type":"function","function":{"name":"n","arguments":""},"encryptedValue":"v"}]}]`, "", nil},
		{"encrypted value without a place", []string{`{"type":"ACTIVITY_SNAPSHOT","messageId":"a","activityType":"a","content":{}}`,
			`{"type":"REASONING_ENCRYPTED_VALUE","subtype":"message","entityId":"a","encryptedValue":"v"}`,
			`{"type":"REASONING_ENCRYPTED_VALUE","subtype":"message","entityId":"x","encryptedValue":"v"}`,
			`{"type":"REASONING_ENCRYPTED_VALUE","subtype":"tool-call","entityId":"a","encryptedValue":"v"}`,
			`{"type":"REASONING_ENCRYPTED_VALUE","subtype":"later","entityId":"a","encryptedValue":"v"}`},
			`[{"id":"a","role":"activity","activityType":"a","content":{}}]`, "",
			[]agui.Code{agui.TargetUnknown, agui.TargetUnknown, agui.TargetUnknown, agui.MemberUnknown}},
	})
}

func TestToolCalls(t *testing.T) {
	start := `{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"n"}`
	checkAll(t, []reduction{
		{"without parent", []string{start, `{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"{\"q\""}`, `{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":":"}`, `{"type":"TOOL_CALL_END","toolCallId":"c"}`},
			`[{"id":"c","role":"assistant","toolCalls":[{"id":"c","type":"function","function":{"name":"n","arguments":"{\"q\":"}}]}]`, "", nil},
		{"unknown parent is created, with the owner", []string{`{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"n","parentMessageId":"m","subagentRunId":"s"}`},
			`[{"id":"m","role":"assistant","subagentRunId":"s","toolCalls":[{"id":"c","type":"function","function":{"name":"n","arguments":""}}]}]`, "", nil},
		{"text after the call's parent was created", []string{`{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"n","parentMessageId":"m"}`,
			`{"type":"TEXT_MESSAGE_START","messageId":"m"}`, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"x"}`},
			`[{"id":"m","role":"assistant","toolCalls":[{"id":"c","type":"function","function":{"name":"n","arguments":""}}],"content":"x"}]`, "", nil},
		{"parent of another role", []string{`{"type":"TEXT_MESSAGE_START","messageId":"m","role":"user"}`, `{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"n","parentMessageId":"m"}`},
			`[{"id":"m","role":"user","content":""},{"id":"c","role":"assistant","toolCalls":[{"id":"c","type":"function","function":{"name":"n","arguments":""}}]}]`, "", nil},
		{"the call's id is taken too", []string{`{"type":"TEXT_MESSAGE_START","messageId":"c","role":"user"}`, start},
			`[{"id":"c","role":"user","content":""},{"id":"c-3","role":"assistant","toolCalls":[{"id":"c","type":"function","function":{"name":"n","arguments":""}}]}]`, "", nil},
		{"started again: renamed, arguments kept", []string{start, `{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"1"}`, `{"type":"TOOL_CALL_END","toolCallId":"c"}`,
			`{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"o","parentMessageId":"elsewhere"}`, `{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"2"}`},
			`[{"id":"c","role":"assistant","toolCalls":[{"id":"c","type":"function","function":{"name":"o","arguments":"12"}}]}]`, "", []agui.Code{agui.ToolCallRenamed}},
		{"metadata goes to the call", []string{`{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"n","metadata":{"a":1}}`,
			`{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"","metadata":{"b":1}}`, `{"type":"TOOL_CALL_END","toolCallId":"c","metadata":{"a":2}}`},
			`[{"id":"c","role":"assistant","toolCalls":[{"id":"c","type":"function","function":{"name":"n","arguments":""},"metadata":{"a":2,"b":1}}]}]`, "", nil},
		{"a call dropped while it was open", []string{start, `{"type":"MESSAGES_SNAPSHOT","messages":[]}`, `{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"x"}`, `{"type":"TOOL_CALL_END","toolCallId":"c"}`},
			"", "", []agui.Code{agui.TargetUnknown, agui.TargetUnknown}},
	})
}

func TestToolResults(t *testing.T) {
	call := `{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"n","parentMessageId":"m"}`
	held := `{"id":"m","role":"assistant","toolCalls":[{"id":"c","type":"function","function":{"name":"n","arguments":""}}]}`
	checkAll(t, []reduction{
		{"seated behind the call and earlier results", []string{call, `{"type":"TEXT_MESSAGE_START","messageId":"n"}`,
			`{"type":"TOOL_CALL_RESULT","messageId":"x","toolCallId":"c","content":"1"}`,
			`{"type":"TOOL_CALL_RESULT","messageId":"y","toolCallId":"c","content":[{"type":"text","text":"2"}],"subagentRunId":"s","role":"tool","metadata":{"k":1}}`},
			`[` + held + `,{"id":"x","role":"tool","toolCallId":"c","content":"1"},{"id":"y","role":"tool","toolCallId":"c","content":[{"type":"text","text":"2"}],"subagentRunId":"s","metadata":{"k":1}},{"id":"n","role":"assistant","content":""}]`, "", nil},
		{"without a call: at the end", []string{call, `{"type":"TOOL_CALL_RESULT","messageId":"x","toolCallId":"?","content":""}`},
			`[` + held + `,{"id":"x","role":"tool","toolCallId":"?","content":""}]`, "", []agui.Code{agui.ToolResultOrphaned}},
		{"the same id again replaces", []string{call, `{"type":"TOOL_CALL_RESULT","messageId":"x","toolCallId":"c","content":"1"}`, `{"type":"TOOL_CALL_RESULT","messageId":"x","toolCallId":"c","content":"2"}`},
			`[` + held + `,{"id":"x","role":"tool","toolCallId":"c","content":"2"}]`, "", nil},
		{"an id of another message", []string{call, `{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":"1"}`}, `[` + held + `]`, "", []agui.Code{agui.TargetConflict}},
	})
}
