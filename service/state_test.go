package service_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/threadsvc/threadsvc/agui"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
)

func add(path, value string) string {
	return fmt.Sprintf(`{"op":"add","path":%q,"value":%s}`, path, value)
}

func replace(path, value string) string {
	return fmt.Sprintf(`{"op":"replace","path":%q,"value":%s}`, path, value)
}

func operations(ops ...string) string { return "[" + strings.Join(ops, ",") + "]" }

// padding grows an array by two thousand million nulls, if it is let.
var padding = operations(slices.Repeat([]string{add("/a/2000000000", "1")}, 1000)...)

var firstRun = []string{stateSnapshot(`{"count":1,"keep":"x"}`)}

var stateCases = []struct {
	name     string
	runs     [][]string
	state    string
	warnings []string // of the last run
}{
	{"nothing", [][]string{nil}, `{}`, nil},
	{"a delta builds on the state of the run before", [][]string{firstRun, {stateDelta(operations(add("/b", "2")))}},
		`{"count":1,"keep":"x","b":2}`, nil},
	{"a delta replaces what a run before made", [][]string{firstRun, {stateDelta(operations(add("/b", "2")))}, {stateDelta(operations(replace("/count", "2")))}},
		`{"count":2,"keep":"x","b":2}`, nil},
	{"a patch of which one operation fails does nothing",
		[][]string{{stateSnapshot(`{"plan":{"status":"open"}}`), stateDelta(operations(replace("/plan/status", `"closed"`), replace("/absent/deeper", "1")))}},
		`{"plan":{"status":"open"}}`, []string{"PATCH_NOT_APPLIED"}},
	{"keys with slash and tilde", [][]string{{stateSnapshot(`{"a/b":1,"m~n":2}`), stateDelta(operations(replace("/a~1b", "10"), replace("/m~0n", "20")))}},
		`{"a/b":10,"m~n":20}`, nil},
	{"arrays are not padded", [][]string{{stateSnapshot(`{"a":[]}`), stateDelta(operations(add("/a/2000000000", "1"))), stateDelta(padding)}},
		`{"a":[]}`, []string{"PATCH_NOT_APPLIED", "PATCH_NOT_APPLIED"}},
	{"an operation of the future is dropped", [][]string{{stateDelta(operations(`{"op":"frobnicate","path":"/a"}`, add("/b", "1")))}},
		`{"b":1}`, []string{"OPERATION_UNKNOWN"}},
	{"numbers are exact", [][]string{{stateSnapshot(`{"id":9007199254740993,"big":123456789012345678901234567890,"f":1.10,"e":1e400}`)}, {stateDelta(operations(add("/x", "1")))}},
		`{"id":9007199254740993,"big":123456789012345678901234567890,"f":1.10,"e":1e400,"x":1}`, nil},
	{"null is a state, which an input says by leaving it out", [][]string{firstRun, {stateSnapshot(`null`)}}, ``, nil},
	{"an array of a hundred thousand elements", [][]string{{stateSnapshot("[" + strings.Repeat("1,", 99_999) + "1]")}, {stateDelta(operations(replace("/99999", "2")))}},
		"[" + strings.Repeat("1,", 99_999) + "2]", nil},
}

func TestStateOfRuns(t *testing.T) {
	t.Parallel()
	client := newServer(t, service.Config{})
	for i, tc := range stateCases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := converse(t, client, fmt.Sprint("t", i))
			var warnings []string
			for n, events := range tc.runs {
				warnings = c.record(fmt.Sprint("r", n), events...)
			}
			if !slices.Equal(warnings, tc.warnings) {
				t.Errorf("warnings %q, want %q", warnings, tc.warnings)
			}
			c.wantState(tc.state)
			c.stillWorks()
			c.wantState(tc.state)
		})
	}
}

func TestPatchesCannotMultiplyTheState(t *testing.T) {
	t.Parallel()
	limits := agui.DefaultLimits()
	limits.State = 64 << 10
	c := converse(t, newServer(t, service.Config{Limits: limits}), "t1")
	c.open("r1", stateSnapshot(`{"a":1}`))
	var copies []string
	for i := range 40 {
		copies = append(copies, fmt.Sprintf(`{"op":"copy","from":"","path":"/x%d"}`, i))
	}
	progress := c.append(stateDelta(operations(copies...)), stateDelta(operations(add("/b", "2"))))
	warnings := progress.GetWarnings()
	if len(warnings) != 1 || warnings[0].GetCode() != "PATCH_LIMIT" || warnings[0].GetOffset() != 2 || !strings.HasPrefix(warnings[0].GetPath(), "/delta/") {
		t.Errorf("warnings %v, want one PATCH_LIMIT at offset 2 that names the operation", warnings)
	}
	c.append(runFinished("t1", "r1"))
	c.wantState(`{"a":1,"b":2}`)
	c.stillWorks()
}

