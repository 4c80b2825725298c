package agui_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/threadsvc/threadsvc/agui"
)

// TestCallsOfSeveralMessages: when two messages have the same call, the first in order holds it, whatever snapshots and
// activities do to the other; the live thread agrees with the one made from its fold.
func TestCallsOfSeveralMessages(t *testing.T) {
	t.Parallel()
	message := func(id, calls string) string {
		return `{"id":"` + id + `","role":"assistant","toolCalls":[` + calls + `]}`
	}
	const c1 = `{"id":"c1","type":"function","function":{"name":"n","arguments":""}}`
	snapshot := func(messages ...string) string {
		return `{"type":"MESSAGES_SNAPSHOT","messages":[` + strings.Join(messages, ",") + `]}`
	}
	args := []string{`{"type":"TOOL_CALL_START","toolCallId":"c1","toolCallName":"n"}`, `{"type":"TOOL_CALL_ARGS","toolCallId":"c1","delta":"x"}`}
	for name, c := range map[string]struct {
		events []string
		holder string
	}{
		"the first holder loses it":       {[]string{snapshot(message("m1", c1), message("m2", c1)), snapshot(message("m1", ""), message("m2", c1))}, "m2"},
		"an earlier message gets it":      {[]string{snapshot(message("m1", ""), message("m2", c1)), snapshot(message("m1", c1), message("m2", c1))}, "m1"},
		"the snapshot is in other order":  {[]string{snapshot(message("m1", c1), message("m2", c1)), snapshot(message("m2", c1), message("m1", ""))}, "m2"},
		"the holder becomes an activity":  {[]string{snapshot(message("m1", c1), message("m2", c1)), `{"type":"ACTIVITY_SNAPSHOT","messageId":"m1","activityType":"a","content":{}}`}, "m2"},
		"the first holder is dropped":     {[]string{snapshot(message("m1", c1), message("m2", c1)), snapshot(message("m2", c1))}, "m2"},
		"the holder's copy has two of it": {[]string{snapshot(message("m1", c1+","+c1))}, "m1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			th, store := started(t), foldStore{}
			mustApply(t, th, c.events...)
			restored, err := agui.Restore("t", foldOf(th), th.Hash(), agui.DefaultLimits())
			if err != nil {
				t.Fatal(err)
			}
			for _, th := range []*agui.Thread{th, restored} {
				if pending := th.PendingToolCalls(); !slices.Equal(pending, []string{"c1"}) {
					t.Errorf("pending %v", pending)
				}
				if warnings := mustApply(t, th, args...); len(warnings) > 0 {
					t.Errorf("warnings %v", warnings)
				}
				for _, m := range th.Messages() {
					if held := strings.Contains(string(m.AppendTo(nil)), `"arguments":"x"`); held != (m.ID == c.holder) {
						t.Errorf("message %s", m.AppendTo(nil))
					}
				}
			}
			if wrong := differ(th, restored); wrong != "" {
				t.Error(wrong)
			}
			store.write(t, th)
		})
	}
}

// TestSeating seats results between two messages until there is no room between them, with folds in between.
func TestSeating(t *testing.T) {
	t.Parallel()
	th, store := started(t), foldStore{}
	mustApply(t, th, `{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"n"}`, `{"type":"TEXT_MESSAGE_START","messageId":"z"}`)
	const results = 5000 // more than the gap has room for
	writes := 0
	for i := range results {
		mustApply(t, th, fmt.Sprintf(`{"type":"TOOL_CALL_RESULT","messageId":"x%d","toolCallId":"c","content":""}`, i))
		if i%500 == 0 {
			writes += len(th.Changes().Upserts)
			store.write(t, th)
		}
	}
	writes += len(th.Changes().Upserts)
	store.write(t, th)
	if wrong := sound(th); wrong != "" {
		t.Fatal(wrong)
	}
	if wrong := differ(th, store.restore(t, "t", agui.DefaultLimits())); wrong != "" {
		t.Fatal(wrong)
	}
	messages := th.Messages()
	if len(messages) != results+2 || messages[1].ID != "x0" || messages[results].ID != fmt.Sprintf("x%d", results-1) || messages[results+1].ID != "z" {
		t.Error("the results are not in order")
	}
	if writes > 3*results {
		t.Errorf("%d messages were written for %d results", writes, results)
	}
}

