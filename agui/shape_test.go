package agui

import (
	"strings"
	"testing"
)

func TestStripping(t *testing.T) {
	t.Parallel()
	one := []string{"PROPERTY_UNKNOWN /x"}
	runDecodeCases(t, Decode, []decodeCase{
		{name: "first", text: `{"x":{"a":[1,"}"]}, "type":"RAW","event":1}`, want: `{"type":"RAW","event":1}`, found: one},
		{name: "middle", text: `{"type":"RAW" , "x":null , "event":1}`, want: `{"type":"RAW" , "event":1}`, found: one},
		{name: "last", text: "{\"type\":\"RAW\",\"event\":1 ,\n \"x\":\"\\\"\" }", want: "{\"type\":\"RAW\",\"event\":1 }", found: one},
		{name: "several first", text: `{"x":1,"y":2,"type":"RAW","event":1}`, want: `{"type":"RAW","event":1}`,
			found: []string{"PROPERTY_UNKNOWN /x", "PROPERTY_UNKNOWN /y"}},
		{name: "several last", text: `{"type":"RAW","event":1,"x":1,"y":2}`, want: `{"type":"RAW","event":1}`,
			found: []string{"PROPERTY_UNKNOWN /x", "PROPERTY_UNKNOWN /y"}},
		{name: "around", text: `{"x":1,"type":"RAW","y":2,"event":1,"z":3}`, want: `{"type":"RAW","event":1}`,
			found: []string{"PROPERTY_UNKNOWN /x", "PROPERTY_UNKNOWN /y", "PROPERTY_UNKNOWN /z"}},
		{name: "pointer escapes", text: `{"type":"RAW","event":1,"a/b~c\"\u00e9":1}`, want: `{"type":"RAW","event":1}`,
			found: []string{`PROPERTY_UNKNOWN /a~1b~0c"é`}},
		{name: "unshowable name", text: `{"type":"RAW","event":1,"\u0000\ud800x":1,"":2}`, want: `{"type":"RAW","event":1}`,
			found: []string{"PROPERTY_UNKNOWN /\uFFFD\uFFFDx", "PROPERTY_UNKNOWN /"}},
		{name: "nested", found: []string{"PROPERTY_UNKNOWN /input/tools/0/strict", "PROPERTY_UNKNOWN /input/y"},
			text: `{"type":"RUN_STARTED","threadId":"t","runId":"r","input":{"tools":[{"strict":true,"name":"n","description":"d","metadata":{"strict":1}}],"threadId":"t","runId":"r","messages":[],"y":0}}`,
			want: `{"type":"RUN_STARTED","threadId":"t","runId":"r","input":{"tools":[{"name":"n","description":"d","metadata":{"strict":1}}],"threadId":"t","runId":"r","messages":[]}}`},
		{name: "only unknown", text: `{"type":"RUN_ERROR","message":"m","usage":[{"x":1},{ "x":2 }]}`,
			want:  `{"type":"RUN_ERROR","message":"m","usage":[{},{  }]}`,
			found: []string{"PROPERTY_UNKNOWN /usage/0/x", "PROPERTY_UNKNOWN /usage/1/x"}},
		{name: "another event's field", text: `{"type":"RUN_ERROR","message":"m","subagentRunId":"s"}`,
			want: `{"type":"RUN_ERROR","message":"m"}`, found: []string{"PROPERTY_UNKNOWN /subagentRunId"}},
		{name: "open objects", text: `{"type":"ACTIVITY_SNAPSHOT","messageId":"m","activityType":"a","content":{"x":1},"metadata":{"x":1,"x":2},"rawEvent":{"x":1}}`},
	})
}

