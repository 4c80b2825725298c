package agui

import (
	"strings"
	"testing"
)

// fullEvents holds an event of every type with every field that its shape has.
var fullEvents = []string{
	`{"type":"RUN_STARTED","threadId":"t","runId":"r","parentRunId":"p","protocolVersion":"1.1","input":` + fullInput + baseMembers,
	`{"type":"RUN_FINISHED","threadId":"t","runId":"r","result":{"a":null},"outcome":{"type":"interrupt","interrupts":[{"id":"i","reason":"r","message":"m","toolCallId":"c","responseSchema":{"type":"object"},"expiresAt":"soon","subagentRunId":"s","metadata":{}}]},"usage":` + fullUsage + baseMembers,
	`{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"success","pendingToolCallIds":["c"]}}`,
	`{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"cancelled"}}`,
	`{"type":"RUN_ERROR","message":"m","code":"c","usage":` + fullUsage + baseMembers,
	`{"type":"STEP_STARTED","stepName":"s"` + ownedMembers,
	`{"type":"STEP_FINISHED","stepName":"s"` + ownedMembers,
	`{"type":"TEXT_MESSAGE_START","messageId":"m","role":"developer","name":"n"` + ownedMembers,
	`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":""` + ownedMembers,
	`{"type":"TEXT_MESSAGE_END","messageId":"m"` + ownedMembers,
	`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m","role":"system","delta":"d","name":"n"` + ownedMembers,
	`{"type":"TEXT_MESSAGE_CHUNK"}`,
	`{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"n","parentMessageId":"m"` + ownedMembers,
	`{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"{"` + ownedMembers,
	`{"type":"TOOL_CALL_END","toolCallId":"c"` + ownedMembers,
	`{"type":"TOOL_CALL_CHUNK","toolCallId":"c","toolCallName":"n","parentMessageId":"m","delta":"d"` + ownedMembers,
	`{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":` + fullParts + `,"role":"tool"` + ownedMembers,
	`{"type":"STATE_SNAPSHOT","snapshot":false` + ownedMembers,
	`{"type":"STATE_DELTA","delta":[{"op":"add","path":"/a","value":1,"x":2}]` + ownedMembers,
	`{"type":"MESSAGES_SNAPSHOT","messages":` + fullMessages + baseMembers,
	`{"type":"ACTIVITY_SNAPSHOT","messageId":"m","activityType":"a","content":{"k":[]},"replace":true` + ownedMembers,
	`{"type":"ACTIVITY_DELTA","messageId":"m","activityType":"a","patch":[]` + ownedMembers,
	`{"type":"REASONING_START","messageId":"m"` + ownedMembers,
	`{"type":"REASONING_END","messageId":"m"` + ownedMembers,
	`{"type":"REASONING_MESSAGE_START","messageId":"m","role":"reasoning"` + ownedMembers,
	`{"type":"REASONING_MESSAGE_CONTENT","messageId":"m","delta":"d"` + ownedMembers,
	`{"type":"REASONING_MESSAGE_END","messageId":"m"` + ownedMembers,
	`{"type":"REASONING_MESSAGE_CHUNK","messageId":"m","delta":"d"` + ownedMembers,
	`{"type":"REASONING_ENCRYPTED_VALUE","subtype":"message","entityId":"e","encryptedValue":"v","encryptedValueType":"t"` + ownedMembers,
	`{"type":"SUBAGENT_STARTED","subagentRunId":"s","name":"n","description":"d","parentSubagentRunId":"p","parentToolCallId":"c","parentMessageId":"m"` + baseMembers,
	`{"type":"SUBAGENT_FINISHED","subagentRunId":"s","result":0,"outcome":{"type":"suspended","interruptIds":["i"]}` + baseMembers,
	`{"type":"SUBAGENT_FINISHED","subagentRunId":"s","outcome":{"type":"success"}}`,
	`{"type":"SUBAGENT_ERROR","subagentRunId":"s","message":"m","code":"c"` + baseMembers,
	`{"type":"RAW","event":{"type":"x"},"source":"s"` + ownedMembers,
	`{"type":"CUSTOM","name":"n","value":null` + ownedMembers,
	`{"type":"THINKING_START","title":"t"` + baseMembers,
	`{"type":"THINKING_END"` + baseMembers,
	`{"type":"THINKING_TEXT_MESSAGE_START"` + baseMembers,
	`{"type":"THINKING_TEXT_MESSAGE_CONTENT","delta":"d"` + baseMembers,
	`{"type":"THINKING_TEXT_MESSAGE_END"` + baseMembers,
}

