package agui

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unsafe"
)

// found is what a decoding found, in one line per item: "CODE path".
func found(warnings []Warning, v *Violation) []string {
	var lines []string
	for _, w := range warnings {
		lines = append(lines, string(w.Code)+" "+w.Path)
	}
	if v != nil {
		lines = append(lines, string(v.Code)+" "+v.Path)
	}
	return lines
}

// decodeCase is one row of a table: a text, its canonical text ("" for the text itself, "-" for none), and what is found.
type decodeCase struct {
	name, text, want string
	found            []string
}

func runDecodeCases(t *testing.T, decode func([]byte, Limits) (Event, []Warning, *Violation), cases []decodeCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			event, warnings, v := decode([]byte(c.text), DefaultLimits())
			if got := found(warnings, v); !reflect.DeepEqual(got, c.found) {
				t.Fatalf("found %q, want %q", got, c.found)
			}
			want := c.want
			switch {
			case want == "-" || v != nil:
				want = ""
			case want == "":
				want = c.text
			}
			if string(event.Text) != want {
				t.Errorf("text\n got %s\nwant %s", event.Text, want)
			}
		})
	}
}

func TestDecodeJSON(t *testing.T) {
	t.Parallel()
	malformed, deep := []string{"JSON_MALFORMED "}, strings.Repeat("[", 511)+strings.Repeat("]", 511)
	runDecodeCases(t, Decode, []decodeCase{
		{name: "empty", text: "", found: malformed},
		{name: "array", text: `[]`, found: malformed},
		{name: "string", text: `"RAW"`, found: malformed},
		{name: "byte order mark", text: "\uFEFF" + `{"type":"RAW","event":1}`, found: malformed},
		{name: "trailing data", text: `{"type":"RAW","event":1} {}`, found: malformed},
		{name: "unfinished", text: `{"type":"RAW","event":1`, found: malformed},
		{name: "trailing comma", text: `{"type":"RAW","event":1,}`, found: malformed},
		{name: "element comma", text: `{"type":"RAW","event":[1,]}`, found: malformed},
		{name: "unquoted name", text: `{type:"RAW","event":1}`, found: malformed},
		{name: "control character", text: "{\"type\":\"RAW\",\"event\":\"a\nb\"}", found: malformed},
		{name: "bad escape", text: `{"type":"RAW","event":"\x"}`, found: malformed},
		{name: "short escape", text: `{"type":"RAW","event":"\u12"}`, found: malformed},
		{name: "leading zero", text: `{"type":"RAW","event":01}`, found: malformed},
		{name: "bare minus", text: `{"type":"RAW","event":-}`, found: malformed},
		{name: "bare point", text: `{"type":"RAW","event":1.}`, found: malformed},
		{name: "bare exponent", text: `{"type":"RAW","event":1e+}`, found: malformed},
		{name: "word", text: `{"type":"RAW","event":nul}`, found: malformed},
		{name: "invalid UTF-8", text: "{\"type\":\"RAW\",\"event\":\"\xff\"}", found: malformed},
		{name: "raw surrogate", text: "{\"type\":\"RAW\",\"event\":\"\xed\xa0\x80\"}", found: malformed},
		{name: "malformed after a wrong type", text: `{"type":"RAW","event":1,"source":2,}`, found: malformed},
		{name: "at the depth limit", text: `{"type":"RAW","event":` + deep + `}`},
		{name: "beyond the depth limit", text: `{"type":"RAW","event":[` + deep + `]}`, found: []string{"JSON_TOO_DEEP "}},
		{name: "unclosed and too deep", text: strings.Repeat(`[`, 1<<20), found: []string{"JSON_TOO_DEEP "}},
		{name: "legal oddities", text: `{"type":"RAW","event":{"\ud800":"\u0000\udfff","a":1e400,"a":1.10,"":-0E-0}}`},
		{name: "white space", text: " \r\n\t{ \"type\" : \"RAW\" , \"event\" : [ ] } \n"},
	})
}