func TestRepeatedNames(t *testing.T) {
	t.Parallel()
	runDecodeCases(t, Decode, []decodeCase{
		{name: "known", text: `{"type":"RAW","event":1,"event":1}`, found: []string{"JSON_MALFORMED /event"}},
		{name: "known by escape", text: `{"type":"RAW","event":1,"\u0065vent":1}`, found: []string{"JSON_MALFORMED /event"}},
		{name: "unknown", text: `{"type":"RAW","x":1,"event":1,"y":2,"\u0078":1}`, found: []string{"JSON_MALFORMED /x"}},
		{name: "outranks a wrong type", text: `{"type":"RAW","source":1,"event":1,"event":1}`, found: []string{"JSON_MALFORMED /event"}},
		{name: "nested", text: `{"type":"RUN_ERROR","message":"m","usage":[{},{"model":"a","model":"a"}]}`,
			found: []string{"JSON_MALFORMED /usage/1/model"}},
		{name: "in a union's tag", text: `{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"a","role":"x","role":"user"}]}`,
			found: []string{"JSON_MALFORMED /messages/0/role"}},
		{name: "same unknown name in two objects", text: `{"type":"RUN_ERROR","message":"m","x":1,"usage":[{"x":1}]}`,
			want:  `{"type":"RUN_ERROR","message":"m","usage":[{}]}`,
			found: []string{"PROPERTY_UNKNOWN /x", "PROPERTY_UNKNOWN /usage/0/x"}},
	})
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	finished := func(outcome string) string {
		return `{"type":"RUN_FINISHED","threadId":"t","runId":"r"` + outcome + `}`
	}
	runDecodeCases(t, Decode, []decodeCase{
		{name: "unknown outcome", text: finished(`,"outcome":{"type":"paused","x":1}`), want: finished(""),
			found: []string{"MEMBER_UNKNOWN /outcome"}},
		{name: "outcome without type", text: finished(`,"outcome":{}`), want: finished(""), found: []string{"MEMBER_UNKNOWN /outcome"}},
		{name: "outcome with a number", text: finished(`,"outcome":{"type":1}`), want: finished(""), found: []string{"MEMBER_UNKNOWN /outcome"}},
		{name: "outcome array", text: finished(`,"outcome":[]`), found: []string{"FIELD_MALFORMED /outcome"}},
		{name: "outcome string", text: finished(`,"outcome":"success"`), found: []string{"FIELD_MALFORMED /outcome"}},
		{name: "outcome null", text: finished(`,"outcome":null`), found: []string{"FIELD_MALFORMED /outcome"}},
		{name: "no interrupts", text: finished(`,"outcome":{"type":"interrupt","interrupts":[]}`),
			found: []string{"FIELD_MALFORMED /outcome/interrupts"}},
		{name: "interrupts missing", text: finished(`,"outcome":{"type":"interrupt"}`), found: []string{"FIELD_MISSING /outcome/interrupts"}},
		{name: "sibling's field", text: finished(`,"outcome":{"type":"cancelled","interrupts":[]}`),
			want: finished(`,"outcome":{"type":"cancelled"}`), found: []string{"PROPERTY_UNKNOWN /outcome/interrupts"}},
		{name: "pending ids", text: finished(`,"outcome":{"type":"success","pendingToolCallIds":["a",""]}`),
			found: []string{"ID_INVALID /outcome/pendingToolCallIds/1"}},
		{name: "subagent outcome", text: `{"type":"SUBAGENT_FINISHED","subagentRunId":"s","outcome":{"type":"interrupt"}}`,
			want: `{"type":"SUBAGENT_FINISHED","subagentRunId":"s"}`, found: []string{"MEMBER_UNKNOWN /outcome"}},
	})
}