// What every event may carry, and what an event carries that may belong to a subagent.
const (
	baseMembers  = `,"timestamp":1765000000000,"rawEvent":{"x":1},"metadata":{"x":null}}`
	ownedMembers = `,"subagentRunId":"s"` + baseMembers

	fullUsage = `[{"provider":"p","model":"m","inputTokens":1,"outputTokens":2,"totalTokens":3,"reasoningTokens":1,"cachedInputTokens":0,"cacheWriteInputTokens":0}]`
	fullParts = `[{"type":"text","id":"p","text":"t","metadata":1},{"type":"image","id":"p","source":{"type":"data","value":"v","mimeType":"m"},"metadata":"x"},` +
		`{"type":"audio","source":{"type":"url","value":"v","mimeType":"m"}},{"type":"video","source":{"type":"file","value":"v","provider":"p","mimeType":"m"}},` +
		`{"type":"document","source":{"type":"url","value":"v"}}]`
	messageMembers = `,"subagentRunId":"s","encryptedValue":"v","encryptedValueType":"t","metadata":{"x":1}}`
	fullMessages   = `[{"id":"1","role":"developer","content":"c","name":"n"` + messageMembers + `,{"id":"2","role":"system","content":"c","name":"n"` + messageMembers +
		`,{"id":"3","role":"assistant","content":"c","name":"n","toolCalls":[{"id":"c","type":"function","function":{"name":"n","arguments":"a"},"encryptedValue":"v","encryptedValueType":"t","metadata":{}}]` + messageMembers +
		`,{"id":"4","role":"user","content":` + fullParts + `,"name":"n"` + messageMembers + `,{"id":"5","role":"user","content":"c"},{"id":"6","role":"assistant"}` +
		`,{"id":"7","role":"tool","content":` + fullParts + `,"toolCallId":"c","error":"e"` + messageMembers +
		`,{"id":"8","role":"activity","activityType":"a","content":{"x":1},"subagentRunId":"s","metadata":{}}` +
		`,{"id":"9","role":"reasoning","content":"c"` + messageMembers + `]`
	fullInput = `{"threadId":"t","runId":"r","parentRunId":"p","protocolVersion":"1.0","state":0,"messages":` + fullMessages +
		`,"tools":[{"name":"n","description":"d","parameters":{"x":1},"metadata":{}}],"context":[{"description":"d","value":"v"}],"forwardedProps":[],` +
		`"resume":[{"interruptId":"i","status":"resolved","payload":{"x":1},"metadata":{}}]}`
)

func TestEveryEventDecodesQuietly(t *testing.T) {
	t.Parallel()
	seen := map[EventType]bool{}
	for _, text := range fullEvents {
		event, warnings, v := Decode([]byte(text), DefaultLimits())
		if v != nil || len(warnings) > 0 || string(event.Text) != text {
			t.Errorf("%s: %v %v %s", text, warnings, v, event.Text)
		}
		seen[event.Type] = true
	}
	if len(seen) != 36 || len(eventShapes) != 36 {
		t.Errorf("%d types decoded, %d have shapes, want 31 and 5 retired ones", len(seen), len(eventShapes))
	}
	if event, warnings, v := DecodeInput([]byte(fullInput), DefaultLimits()); v != nil || len(warnings) > 0 || string(event.Text) != fullInput {
		t.Errorf("input: %v %v", warnings, v)
	}
}

// Every field of every event, one at a time: required ones are missed, optional ones are not, and none may be null
// unless its value is free.
func TestEveryFieldIsJudged(t *testing.T) {
	t.Parallel()
	done := map[*shape]bool{}
	for _, text := range fullEvents {
		event, _, _ := Decode([]byte(text), DefaultLimits())
		s := eventShapes[string(event.Type)]
		if done[s] {
			continue
		}
		done[s] = true
		for _, f := range s.fields {
			value, _ := findMember([]byte(text), 1, f.name)
			if value < 0 {
				t.Fatalf("%s: the example lacks %s", event.Type, f.name)
			}
			end := skipValue([]byte(text), value)
			checkField(t, f, text[:value]+"null"+text[end:], FieldMalformed, f.shape.kind == kindAny)
			renamed := strings.Replace(text, `"`+f.name+`":`+text[value:end], `"xX":`+text[value:end], 1)
			checkField(t, f, renamed, FieldMissing, !f.required)
		}
	}
}

func checkField(t *testing.T, f shapeField, text string, code Code, ok bool) {
	t.Helper()
	_, _, v := Decode([]byte(text), DefaultLimits())
	switch {
	case ok && v != nil:
		t.Errorf("%s: %v", text, v)
	case !ok && (v == nil || v.Path != "/"+f.name || v.Code != code && v.Code != PatchMalformed):
		t.Errorf("%s: %v, want %s at /%s", text, v, code, f.name)
	}
}
