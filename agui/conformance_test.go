package agui_test

import (
	"encoding/json"
	"testing"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/agui/conformance"
)

// TestConformance folds every recorded stream without a service, and again with the thread stored and restored, or
// replayed from its log, before every event.
func TestConformance(t *testing.T) {
	t.Parallel()
	for _, c := range allCases(t) {
		for name, reload := range map[string]reloader{"live": keep, "replayed": replayed, "restored": restored} {
			t.Run(c.Name+"/"+name, func(t *testing.T) {
				for _, diff := range c.Check(fold(t, &c, reload)) {
					t.Error(diff)
				}
			})
		}
	}
}

// reloader makes a thread again from what a store would hold of it.
type reloader func(t *testing.T, th *agui.Thread, id string, log []byte) *agui.Thread

func keep(_ *testing.T, th *agui.Thread, _ string, _ []byte) *agui.Thread { return th }

func replayed(t *testing.T, th *agui.Thread, id string, log []byte) *agui.Thread {
	again := agui.NewThread(id, agui.DefaultLimits())
	if errs := again.ReplayAll(log); len(errs) > 0 {
		t.Fatalf("replay: %v", errs)
	}
	mustEqual(t, th, again)
	return again
}

func restored(t *testing.T, th *agui.Thread, id string, _ []byte) *agui.Thread {
	again, err := agui.Restore(id, foldOf(th), th.Hash(), agui.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	mustEqual(t, th, again)
	return again
}

// foldOf is the whole thread in stored form.
func foldOf(th *agui.Thread) agui.Fold {
	f := agui.Fold{Version: th.Version(), State: th.State(nil), Tracking: th.Changes().Tracking, Input: th.Input()}
	for _, m := range th.Messages() {
		f.Messages = append(f.Messages, agui.StoredMessage{Position: m.Position, ID: m.ID, Role: m.Role, Body: m.AppendTo(nil)})
	}
	return f
}

func mustEqual(t *testing.T, want, got *agui.Thread) {
	t.Helper()
	if want.Version() != got.Version() || want.Hash() != got.Hash() {
		t.Fatalf("version %d with hash %x became %d with %x", want.Version(), want.Hash(), got.Version(), got.Hash())
	}
	if w, g := string(want.RunInput(false).Text), string(got.RunInput(false).Text); w != g {
		t.Fatalf("run input\n%s\nbecame\n%s", w, g)
	}
	if w, g := want.Size(), got.Size(); w != g {
		t.Fatalf("size %d became %d", w, g)
	}
}

func fold(t *testing.T, c *conformance.Case, reload reloader) conformance.Observed {
	th := agui.NewThread(c.ThreadID(), agui.DefaultLimits())
	var log []byte
	observed := conformance.Observed{FailedAt: -1}
	take := func(a agui.Applied) {
		log = append(log, a.Stored...)
		observed.Warnings += len(a.Warnings)
		if a.Ended != nil && a.Ended.Error != nil {
			var reason struct{ Message string }
			if err := json.Unmarshal(a.Ended.Error, &reason); err != nil {
				t.Fatal(err)
			}
			observed.RunErrors = append(observed.RunErrors, reason.Message)
		}
	}
	in := start(t, c)
	a, err := th.Begin(agui.Start{Input: in})
	if err != nil {
		t.Fatal(err)
	}
	take(a)
	observed.Request = th.RunInput(false).Text
	for i, event := range c.Stream {
		th = reload(t, th, c.ThreadID(), log)
		a, v := th.Apply(uint64(i), event)
		if v != nil {
			observed.FailedAt = i
			take(th.Fail(uint64(i), v))
			break
		}
		take(a)
	}
	observe(t, th, log, &observed)
	return observed
}

func start(t *testing.T, c *conformance.Case) agui.Event {
	input := map[string]any{"threadId": c.ThreadID(), "runId": c.RunID()}
	if c.Input != nil {
		input["messages"] = c.Input.Messages
		if c.Input.Tools != nil {
			input["tools"] = c.Input.Tools
		}
	}
	text, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	ev, _, v := agui.DecodeInput(text, agui.DefaultLimits())
	if v != nil {
		t.Fatal(v)
	}
	return ev
}

func observe(t *testing.T, th *agui.Thread, log []byte, observed *conformance.Observed) {
	observed.State = th.State(nil)
	for _, m := range th.Messages() {
		observed.Messages = append(observed.Messages, m.AppendTo(nil))
	}
	entries, err := agui.DecodeEntries(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Kind == agui.KindEvent {
			observed.Events = append(observed.Events, e.Payload)
		}
	}
}
