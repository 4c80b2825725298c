package agui_test

import (
	"strings"
	"testing"

	"github.com/threadsvc/threadsvc/agui"
)

func TestState(t *testing.T) {
	snapshot := func(v string) string { return `{"type":"STATE_SNAPSHOT","snapshot":` + v + `}` }
	delta := func(ops string) string { return `{"type":"STATE_DELTA","delta":[` + ops + `]}` }
	notApplied := []agui.Code{agui.PatchNotApplied}
	checkAll(t, []reduction{
		{"absent is the empty object", nil, "", "{}", nil},
		{"null", []string{snapshot("null")}, "", "null", nil},
		{"false", []string{snapshot("false")}, "", "false", nil},
		{"a number's text", []string{snapshot("1.10")}, "", "1.10", nil},
		{"replaced, not merged", []string{snapshot(`{"a":1}`), snapshot(`{"b":2}`)}, "", `{"b":2}`, nil},
		{"the order and text of everything", []string{snapshot(`{ "z":1e400, "a":-0, "\u0000":"\ud800", "n":9007199254740993 }`), delta(`{"op":"add","path":"/x","value":1.50}`)}, "",
			`{"z":1e400,"a":-0,"\u0000":"\ud800","n":9007199254740993,"x":1.50}`, nil},
		{"a delta upon nothing", []string{delta(`{"op":"add","path":"/a","value":1}`)}, "", `{"a":1}`, nil},
		{"a delta that fails upon nothing", []string{delta(`{"op":"add","path":"/a/b","value":1}`)}, "", `{}`, notApplied},
		{"atomic", []string{snapshot(`{"p":{"s":"open"}}`), delta(`{"op":"replace","path":"/p/s","value":"closed"},{"op":"replace","path":"/no/where","value":1}`)}, "", `{"p":{"s":"open"}}`, notApplied},
		{"a failed test", []string{snapshot(`{"a":1}`), delta(`{"op":"remove","path":"/a"},{"op":"test","path":"","value":1}`)}, "", `{"a":1}`, notApplied},
		{"the whole document", []string{delta(`{"op":"replace","path":"","value":[1]}`), delta(`{"op":"add","path":"/-","value":2}`)}, "", `[1,2]`, nil},
		{"escaped tokens", []string{snapshot(`{"a/b":1,"m~n":2}`), delta(`{"op":"replace","path":"/a~1b","value":10},{"op":"replace","path":"/m~0n","value":20}`)}, "", `{"a/b":10,"m~n":20}`, nil},
		{"an unknown operation", []string{delta(`{"op":"frobnicate","path":"/a"},{"op":"add","path":"/b","value":1}`)}, "", `{"b":1}`, []agui.Code{agui.OperationUnknown}},
		{"nothing left of the patch", []string{delta(`{"op":"frobnicate"}`)}, "", `{}`, []agui.Code{agui.OperationUnknown}},
		{"of a subagent", []string{`{"type":"STATE_DELTA","delta":[{"op":"add","path":"/b","value":2}],"subagentRunId":"s"}`}, "", `{"b":2}`, nil},
		{"after a failed delta the next snapshot counts", []string{delta(`{"op":"remove","path":"/a"}`), snapshot(`{"a":1}`), delta(`{"op":"remove","path":"/a"}`)}, "", `{}`, notApplied},
		{"an index far beyond the end", []string{snapshot(`{"a":[]}`), delta(strings.Repeat(`{"op":"add","path":"/a/2000000000","value":1},`, 999) + `{"op":"add","path":"/a/2000000000","value":1}`)}, "", `{"a":[]}`, notApplied},
	})
}

// TestStateBeyondItsLimit: a patch that would make the state too large is not applied, and a snapshot that is too large is
// refused while the run stays open.
func TestStateBeyondItsLimit(t *testing.T) {
	t.Parallel()
	lim := agui.DefaultLimits()
	lim.State = 64 << 10
	th := agui.NewThread("t", lim)
	mustApply(t, th, runStarted, `{"type":"STATE_SNAPSHOT","snapshot":{"a":"`+strings.Repeat("x", 4000)+`"}}`)
	var ops []string
	for i := range 40 {
		ops = append(ops, `{"op":"copy","from":"","path":"/x`+string(rune('a'+i%26))+string(rune('a'+i/26))+`"}`)
	}
	before := string(th.State(nil))
	warnings := mustApply(t, th, `{"type":"STATE_DELTA","delta":[`+strings.Join(ops, ",")+`]}`)
	wantCodes(t, warnings, agui.PatchLimit)
	_, v := th.Apply(3, []byte(`{"type":"STATE_SNAPSHOT","snapshot":"`+strings.Repeat("x", 65<<10)+`"}`))
	if v == nil || v.Code != agui.ContextTooLarge || v.Path != "/snapshot" || v.Fatal() {
		t.Fatalf("violation %v, want %s that leaves the run open", v, agui.ContextTooLarge)
	}
	wantState(t, th, before)
	mustApply(t, th, `{"type":"STATE_DELTA","delta":[{"op":"add","path":"/ok","value":1}]}`, runFinished)
}