func TestMessagesAndParts(t *testing.T) {
	t.Parallel()
	messages := func(list string) string { return `{"type":"MESSAGES_SNAPSHOT","messages":[` + list + `]}` }
	parts := func(list string) string { return messages(`{"id":"u","role":"user","content":[` + list + `]}`) }
	text, user := `{"type":"text","text":"x"}`, `{"id":"u","role":"user","content":""}`
	runDecodeCases(t, Decode, []decodeCase{
		{name: "unknown role", text: messages(user + `, {"id":7,"role":"critic"} ,` + user), want: messages(user + ` ,` + user),
			found: []string{"MEMBER_UNKNOWN /messages/1"}},
		{name: "no role", text: messages(`{"id":"a"}`), want: messages(""), found: []string{"MEMBER_UNKNOWN /messages/0"}},
		{name: "a string for a message", text: messages(`"hi"`), found: []string{"FIELD_MALFORMED /messages/0"}},
		{name: "unknown part", text: parts(`{"type":"hologram","beam":1},` + text), want: parts(text),
			found: []string{"MEMBER_UNKNOWN /messages/0/content/0"}},
		{name: "all parts unknown", text: parts(`{"type":"a"},{"type":"b"}`), want: parts(""),
			found: []string{"MEMBER_UNKNOWN /messages/0/content/0", "MEMBER_UNKNOWN /messages/0/content/1"}},
		{name: "cascade", text: parts(text + `,{"x":1,"type":"image","source":{"type":"quantum","value":1},"id":5}`), want: parts(text),
			found: []string{"MEMBER_UNKNOWN /messages/0/content/1"}},
		{name: "cascade forgives the rest", text: parts(`{"id":5,"type":"image","source":{"type":"quantum"}},` + text), want: parts(text),
			found: []string{"MEMBER_UNKNOWN /messages/0/content/0"}},
		{name: "cascade forgives no repetition", text: parts(`{"id":"a","type":"image","source":{"type":"quantum"},"id":"a"}`),
			found: []string{"JSON_MALFORMED /messages/0/content/0/id"}},
		{name: "violation before a cascade stays", text: parts(`{"type":"text"},{"type":"image","source":{"type":"quantum"}}`),
			found: []string{"FIELD_MISSING /messages/0/content/0/text"}},
		{name: "source array", text: parts(`{"type":"image","source":[]}`), found: []string{"FIELD_MALFORMED /messages/0/content/0/source"}},
		{name: "source without MIME type", text: parts(`{"type":"image","source":{"type":"data","value":"x"}}`),
			found: []string{"FIELD_MISSING /messages/0/content/0/source/mimeType"}},
		{name: "strip in a kept part", text: parts(`{"type":"image","source":{"type":"file","value":"x","size":1}}`),
			want:  parts(`{"type":"image","source":{"type":"file","value":"x"}}`),
			found: []string{"PROPERTY_UNKNOWN /messages/0/content/0/source/size"}},
		{name: "part of a tool result", found: []string{"MEMBER_UNKNOWN /content/0"},
			text: `{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":[{"type":"embed"}]}`,
			want: `{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":[]}`},
		{name: "tool calls", text: messages(`{"id":"a","role":"assistant","toolCalls":[{"id":"c","type":"server","function":{"name":"n","arguments":"{"}}]}`),
			found: []string{"FIELD_MALFORMED /messages/0/toolCalls/0/type"}},
		{name: "parts for an assistant", text: messages(`{"id":"a","role":"assistant","content":[]}`),
			found: []string{"FIELD_MALFORMED /messages/0/content"}},
	})
}

func TestValues(t *testing.T) {
	t.Parallel()
	raw := func(member string) string { return `{"type":"RAW","event":1,` + member + `}` }
	malformed := func(path string) []string { return []string{"FIELD_MALFORMED " + path} }
	runDecodeCases(t, Decode, []decodeCase{
		{name: "missing", text: `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m"}`, found: []string{"FIELD_MISSING /delta"}},
		{name: "subagent without name", text: `{"type":"SUBAGENT_STARTED","subagentRunId":"s"}`, found: []string{"FIELD_MISSING /name"}},
		{name: "null string", text: `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":null}`, found: malformed("/delta")},
		{name: "number string", text: `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":42}`, found: malformed("/delta")},
		{name: "null id", text: `{"type":"TEXT_MESSAGE_END","messageId":null}`, found: malformed("/messageId")},
		{name: "null tag", text: raw(`"subagentRunId":null`), found: malformed("/subagentRunId")},
		{name: "null metadata", text: raw(`"metadata":null`), found: malformed("/metadata")},
		{name: "array metadata", text: raw(`"metadata":[]`), found: malformed("/metadata")},
		{name: "null rawEvent", text: raw(`"rawEvent":null`), found: malformed("/rawEvent")},
		{name: "false rawEvent", text: raw(`"rawEvent":false`)},
		{name: "null event", text: `{"type":"RAW","event":null}`},
		{name: "role", text: `{"type":"TEXT_MESSAGE_START","messageId":"m","role":"tool"}`, found: malformed("/role")},
		{name: "role type", text: `{"type":"TEXT_MESSAGE_CHUNK","role":0}`, found: malformed("/role")},
		{name: "required role", text: `{"type":"REASONING_MESSAGE_START","messageId":"m"}`, found: []string{"FIELD_MISSING /role"}},
		{name: "bool", text: `{"type":"ACTIVITY_SNAPSHOT","messageId":"m","activityType":"a","content":{},"replace":"true"}`, found: malformed("/replace")},
		{name: "open object", text: `{"type":"ACTIVITY_SNAPSHOT","messageId":"m","activityType":"a","content":[]}`, found: malformed("/content")},
		{name: "string or parts", text: `{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":{}}`, found: malformed("/content")},
		{name: "array", text: `{"type":"MESSAGES_SNAPSHOT","messages":{}}`, found: malformed("/messages")},
		{name: "closed object", text: `{"type":"RUN_STARTED","threadId":"t","runId":"r","input":[]}`, found: malformed("/input")},
		{name: "echoed input needs messages", text: `{"type":"RUN_STARTED","threadId":"t","runId":"r","input":{"threadId":"t","runId":"r"}}`,
			found: []string{"FIELD_MISSING /input/messages"}},
		{name: "first violation", text: `{"type":"TEXT_MESSAGE_START","role":1,"name":2}`, found: malformed("/role")},
		{name: "lone surrogate in text", text: `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"\ud83d"}`},
		{name: "thinking", text: `{"type":"THINKING_START","title":1}`, found: malformed("/title")},
		{name: "thinking content", text: `{"type":"THINKING_TEXT_MESSAGE_CONTENT"}`, found: []string{"FIELD_MISSING /delta"}},
		{name: "thinking tag", text: `{"type":"THINKING_END","subagentRunId":"s"}`, want: `{"type":"THINKING_END"}`,
			found: []string{"PROPERTY_UNKNOWN /subagentRunId"}},
	})
}

