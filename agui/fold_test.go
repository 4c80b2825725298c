package agui_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/threadsvc/threadsvc/agui"
)

const (
	runStarted  = `{"type":"RUN_STARTED","threadId":"t","runId":"r1"}`
	runFinished = `{"type":"RUN_FINISHED","threadId":"t","runId":"r1"}`
)

// started is a thread in the midst of run r1.
func started(t testing.TB) *agui.Thread {
	t.Helper()
	th := agui.NewThread("t", agui.DefaultLimits())
	mustApply(t, th, runStarted)
	return th
}

// mustApply applies events that must be accepted, and returns the warnings they raise.
func mustApply(t testing.TB, th *agui.Thread, events ...string) []agui.Warning {
	t.Helper()
	var warnings []agui.Warning
	for i, event := range events {
		a, v := th.Apply(uint64(i), []byte(event))
		if v != nil {
			t.Fatalf("%s: %v", event, v)
		}
		warnings = append(warnings, a.Warnings...)
	}
	return warnings
}

// refused applies an event that must be refused for a reason.
func refused(t testing.TB, th *agui.Thread, event string, code agui.Code) {
	t.Helper()
	switch _, v := th.Apply(0, []byte(event)); {
	case v == nil:
		t.Fatalf("%s was accepted, want %s", event, code)
	case v.Code != code:
		t.Fatalf("%s: %v, want %s", event, v, code)
	}
}

// begin starts a run that must be accepted.
func begin(t testing.TB, th *agui.Thread, input string) agui.Applied {
	t.Helper()
	a, err := tryBegin(t, th, input, false)
	if err != nil {
		t.Fatalf("%s: %v", input, err)
	}
	return a
}

// now is the time in tests of expiry.
var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func tryBegin(t testing.TB, th *agui.Thread, input string, unanswered bool) (agui.Applied, error) {
	t.Helper()
	in, _, v := agui.DecodeInput([]byte(input), agui.DefaultLimits())
	if v != nil {
		t.Fatalf("%s: %v", input, v)
	}
	return th.Begin(agui.Start{Input: in, Now: now, AllowUnanswered: unanswered})
}

// wantMessages compares the thread's messages with a JSON array, byte by byte.
func wantMessages(t testing.TB, th *agui.Thread, want string) {
	t.Helper()
	got := []byte{'['}
	for i, m := range th.Messages() {
		if i > 0 {
			got = append(got, ',')
		}
		got = m.AppendTo(got)
	}
	if got = append(got, ']'); string(got) != want {
		t.Errorf("messages\n%s\nwant\n%s", got, want)
	}
}

func wantState(t testing.TB, th *agui.Thread, want string) {
	t.Helper()
	if got := string(th.State(nil)); got != want {
		t.Errorf("state %s, want %s", got, want)
	}
}

// wantCodes compares the codes of warnings.
func wantCodes(t testing.TB, warnings []agui.Warning, want ...agui.Code) {
	t.Helper()
	var got []agui.Code
	for _, w := range warnings {
		got = append(got, w.Code)
	}
	if len(got) != len(want) {
		t.Errorf("warnings %v, want %v", got, want)
		return
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("warnings %v, want %v", got, want)
		}
	}
}

// messageIDs are the ids of a run input's messages, in order.
func messageIDs(t testing.TB, in agui.RunInput) (ids []string) {
	t.Helper()
	var input struct{ Messages []struct{ ID string } }
	if err := json.Unmarshal(in.Text, &input); err != nil {
		t.Fatal(err)
	}
	for _, m := range input.Messages {
		ids = append(ids, m.ID)
	}
	return ids
}