// TestPlacesAreUsedAgain: a message that comes to the place of one that was dropped is written, not deleted.
func TestPlacesAreUsedAgain(t *testing.T) {
	t.Parallel()
	th, store := started(t), foldStore{}
	mustApply(t, th, `{"type":"TEXT_MESSAGE_START","messageId":"a"}`, `{"type":"TEXT_MESSAGE_START","messageId":"b"}`)
	store.write(t, th)
	mustApply(t, th, `{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"c","role":"user","content":""}]}`, `{"type":"TEXT_MESSAGE_START","messageId":"d"}`)
	store.write(t, th)
	if wrong := differ(th, store.restore(t, "t", agui.DefaultLimits())); wrong != "" {
		t.Error(wrong)
	}
	if len(store.rows) != 2 {
		t.Errorf("%d rows", len(store.rows))
	}
}

// TestManyMetadataKeys: an open object of any number of keys costs what it is long.
func TestManyMetadataKeys(t *testing.T) {
	t.Parallel()
	th, keys := started(t), []string{}
	for i := range 100_000 {
		keys = append(keys, fmt.Sprintf(`"key%d":%d`, i, i))
	}
	mustApply(t, th, `{"type":"TEXT_MESSAGE_START","messageId":"m","metadata":{`+strings.Join(keys, ",")+`}}`,
		`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"","metadata":{`+strings.Join(keys, ",")+`,"key7":"new","\u006bey8":"new"}}`)
	for range 1000 {
		mustApply(t, th, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"x","metadata":{"key99999":0}}`)
	}
	if wrong := sound(th); wrong != "" {
		t.Error(wrong)
	}
	keys[7], keys[8], keys[99999] = `"key7":"new"`, `"key8":"new"`, `"key99999":0`
	wantMessages(t, th, `[{"id":"m","role":"assistant","content":"`+strings.Repeat("x", 1000)+`","metadata":{`+strings.Join(keys, ",")+`}}]`)
}

// TestManyLanes: a run may end with any number of chunked items open.
func TestManyLanes(t *testing.T) {
	t.Parallel()
	th := started(t)
	const lanes = 10_000
	for i := range lanes {
		mustApply(t, th, fmt.Sprintf(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m%d","subagentRunId":"s%d","delta":""}`, i, i))
	}
	a, v := th.Apply(lanes+1, []byte(runFinished))
	if v != nil || a.Entries != lanes+1 {
		t.Errorf("%d entries, %v", a.Entries, v)
	}
}

// TestTrackingIsBounded: what a run tracks has a limit in number, and names in length.
func TestTrackingIsBounded(t *testing.T) {
	t.Parallel()
	for name, event := range map[string]string{
		"steps":     `{"type":"STEP_STARTED","stepName":"%d"}`,
		"subagents": `{"type":"SUBAGENT_STARTED","subagentRunId":"%d","name":"n"}`,
		"messages":  `{"type":"TEXT_MESSAGE_CHUNK","messageId":"%d"}`,
		"calls":     `{"type":"TOOL_CALL_START","toolCallId":"%d","toolCallName":"n"}`,
		"results":   `{"type":"TOOL_CALL_RESULT","messageId":"x","toolCallId":"%d","content":""}`,
		"spans":     `{"type":"REASONING_START","messageId":"%d"}`,
		"activity":  `{"type":"ACTIVITY_SNAPSHOT","messageId":"%d","activityType":"a","content":{}}`,
	} {
		lim := agui.DefaultLimits()
		lim.OpenItems = 50
		th := agui.NewThread("t", lim)
		mustApply(t, th, runStarted)
		var v *agui.Violation
		n := 0
		for ; v == nil && n < 1000; n++ {
			_, v = th.Apply(1, fmt.Appendf(nil, event, n))
		}
		if n > 60 || v == nil || v.Code != agui.ContextTooLarge || v.Fatal() {
			t.Errorf("%s: %v after %d", name, v, n)
		}
		mustApply(t, th, `{"type":"RUN_ERROR","message":"done"}`)
	}
	th := started(t)
	long := strings.Repeat("s", 100_000)
	mustApply(t, th, `{"type":"STEP_STARTED","stepName":"`+long+`"}`, `{"type":"STEP_STARTED","stepName":"`+long+`2"}`)
	if n := len(th.Changes().Tracking); n > 2000 {
		t.Errorf("the tracking takes %d bytes", n)
	}
	refused(t, th, `{"type":"STEP_STARTED","stepName":"`+long+`"}`, agui.SequenceAlreadyOpen)
}