func TestIntegers(t *testing.T) {
	t.Parallel()
	var cases []decodeCase
	for number, valid := range map[string]bool{
		"0": true, "-0": true, "1.0": true, "10e-1": true, "1E3": true, "9007199254740991": true, "-9007199254740991": true,
		"90071992547409910e-1": true, "0e999999999999999999999": true, "0.0000e-5": true, "12.50e1": true,
		"9007199254740992": false, "-9007199254740992": false, "0.5": false, "1e-1": false, "1e400": false, "1e-99999999999999999999": false,
		"1e16": false, "123456789012345678901234567890": false, `"1"`: false, "null": false, "true": false, "[]": false,
	} {
		c := decodeCase{name: "integer " + number, text: `{"type":"RAW","event":1,"timestamp":` + number + `}`}
		if !valid {
			c.found = []string{"FIELD_MALFORMED /timestamp"}
		}
		cases = append(cases, c)
	}
	count := func(n string) string { return `{"type":"RUN_ERROR","message":"m","usage":[{"inputTokens":` + n + `}]}` }
	cases = append(cases,
		decodeCase{name: "negative count", text: count("-1"), found: []string{"FIELD_MALFORMED /usage/0/inputTokens"}},
		decodeCase{name: "zero count", text: count("-0.0")})
	runDecodeCases(t, Decode, cases)
}

func TestIdentifiers(t *testing.T) {
	t.Parallel()
	end := func(id string) string { return `{"type":"TEXT_MESSAGE_END","messageId":"` + id + `"}` }
	invalid := []string{"ID_INVALID /messageId"}
	runDecodeCases(t, Decode, []decodeCase{
		{name: "empty", text: end(""), found: invalid},
		{name: "longest", text: end(strings.Repeat("é", MaxIDBytes/2))},
		{name: "too long", text: end(strings.Repeat("é", MaxIDBytes/2) + "x"), found: invalid},
		{name: "longest by escapes", text: end(strings.Repeat(`\u0041`, MaxIDBytes))},
		{name: "too long by escapes", text: end(strings.Repeat(`\u00e9`, MaxIDBytes/2) + "x"), found: invalid},
		{name: "NUL", text: end(`a\u0000`), found: invalid},
		{name: "high surrogate", text: end(`a\ud83d`), found: invalid},
		{name: "low surrogate", text: end(`\ude00a`), found: invalid},
		{name: "pair", text: end(`\ud83d\ude00`)},
		{name: "neighbours of the surrogates", text: end(`\ud7ff\ue000\n`)},
		{name: "nested", text: `{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"","role":"assistant"}]}`,
			found: []string{"ID_INVALID /messages/0/id"}},
		{name: "display names are free", text: `{"type":"TEXT_MESSAGE_START","messageId":"m","name":""}`},
	})
}