func TestDecodeEventType(t *testing.T) {
	t.Parallel()
	runDecodeCases(t, Decode, []decodeCase{
		{name: "missing", text: `{"messageId":"m"}`, found: []string{"FIELD_MISSING /type"}},
		{name: "number", text: `{"type":7}`, found: []string{"FIELD_MALFORMED /type"}},
		{name: "null", text: `{"type":null}`, found: []string{"FIELD_MALFORMED /type"}},
		{name: "unknown", text: `{"type":"FUTURE","x":{"y":1}}`, want: "-", found: []string{"EVENT_UNKNOWN /type"}},
		{name: "empty", text: `{"type":""}`, want: "-", found: []string{"EVENT_UNKNOWN /type"}},
		{name: "case", text: `{"type":"raw"}`, want: "-", found: []string{"EVENT_UNKNOWN /type"}},
		{name: "escaped", text: `{"ty\u0070e":"\u0052AW","event":null}`},
		{name: "last", text: `{"event":{"type":"CUSTOM"},"type":"RAW"}`},
		{name: "repeated", text: `{"type":"RAW","event":1,"type":"RAW"}`, found: []string{"JSON_MALFORMED /type"}},
		{name: "unknown, then known", text: `{"type":"X","event":1,"type":"RAW"}`, found: []string{"JSON_MALFORMED /type"}},
		{name: "unknown subtype", text: `{"type":"REASONING_ENCRYPTED_VALUE","subtype":"tool","entityId":7,"encryptedValue":"v"}`,
			want: "-", found: []string{"MEMBER_UNKNOWN /subtype"}},
		{name: "subtype of a wrong type", text: `{"type":"REASONING_ENCRYPTED_VALUE","subtype":null,"entityId":"e","encryptedValue":"v"}`,
			found: []string{"FIELD_MALFORMED /subtype"}},
		{name: "subtype repeated", text: `{"type":"REASONING_ENCRYPTED_VALUE","subtype":"x","entityId":"e","encryptedValue":"v","subtype":"message"}`,
			found: []string{"JSON_MALFORMED /subtype"}},
	})
}

func TestDecodeDropped(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Warning{
		`{"type":"NEWER\u0000\ud800","secret":1}`:             {Code: EventUnknown, Path: "/type", Detail: "NEWER\uFFFD\uFFFD"},
		`{"type":"REASONING_ENCRYPTED_VALUE","subtype":"v2"}`: {Code: MemberUnknown, Path: "/subtype", Detail: "v2"},
	} {
		event, warnings, v := Decode([]byte(text), DefaultLimits())
		want.Removed = Value(text)
		if v != nil || !reflect.DeepEqual(warnings, []Warning{want}) {
			t.Errorf("%s: %v, %v", text, warnings, v)
		}
		if !reflect.DeepEqual(event, Event{Type: event.Type}) || event.Type == "" {
			t.Errorf("%s: event %+v", text, event)
		}
	}
	long := strings.Repeat("Ü", 100)
	_, warnings, _ := Decode([]byte(`{"type":"`+long+`"}`), DefaultLimits())
	if d := warnings[0].Detail; len(d) > maxShownTag || !strings.HasSuffix(d, "Ü…") {
		t.Errorf("detail of a long type: %q", d)
	}
}

func TestDecodeTooLarge(t *testing.T) {
	t.Parallel()
	lim := DefaultLimits()
	text := []byte(`{"type":"RAW","event":1}`)
	lim.Event = len(text)
	if _, _, v := Decode(text, lim); v != nil {
		t.Errorf("at the limit: %v", v)
	}
	lim.Event--
	_, _, v := Decode(text, lim)
	if v == nil || v.Code != EventTooLarge || v.Detail != "24 bytes, the limit is 23" || v.Fatal() {
		t.Errorf("beyond the limit: %v", v)
	}
	binary := `{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":[{"type":"binary","mimeType":"","url":"u"}]}`
	lim.Event = len(binary)
	if _, _, v := Decode([]byte(binary), lim); v == nil || v.Code != EventTooLarge {
		t.Errorf("upgraded beyond the limit: %v", v)
	}
	if _, _, v := DecodeInput([]byte(strings.Repeat("x", 1000)), lim); v == nil || v.Code != EventTooLarge {
		t.Errorf("the size must be judged first: %v", v)
	}
}

