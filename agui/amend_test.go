package agui_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/agui/aguitest"
)

// amendment is one with a note, a patch, or both.
func amendment(t failer, id, patch string, notes ...string) agui.Amendment {
	t.Helper()
	in, _, v := agui.DecodeInput([]byte(`{"threadId":"t","runId":"unused","messages":[`+strings.Join(notes, ",")+`]}`), agui.DefaultLimits())
	if v != nil {
		t.Fatalf("%v", v)
	}
	a := agui.Amendment{ID: id, Digest: agui.DigestOf([]byte(id + patch)), Reason: "why " + id, Input: in}
	if patch != "" {
		a.StatePatch = agui.Value(patch)
	}
	return a
}

func note(id string) string { return `{"id":"` + id + `","role":"user","content":"note"}` }

func mustAmend(t testing.TB, th *agui.Thread, a agui.Amendment) agui.Applied {
	t.Helper()
	applied, err := th.Amend(a)
	if err != nil || applied.Entries != 1 || applied.RunID != "" || applied.Ended != nil || applied.Opened != nil {
		t.Fatalf("%+v, %v", applied, err)
	}
	return applied
}

// amend amends the three threads, with notes, patches that apply, and patches that do not.
func (m *trio) amend(n int) {
	id := fmt.Sprint("a", n)
	patch := rapid.SampledFrom([]string{``, `[{"op":"add","path":"","value":{"n":1}}]`, `[{"op":"add","path":"/fix","value":[1.10]}]`, `[{"op":"remove","path":"/absent"}]`}).Draw(m.t, "patch")
	a := amendment(m.t, id, patch, note("note-"+id))
	before := [3]uint64{}
	for i, th := range m.threads {
		before[i] = th.Version()
	}
	var refused error
	m.each(func(th *agui.Thread) agui.Applied {
		applied, err := th.Amend(a)
		refused = err
		return applied
	})
	for i, th := range m.threads {
		if known, ok := th.Amended(id); ok != (refused == nil) || ok && (known.Version != before[i]+1 || !known.Is(a.Digest)) || !ok && th.Version() != before[i] {
			m.t.Fatalf("after %v the thread remembers %+v", refused, known)
		}
	}
	m.check()
	m.shuffle()
}

// Amendments anywhere in a stream, faults and reloads included: what is replayed or restored at any moment is the live
// thread, and stays it.
func TestAmendedThreadIsItsLog(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := newTrio(t, limits(t))
		faults := rapid.SampledFrom([]int{0, 0, 4}).Draw(t, "faults")
		for i, s := range aguitest.Stream(t, aguitest.Options{Faults: faults}) {
			m.step(s)
			if s.Await == "" && rapid.IntRange(0, 4).Draw(t, "amend") == 0 { // what is awaited is not in the log yet
				m.amend(i)
			}
		}
	})
}

// Notes anywhere in a stream change nothing of what is remembered of its runs: every event is accepted that would be without.
func TestAmendmentsLeaveTheRunAlone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		plain, amended := agui.NewThread("t", agui.DefaultLimits()), agui.NewThread("t", agui.DefaultLimits())
		offsets := [2]uint64{}
		for i, s := range aguitest.Stream(t, aguitest.Options{Plain: true}) { // ids that are minted have the version
			for at, th := range []*agui.Thread{plain, amended} {
				if err := take(th, s, &offsets[at]); err != nil {
					t.Fatalf("step %d, thread %d, %s%s%s: %v", i, at, s.Input, s.Await, s.Event, err)
				}
			}
			if rapid.IntRange(0, 2).Draw(t, "amend") == 0 {
				if _, err := amended.Amend(amendment(t, fmt.Sprint("a", i), "", note(fmt.Sprint("note-", i)))); err != nil {
					t.Fatal(err)
				}
			}
			if one, two := runsOf(t, plain), runsOf(t, amended); one != two {
				t.Fatalf("step %d: remembered of the runs is\n%s\nand without amendments\n%s", i, two, one)
			}
		}
	})
}

// runsOf is what a thread remembers of its runs, versions aside.
func runsOf(t *rapid.T, th *agui.Thread) string {
	var tracking map[string]any
	if err := json.Unmarshal(th.Changes().Tracking, &tracking); err != nil {
		t.Fatal(err)
	}
	delete(tracking, "amended")
	if resync, ok := tracking["resync"].(map[string]any); ok {
		delete(resync, "since") // a version, which counts amendments too
	}
	text, _ := json.Marshal(tracking)
	return string(text)
}