func TestActivities(t *testing.T) {
	snapshot := func(more string) string {
		return `{"type":"ACTIVITY_SNAPSHOT","messageId":"a",` + more + `}`
	}
	delta := func(more string) string { return `{"type":"ACTIVITY_DELTA","messageId":"a",` + more + `}` }
	first := snapshot(`"activityType":"s","content":{"n":1},"subagentRunId":"w","metadata":{"k":1}`)
	checkAll(t, []reduction{
		{"created", []string{first}, `[{"id":"a","role":"activity","activityType":"s","content":{"n":1},"subagentRunId":"w","metadata":{"k":1}}]`, "", nil},
		{"replaced: metadata stays, owner goes", []string{first, snapshot(`"activityType":"t","content":{"m":2},"metadata":{"l":2}`)},
			`[{"id":"a","role":"activity","activityType":"t","content":{"m":2},"metadata":{"k":1,"l":2}}]`, "", nil},
		{"replaced by another owner", []string{first, snapshot(`"activityType":"t","content":{},"subagentRunId":"v"`)},
			`[{"id":"a","role":"activity","activityType":"t","content":{},"subagentRunId":"v","metadata":{"k":1}}]`, "", nil},
		{"replace false", []string{first, snapshot(`"activityType":"t","content":{},"replace":false,"metadata":{"k":2}`)},
			`[{"id":"a","role":"activity","activityType":"s","content":{"n":1},"subagentRunId":"w","metadata":{"k":2}}]`, "", nil},
		{"replace false creates", []string{snapshot(`"activityType":"t","content":{},"replace":false`)}, `[{"id":"a","role":"activity","activityType":"t","content":{}}]`, "", nil},
		{"replace true", []string{first, snapshot(`"activityType":"t","content":{},"replace":true`)}, `[{"id":"a","role":"activity","activityType":"t","content":{},"metadata":{"k":1}}]`, "", nil},
		{"patched and retyped", []string{first, delta(`"activityType":"t","patch":[{"op":"add","path":"/list","value":[1.0]},{"op":"add","path":"/list/-","value":2}],"metadata":{"k":2}`)},
			`[{"id":"a","role":"activity","activityType":"t","content":{"n":1,"list":[1.0,2]},"subagentRunId":"w","metadata":{"k":2}}]`, "", nil},
		{"a patch that fails: only the metadata merges, white space stays", []string{snapshot(`"activityType":"s","content":{ "n" : 1 }`), delta(`"activityType":"t","patch":[{"op":"remove","path":"/x"}],"metadata":{"k":2}`)},
			`[{"id":"a","role":"activity","activityType":"s","content":{ "n" : 1 },"metadata":{"k":2}}]`, "", []agui.Code{agui.PatchNotApplied}},
		{"a patch that fails, then one that applies", []string{snapshot(`"activityType":"s","content":{ "n" : 1 }`), delta(`"activityType":"t","patch":[{"op":"remove","path":"/x"}]`), delta(`"activityType":"t","patch":[{"op":"add","path":"/x","value":2}]`)},
			`[{"id":"a","role":"activity","activityType":"t","content":{"n":1,"x":2}}]`, "", []agui.Code{agui.PatchNotApplied}},
		{"a patch that fails, then a snapshot, then a patch", []string{snapshot(`"activityType":"s","content":{"n":1}`), delta(`"activityType":"t","patch":[{"op":"remove","path":"/x"}]`), snapshot(`"activityType":"s","content":{"m":1}`), delta(`"activityType":"t","patch":[{"op":"remove","path":"/m"}]`)},
			`[{"id":"a","role":"activity","activityType":"t","content":{}}]`, "", []agui.Code{agui.PatchNotApplied}},
		{"unknown target", []string{delta(`"activityType":"t","patch":[]`)}, "", "", []agui.Code{agui.TargetUnknown}},
		{"a target that is no activity", []string{`{"type":"TEXT_MESSAGE_START","messageId":"a"}`, delta(`"activityType":"t","patch":[],"metadata":{"k":1}`)},
			`[{"id":"a","role":"assistant","content":""}]`, "", []agui.Code{agui.TargetConflict}},
		{"a snapshot takes the place of another message", []string{`{"type":"TEXT_MESSAGE_START","messageId":"a"}`, snapshot(`"activityType":"t","content":{}`)},
			`[{"id":"a","role":"activity","activityType":"t","content":{}}]`, "", nil},
		{"replace false leaves another message", []string{`{"type":"TEXT_MESSAGE_START","messageId":"a"}`, snapshot(`"activityType":"t","content":{},"replace":false`)},
			`[{"id":"a","role":"assistant","content":""}]`, "", []agui.Code{agui.TargetConflict}},
	})
}