func TestPatches(t *testing.T) {
	t.Parallel()
	delta := func(ops string) string { return `{"type":"STATE_DELTA","delta":` + ops + `}` }
	malformed := func(path string) []string { return []string{"PATCH_MALFORMED " + path} }
	runDecodeCases(t, Decode, []decodeCase{
		{name: "empty", text: delta(`[]`)},
		{name: "all operations", text: delta(`[{"op":"add","path":"","value":null},{"op":"remove","path":"/a~0b~1c/0"},{"op":"replace","path":"/","value":1e400},
			{"op":"move","from":"/a","path":"/b"},{"op":"copy","path":"//","from":""},{"op":"test","path":"/\u007e0","value":[]}]`)},
		{name: "extra members", text: delta(`[{"op":"remove","path":"/a","value":1,"from":7,"x":1,"x":2}]`)},
		{name: "object", text: delta(`{}`), found: malformed("/delta")},
		{name: "null", text: delta(`null`), found: malformed("/delta")},
		{name: "string operation", text: delta(`["add"]`), found: malformed("/delta/0")},
		{name: "no op", text: delta(`[{"path":"/a"}]`), found: malformed("/delta/0/op")},
		{name: "op number", text: delta(`[{"op":1,"path":"/a"}]`), found: malformed("/delta/0/op")},
		{name: "no path", text: delta(`[{"op":"remove"}]`), found: malformed("/delta/0/path")},
		{name: "path null", text: delta(`[{"op":"remove","path":null}]`), found: malformed("/delta/0/path")},
		{name: "path without slash", text: delta(`[{"op":"remove","path":"a"}]`), found: malformed("/delta/0/path")},
		{name: "bare tilde", text: delta(`[{"op":"remove","path":"/a~"}]`), found: malformed("/delta/0/path")},
		{name: "tilde two", text: delta(`[{"op":"remove","path":"/a\u007e2"}]`), found: malformed("/delta/0/path")},
		{name: "no value", text: delta(`[{"op":"add","path":""},{"op":"zap"}]`), found: malformed("/delta/0/value")},
		{name: "no from", text: delta(`[{"op":"remove","path":""},{"op":"copy","path":"/a"}]`), found: malformed("/delta/1/from")},
		{name: "bad from", text: delta(`[{"op":"move","path":"/a","from":"b"}]`), found: malformed("/delta/0/from")},
		{name: "repeated op", text: delta(`[{"op":"zap","op":"add","path":"/a","value":1}]`), found: malformed("/delta/0/op")},
		{name: "repeated path", text: delta(`[{"op":"remove","path":"/a","p\u0061th":"/a"}]`), found: malformed("/delta/0/path")},
		{name: "unknown op", text: delta(`[{"op":"zap"}, {"op":"remove","path":"/a"}]`), want: delta(`[{"op":"remove","path":"/a"}]`),
			found: []string{"OPERATION_UNKNOWN /delta/0"}},
		{name: "unknown ops only", text: delta(`[ {"op":"zap"},{"op":"Add"} ]`), want: delta(`[  ]`),
			found: []string{"OPERATION_UNKNOWN /delta/0", "OPERATION_UNKNOWN /delta/1"}},
		{name: "activity", text: `{"type":"ACTIVITY_DELTA","messageId":"m","activityType":"a","patch":[{"op":"remove","path":"x"}]}`,
			found: malformed("/patch/0/path")},
		{name: "activity patch missing", text: `{"type":"ACTIVITY_DELTA","messageId":"m","activityType":"a"}`, found: []string{"FIELD_MISSING /patch"}},
	})
}

func TestRemoved(t *testing.T) {
	t.Parallel()
	text := `{"type":"STATE_DELTA","delta":[{"op":"zap","path":"/a"},{"op":"remove","path":"/a"}],"x":[1, 2]}`
	_, warnings, v := Decode([]byte(text), DefaultLimits())
	if v != nil || len(warnings) != 2 {
		t.Fatal(warnings, v)
	}
	for i, want := range []Warning{
		{Code: OperationUnknown, Path: "/delta/0", Detail: "zap", Removed: Value(`{"op":"zap","path":"/a"}`)},
		{Code: PropertyUnknown, Path: "/x", Detail: "STATE_DELTA", Removed: Value(`[1, 2]`)},
	} {
		got := warnings[i]
		if got.Code != want.Code || got.Path != want.Path || got.Detail != want.Detail || string(got.Removed) != string(want.Removed) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}