// TestContextLimit: what would grow the thread too large is refused, the run stays open and can end.
func TestContextLimit(t *testing.T) {
	t.Parallel()
	lim := agui.DefaultLimits()
	lim.Context = 2000
	th := agui.NewThread("t", lim)
	mustApply(t, th, runStarted, `{"type":"TEXT_MESSAGE_START","messageId":"m"}`)
	content := `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"` + strings.Repeat("x", 500) + `"}`
	mustApply(t, th, content, content, content)
	before := rows(th)
	refused(t, th, content, agui.ContextTooLarge)
	refused(t, th, `{"type":"STATE_SNAPSHOT","snapshot":"`+strings.Repeat("x", 500)+`"}`, agui.ContextTooLarge)
	if string(rows(th)) != string(before) {
		t.Error("a refused event left something")
	}
	mustApply(t, th, `{"type":"TEXT_MESSAGE_END","messageId":"m"}`, `{"type":"MESSAGES_SNAPSHOT","messages":[]}`, runFinished)
}

// TestContextLimitOfASnapshot: the activities that a snapshot leaves as they are count, those it replaces do not.
func TestContextLimitOfASnapshot(t *testing.T) {
	t.Parallel()
	lim := agui.DefaultLimits()
	lim.Context = 2000
	th := agui.NewThread("t", lim)
	long := strings.Repeat("x", 1100)
	activity := `{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"a","role":"activity","activityType":"t","content":{"x":"` + long + `"}}]}`
	reasoning := `{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"r","role":"reasoning","content":"` + long + `"}]}`
	mustApply(t, th, runStarted, activity, activity)
	before := rows(th)
	refused(t, th, reasoning, agui.ContextTooLarge)
	if string(rows(th)) != string(before) {
		t.Error("a refused event left something")
	}
	mustApply(t, th, strings.Replace(activity, `"id":"a"`, `"id":"b"`, 1), runFinished)
}

// TestOmittedBeforeTheRun: an event that is dropped before the RUN_STARTED of a run nobody announced is an entry; the
// thread made from the log awaits the run as the live one does.
func TestOmittedBeforeTheRun(t *testing.T) {
	t.Parallel()
	th := started(t)
	mustApply(t, th, runFinished)
	log := logOf(t, runStarted, runFinished)
	th.Await("r2")
	a, v := th.Apply(0, []byte(`{"type":"EVENT_OF_THE_FUTURE"}`))
	if v != nil {
		t.Fatal(v)
	}
	again := agui.NewThread("t", agui.DefaultLimits())
	if errs := again.ReplayAll(append(log, a.Stored...)); len(errs) > 0 {
		t.Fatal(errs)
	}
	if again.RunID() != "r2" || again.Running() {
		t.Errorf("run %q, running %v", again.RunID(), again.Running())
	}
	refused(t, again, `{"type":"RUN_STARTED","threadId":"t","runId":"r3"}`, agui.RunMismatch)
}

// logOf is the log of events on a new thread. Offsets do not matter to replay.
func logOf(t *testing.T, events ...string) []byte {
	t.Helper()
	th, log := agui.NewThread("t", agui.DefaultLimits()), []byte(nil)
	for i, event := range events {
		a, v := th.Apply(uint64(i), []byte(event))
		if v != nil {
			t.Fatal(v)
		}
		log = append(log, a.Stored...)
	}
	return log
}