func TestStateOfARunThatNeverEnded(t *testing.T) {
	t.Parallel()
	c, db := ownDatabase(t, service.Config{})
	c.record("r1", stateSnapshot(`{"a":1}`))
	if info, _ := c.info(); info.GetStateTouchedByIncompleteRun() {
		t.Error("an ordinary run is said to be incomplete")
	}
	c.open("r2", stateDelta(operations(replace("/a", "2"))))
	expireLeases(t, db)
	start, input := c.start("r3")
	if !start.GetStateTouchedByIncompleteRun() || string(input.State) != `{"a":2}` {
		t.Errorf("touched %v, state %s; want the state of the truncated run, marked as such", start.GetStateTouchedByIncompleteRun(), input.State)
	}
	c.wantStatus("r2", threadsvcv1.RunStatus_RUN_STATUS_TRUNCATED)
	c.append(runStarted("t1", "r3"), runFinished("t1", "r3"))
	if info, _ := c.info(); !info.GetStateTouchedByIncompleteRun() {
		t.Error("a run that did not touch the state took the mark away")
	}
	c.record("r4", stateSnapshot(`{"a":3}`))
	if info, _ := c.info(); info.GetStateTouchedByIncompleteRun() {
		t.Error("the mark stays although an ordinary run has set the state")
	}
}

func TestStateOfSubagents(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	delta := event("STATE_DELTA", "delta", operations(add("/found", "3")), "subagentRunId", `"s1"`)
	c.record("r1", stateSnapshot(`{"a":1}`), delta)
	c.wantState(`{"a":1,"found":3}`)
	if events := c.events("r1"); !slices.Contains(events, delta) {
		t.Errorf("the log does not say whose change it was: %q", events)
	}
}

func TestPatchesKeepMembersNobodyKnows(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	delta := stateDelta(`[{"op":"remove","path":"/a","value":"left over","x":{"y":1.0}}]`)
	if warnings := c.record("r1", stateSnapshot(`{"a":1,"b":2}`), delta); warnings != nil {
		t.Errorf("warnings %q", warnings)
	}
	c.wantState(`{"b":2}`)
	if events := c.events("r1"); !slices.Contains(events, delta) {
		t.Errorf("the log has not kept the operation's members: %q", events)
	}
}

func TestInitialStateIsTheFirstEntry(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	made := must(c.client.CreateThread(t.Context(), &threadsvcv1.CreateThreadRequest{
		Thread: threadName("t1"), State: []byte(`{"tenant":"x"}`), Messages: [][]byte{[]byte(userMessage("u1", "hello"))},
	}))(t)
	if made.GetThread().GetVersion() != 1 {
		t.Errorf("version %d, want 1", made.GetThread().GetVersion())
	}
	c.record("r1", stateDelta(operations(add("/a", "1"))))
	c.record("r2", stateDelta(operations(replace("/a", "2"))))
	first := c.log()[0]
	want := `{"messages":[` + userMessage("u1", "hello") + `],"state":{"tenant":"x"}}`
	if first.GetKind() != threadsvcv1.EntryKind_ENTRY_KIND_INPUT || string(first.GetPayload()) != want || first.GetRunId() != "" {
		t.Errorf("first entry %v, want the input %s", first, want)
	}
	c.wantState(`{"tenant":"x","a":2}`)
	c.wantMessages("user u1")
}

func TestStateChangesThatComeWithARun(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	_, input := c.start("r1", func(r *threadsvcv1.StartRunRequest) {
		r.StateChange = &threadsvcv1.StartRunRequest_State{State: []byte(`{"n":1.0}`)}
	})
	if string(input.State) != `{"n":1.0}` {
		t.Errorf("state %s", input.State)
	}
	c.append(runStarted("t1", "r1"), runFinished("t1", "r1"))
	patch := func(text string) startOption {
		return func(r *threadsvcv1.StartRunRequest) {
			r.StateChange = &threadsvcv1.StartRunRequest_StatePatch{StatePatch: []byte(text)}
		}
	}
	_, input = c.start("r2", patch(operations(add("/m", "2"))))
	if string(input.State) != `{"n":1.0,"m":2}` {
		t.Errorf("state %s", input.State)
	}
	c.append(runStarted("t1", "r2"), runFinished("t1", "r2"))
	version := must(c.client.GetThread(t.Context(), &threadsvcv1.GetThreadRequest{Thread: threadName("t1")}))(t).GetThread().GetVersion()
	for _, text := range []string{operations(replace("/absent", "1")), `{"op":"add"}`, `[{"op":"add"}]`, `[`, `null`, `[{"op":"frobnicate","path":"/a"}]`} {
		_, _, err := c.tryStart("r3", patch(text))
		if reason, meta := reasonOf(err); reason != "INVALID_INPUT" || meta["code"] == "" || !strings.HasPrefix(meta["path"], "/statePatch") {
			t.Errorf("patch %s: %v %s, want INVALID_INPUT with code and path", text, err, detailsOf(err))
		}
	}
	if info, _ := c.info(); info.GetVersion() != version {
		t.Errorf("version %d, want %d: nothing was to be written", info.GetVersion(), version)
	}
	c.stillWorks()
	c.wantState(`{"n":1.0,"m":2}`)
}