func TestMessagesSnapshot(t *testing.T) {
	snapshot := func(m string) string { return `{"type":"MESSAGES_SNAPSHOT","messages":[` + m + `]}` }
	u, v := `{"id":"u","role":"user","content":"1"}`, `{"id":"v","role":"user","content":"2"}`
	act, re := `{"id":"a","role":"activity","activityType":"t","content":{}}`, `{"id":"r","role":"reasoning","content":"hm"}`
	checkAll(t, []reduction{
		{"unseen ones are appended in order", []string{snapshot(v + `,` + u)}, `[` + v + `,` + u + `]`, "", nil},
		{"replaced in place, not reordered", []string{snapshot(u + `,` + v), snapshot(`{"id":"v","role":"user","content":"3"},` + u)}, `[` + u + `,{"id":"v","role":"user","content":"3"}]`, "", nil},
		{"absent ones are dropped", []string{snapshot(u + `,` + v), snapshot(v)}, `[` + v + `]`, "", nil},
		{"the empty snapshot drops all but what is client-only", []string{snapshot(u + `,` + act + `,` + re), snapshot("")}, `[` + act + `,` + re + `]`, "", nil},
		{"activity in the snapshot declares the set", []string{snapshot(u + `,` + act + `,` + re), snapshot(`{"id":"b","role":"activity","activityType":"t","content":{}}`)},
			`[` + re + `,{"id":"b","role":"activity","activityType":"t","content":{}}]`, "", nil},
		{"reasoning in the snapshot declares the set", []string{snapshot(act + `,` + re), snapshot(`{"id":"q","role":"reasoning","content":""}`)}, `[` + act + `,{"id":"q","role":"reasoning","content":""}]`, "", nil},
		{"a role may change", []string{snapshot(act), snapshot(`{"id":"a","role":"user","content":""}`)}, `[{"id":"a","role":"user","content":""}]`, "", nil},
		{"an artefact not restated is withdrawn", []string{snapshot(`{"id":"r","role":"reasoning","content":"","encryptedValue":"v"}`), snapshot(`{"id":"r","role":"reasoning","content":""}`)}, `[{"id":"r","role":"reasoning","content":""}]`, "", nil},
		{"the same id twice: the last one counts", []string{snapshot(u + `,{"id":"u","role":"user","content":"last"}`)}, `[{"id":"u","role":"user","content":"last"}]`, "", nil},
		{"unknown roles are left out", []string{snapshot(u + `,{"id":"z","role":"oracle"}`)}, `[` + u + `]`, "", []agui.Code{agui.MemberUnknown}},
		{"an open message goes on in its new copy", []string{`{"type":"TEXT_MESSAGE_START","messageId":"m"}`, snapshot(`{"id":"m","role":"assistant","content":"new "}`), `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"end"}`},
			`[{"id":"m","role":"assistant","content":"new end"}]`, "", nil},
		{"names may be written with escapes", []string{snapshot(`{"\u0069d":"m","role":"assistant","tool\u0043alls":[{"id":"c","type":"function","function":{"name":"n","arguments":"1"}}]}`), `{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"n"}`, `{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"2"}`},
			`[{"\u0069d":"m","role":"assistant","tool\u0043alls":[{"id":"c","type":"function","function":{"name":"n","arguments":"12"}}]}]`, "", nil},
	})
}