// What a run has opened goes on behind a note, and a patch beside the run is none of its doing.
func TestAmendmentDuringARun(t *testing.T) {
	t.Parallel()
	th := started(t)
	mustApply(t, th, `{"type":"TEXT_MESSAGE_START","messageId":"m"}`, `{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"f","parentMessageId":"p"}`,
		`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"a"}`)
	mustAmend(t, th, amendment(t, "a1", `[{"op":"add","path":"/fix","value":1}]`, note("n")))
	mustApply(t, th, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"b"}`, `{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"{}"}`,
		`{"type":"TEXT_MESSAGE_END","messageId":"m"}`, `{"type":"TOOL_CALL_END","toolCallId":"c"}`,
		`{"type":"TOOL_CALL_RESULT","messageId":"r","toolCallId":"c","content":"done"}`)
	wantMessages(t, th, `[{"id":"m","role":"assistant","content":"ab"},`+
		`{"id":"p","role":"assistant","toolCalls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},`+
		`{"id":"r","role":"tool","toolCallId":"c","content":"done"},`+note("n")+`]`)
	th.Truncate(agui.LeaseExpired)
	if th.TouchedByIncompleteRun() || string(th.State(nil)) != `{"fix":1}` {
		t.Errorf("state %s, touched by the run: %v", th.State(nil), th.TouchedByIncompleteRun())
	}
}

func TestAmendmentsThatAreRefused(t *testing.T) {
	t.Parallel()
	lim := agui.DefaultLimits()
	lim.Context, lim.State, lim.PatchOps = 900, 200, 2
	for name, c := range map[string]struct {
		patch string
		notes []string
		code  agui.Code
	}{
		"does not apply":    {`[{"op":"add","path":"/a","value":1},{"op":"replace","path":"/absent/deeper","value":1}]`, nil, agui.PatchNotApplied},
		"is no patch":       {`{"op":"add"}`, nil, agui.PatchNotApplied},
		"unknown operation": {`[{"op":"frobnicate","path":"/a"}]`, nil, agui.PatchNotApplied},
		"too many":          {`[{"op":"add","path":"/a","value":1},{"op":"add","path":"/b","value":1},{"op":"add","path":"/c","value":1}]`, nil, agui.PatchLimit},
		"state too large":   {`[{"op":"add","path":"/a","value":"` + strings.Repeat("x", 300) + `"}]`, nil, agui.PatchLimit},
		"context too large": {``, []string{`{"id":"n","role":"user","content":"` + strings.Repeat("x", 1000) + `"}`}, agui.ContextTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			th := agui.NewThread("t", lim)
			mustApply(t, th, runStarted, `{"type":"STATE_SNAPSHOT","snapshot":{"n":1}}`)
			notes := c.notes
			if notes == nil {
				notes = []string{note("n")}
			}
			fold := th.Fold()
			before := string(fold.Append(nil))
			_, err := th.Amend(amendment(t, "a", c.patch, notes...))
			var v *agui.Violation
			if !errors.As(err, &v) || v.Code != c.code {
				t.Errorf("%v, want %s", err, c.code)
			}
			fold = th.Fold()
			if after := string(fold.Append(nil)); after != before {
				t.Errorf("the thread was\n%s\nand is\n%s", before, after)
			}
			mustApply(t, th, runFinished)
		})
	}
}

// A thread remembers its last 64 amendments, through rewinds, and no messages twice.
func TestAmendmentsAreRemembered(t *testing.T) {
	t.Parallel()
	th := started(t)
	var past agui.Fold
	for i := range 70 {
		if i == 60 {
			past = th.Fold()
		}
		mustAmend(t, th, amendment(t, fmt.Sprint("a", i), "", note("n")))
	}
	mustApply(t, th, runFinished)
	if _, err := th.Rewind(past); err != nil {
		t.Fatal(err)
	}
	for i := range 70 {
		known, ok := th.Amended(fmt.Sprint("a", i))
		if ok != (i >= 6) || ok && known.Version != uint64(i)+2 {
			t.Errorf("amendment %d: %v %+v", i, ok, known)
		}
	}
	if th.MessageCount() != 1 {
		t.Errorf("%d messages", th.MessageCount())
	}
}