// Details may reach logs and status texts: what a producer sent must not.
func TestViolationsShowNoContent(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"type":"RAW","event":SECRET}`, `{"type":"RAW","event":"\SECRET"}`, `{"type":"RAW","event":1,"source":["SECRET"]}`,
		`{"type":"TEXT_MESSAGE_START","messageId":"m","role":"SECRET"}`,
		`{"type":"STATE_DELTA","delta":[{"op":"add","path":"SECRET","value":1}]}`,
		`{"type":"TEXT_MESSAGE_END","messageId":"SECRET\u0000"}`,
	} {
		_, _, v := Decode([]byte(text), DefaultLimits())
		if v == nil || strings.Contains(v.Error(), "SECRET") {
			t.Errorf("%s: %v", text, v)
		}
	}
}

func TestDecodeFields(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		want Event
	}{
		{`{"type":"TEXT_MESSAGE_START","messageId":"m\u00e9","role":"us\u0065r","name":"N","subagentRunId":"s","metadata":{"a":null},"timestamp":-1.0,"rawEvent":[]}`,
			Event{MessageID: "mé", Role: "user", Name: Value(`"N"`), SubagentRunID: "s", Metadata: Value(`{"a":null}`),
				Timestamp: Value(`-1.0`), RawEvent: Value(`[]`)}},
		{`{"type":"TOOL_CALL_CHUNK","toolCallId":"c","toolCallName":"n","parentMessageId":"p","delta":""}`,
			Event{ToolCallID: "c", ToolCallName: Value(`"n"`), ParentMessageID: "p", Delta: Value(`""`)}},
		{`{"type":"STATE_DELTA","delta":[ ]}`, Event{Patch: Value(`[ ]`)}},
		{`{"type":"STATE_SNAPSHOT","snapshot":null}`, Event{Snapshot: Value(`null`)}},
		{`{"type":"ACTIVITY_DELTA","messageId":"m","activityType":"A","patch":[]}`,
			Event{MessageID: "m", ActivityType: Value(`"A"`), Patch: Value(`[]`)}},
		{`{"type":"ACTIVITY_SNAPSHOT","messageId":"m","activityType":"A","content":{},"replace":false}`,
			Event{MessageID: "m", ActivityType: Value(`"A"`), Content: Value(`{}`), Keep: true}},
		{`{"type":"ACTIVITY_SNAPSHOT","messageId":"m","activityType":"A","content":{},"replace":true}`,
			Event{MessageID: "m", ActivityType: Value(`"A"`), Content: Value(`{}`)}},
		{`{"type":"RUN_ERROR","message":"M","code":"C","usage":[]}`,
			Event{Message: Value(`"M"`), Code: Value(`"C"`), Usage: Value(`[]`)}},
		{`{"type":"RUN_STARTED","threadId":"t","runId":"r","parentRunId":"p","protocolVersion":"1.1","input":{"threadId":"T","runId":"R","messages":[]}}`,
			Event{ThreadID: "t", RunID: "r", ParentRunID: "p", ProtocolVersion: Value(`"1.1"`),
				Input: Value(`{"threadId":"T","runId":"R","messages":[]}`)}},
		{`{"type":"RUN_FINISHED","threadId":"t","runId":"r","result":0,"outcome":{"type":"success"}}`,
			Event{ThreadID: "t", RunID: "r", Result: Value(`0`), Outcome: Value(`{"type":"success"}`)}},
		{`{"type":"REASONING_ENCRYPTED_VALUE","subtype":"tool-call","entityId":"e","encryptedValue":"v","encryptedValueType":"k"}`,
			Event{Subtype: "tool-call", EntityID: "e", EncryptedValue: Value(`"v"`), EncryptedValueType: Value(`"k"`)}},
		{`{"type":"SUBAGENT_STARTED","subagentRunId":"s","name":"n","parentSubagentRunId":"p","parentToolCallId":"c"}`,
			Event{SubagentRunID: "s", Name: Value(`"n"`), ParentSubagentRunID: "p"}},
		{`{"type":"MESSAGES_SNAPSHOT","messages":[]}`, Event{Messages: Value(`[]`)}},
		{`{"type":"STEP_STARTED","stepName":"s"}`, Event{StepName: Value(`"s"`)}},
	} {
		event, warnings, v := Decode([]byte(c.text), DefaultLimits())
		if v != nil || len(warnings) > 0 {
			t.Errorf("%s: %v %v", c.text, warnings, v)
			continue
		}
		c.want.Text, c.want.Type = []byte(c.text), event.Type
		if !reflect.DeepEqual(event, c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", c.text, event, c.want)
		}
	}
}

func TestDecodeInput(t *testing.T) {
	t.Parallel()
	text := `{"threadId":"t","runId":"r","parentRunId":"p","protocolVersion":"1.0","state":[],"messages":[{"id":"u","role":"user","content":[
		{"type":"text","text":"x","new":1}]}],"tools":[{"name":"n","description":"d","parameters":true}],
		"context":[{"description":"d","value":"v"}],"forwardedProps":1,"resume":[{"interruptId":"i","status":"cancelled"}],"x":2}`
	event, warnings, v := DecodeInput([]byte(text), DefaultLimits())
	want := []string{"PROPERTY_UNKNOWN /messages/0/content/0/new", "PROPERTY_UNKNOWN /x"}
	if v != nil || !reflect.DeepEqual(found(warnings, nil), want) || warnings[1].Detail != "run input" {
		t.Fatalf("%v %v", warnings, v)
	}
	canonical := strings.NewReplacer(`,"new":1`, "", `,"x":2`, "").Replace(text)
	wantEvent := Event{Text: []byte(canonical), ThreadID: "t", RunID: "r", ParentRunID: "p", ProtocolVersion: Value(`"1.0"`),
		State: Value(`[]`), ForwardedProps: Value(`1`), Context: Value(`[{"description":"d","value":"v"}]`),
		Tools:  Value(`[{"name":"n","description":"d","parameters":true}]`),
		Resume: Value(`[{"interruptId":"i","status":"cancelled"}]`), Messages: event.Messages}
	if !reflect.DeepEqual(event, wantEvent) || !strings.Contains(canonical, string(event.Messages)) {
		t.Errorf("\n got %+v\nwant %+v", event, wantEvent)
	}
	runDecodeCases(t, DecodeInput, []decodeCase{
		{name: "no messages", text: `{"threadId":"t","runId":"r"}`},
		{name: "null state", text: `{"threadId":"t","runId":"r","state":null}`, found: []string{"FIELD_MALFORMED /state"}},
		{name: "no run", text: `{"threadId":"t"}`, found: []string{"FIELD_MISSING /runId"}},
		{name: "status", text: `{"threadId":"t","runId":"r","resume":[{"interruptId":"i","status":"maybe"}]}`,
			found: []string{"FIELD_MALFORMED /resume/0/status"}},
		{name: "null tools", text: `{"threadId":"t","runId":"r","tools":null}`, found: []string{"FIELD_MALFORMED /tools"}},
		{name: "a type", text: `{"threadId":"t","type":"RAW","runId":"r"}`, want: `{"threadId":"t","runId":"r"}`,
			found: []string{"PROPERTY_UNKNOWN /type"}},
	})
}

func TestDecodeKeepsBytes(t *testing.T) {
	t.Parallel()
	text := []byte(`{"type":"RAW","event":1}`)
	event, _, _ := Decode(text, DefaultLimits())
	if unsafe.SliceData(event.Text) != unsafe.SliceData(text) {
		t.Error("an unchanged event must not be copied")
	}
	received := []byte(`{"type":"CUSTOM","name":"n","value":{"b":1.10,"a":"\u0041"},"x":0}`)
	event, warnings, _ := Decode(received, DefaultLimits())
	clear(received)
	if string(event.Text) != `{"type":"CUSTOM","name":"n","value":{"b":1.10,"a":"\u0041"}}` || string(event.Name) != `"n"` {
		t.Errorf("a canonical text must be its own: %s", event.Text)
	}
	if warnings[0].Removed[0] != 0 {
		t.Error("what was removed aliases the received text")
	}
}

func TestWarningsAreBounded(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString(`{"type":"RAW","event":1`)
	for i := range 250 {
		fmt.Fprintf(&text, `,"x%d":%d`, i, i)
	}
	lim := DefaultLimits()
	event, warnings, v := Decode([]byte(text.String()+"}"), lim)
	if v != nil || string(event.Text) != `{"type":"RAW","event":1}` || len(warnings) != lim.Warnings {
		t.Fatalf("%d warnings, %v, %s", len(warnings), v, event.Text)
	}
	if last := warnings[99]; last.Path != "/x99" || last.Detail != "RAW (and 150 more warnings)" {
		t.Errorf("last warning: %+v", last)
	}
	roles := strings.Repeat(`{"role":"?","toolCalls":[{}]},`, 249) + `{"role":"?"}`
	event, warnings, v = Decode([]byte(`{"type":"MESSAGES_SNAPSHOT","messages":[`+roles+`]}`), lim)
	if v != nil || string(event.Text) != `{"type":"MESSAGES_SNAPSHOT","messages":[]}` || len(warnings) != lim.Warnings ||
		warnings[99].Detail != "? (and 150 more warnings)" {
		t.Errorf("%d warnings, %v, %s", len(warnings), v, event.Text)
	}
	name := strings.Repeat("n", 5000)
	_, warnings, _ = Decode([]byte(`{"type":"RAW","event":1,"`+name+`":1}`), lim)
	if p := warnings[0].Path; len(p) != 1+maxShownName || !strings.HasSuffix(p, "n…") {
		t.Errorf("path of a long name: %q", p)
	}
}

func BenchmarkDecodeTextContent(b *testing.B) {
	benchmarkDecode(b, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"msg_01JABCDEFGHJKMNPQRSTVWXYZ0","delta":" some words","timestamp":1765000000000}`)
}

func BenchmarkDecodeStripped(b *testing.B) {
	benchmarkDecode(b, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"msg_01JABCDEFGHJKMNPQRSTVWXYZ0","delta":" and then some words","extra":17}`)
}

func BenchmarkDecodeSnapshot(b *testing.B) {
	message := `{"id":"m","role":"user","content":[{"type":"text","text":"` + strings.Repeat("words ", 100) + `"}]},`
	benchmarkDecode(b, `{"type":"MESSAGES_SNAPSHOT","messages":[`+strings.Repeat(message, 1000)+`{"id":"l","role":"assistant"}]}`)
}

func benchmarkDecode(b *testing.B, event string) {
	text, lim := []byte(event), DefaultLimits()
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, v := Decode(text, lim); v != nil {
			b.Fatal(v)
		}
	}
}
