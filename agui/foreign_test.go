package agui_test

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/agui/aguitest"
)

// The fold of every thread between two runs is taken from outside as the thread that it is; within a run it is not.
func TestForeignFoldsOfThreads(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := newTrio(t, agui.DefaultLimits())
		for _, step := range aguitest.Stream(t, aguitest.Options{}) {
			m.step(step)
			live := m.threads[0]
			fold := live.Fold()
			read, err := agui.DecodeFold(fold.Append(nil))
			if err != nil {
				t.Fatal(err)
			}
			foreign, err := agui.RestoreForeign("t", read, live.Hash(), agui.DefaultLimits())
			if between := live.Over() && live.Version() > 0; between != (err == nil) {
				t.Fatalf("between two runs %v: %v", between, err)
			}
			if err == nil {
				if diff := differ(live, foreign); diff != "" {
					t.Fatal(diff)
				}
			}
		}
	})
}

// What no thread would have written is refused, whatever it is.
func TestForeignFoldsThatAreNone(t *testing.T) {
	t.Parallel()
	th := started(t)
	mustApply(t, th, `{"type":"STATE_SNAPSHOT","snapshot":{"a":1}}`, `{"type":"TEXT_MESSAGE_START","messageId":"m"}`,
		`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"x"}`, `{"type":"TEXT_MESSAGE_END","messageId":"m"}`, runFinished)
	for name, change := range map[string]func(*agui.Fold){
		"an input":               func(f *agui.Fold) { f.Input = agui.Value(`{}`) },
		"version 0":              func(f *agui.Fold) { f.Version = 0 },
		"a state that is none":   func(f *agui.Fold) { f.State = agui.Value(`{"a":`) },
		"an empty state":         func(f *agui.Fold) { f.State = agui.Value(`{}`) },
		"a large state":          func(f *agui.Fold) { f.State = agui.Value(`"` + string(bytes.Repeat([]byte("x"), 2000)) + `"`) },
		"a message that is none": func(f *agui.Fold) { f.Messages[0].Body = agui.Value(`7`) },
		"another id":             func(f *agui.Fold) { f.Messages[0].ID = "n" },
		"another role":           func(f *agui.Fold) { f.Messages[0].Role = agui.RoleUser },
		"no position":            func(f *agui.Fold) { f.Messages[0].Position = 0 },
		"a position too high":    func(f *agui.Fold) { f.Messages[0].Position = 1 << 62 },
		"a message twice":        func(f *agui.Fold) { f.Messages = append(f.Messages, f.Messages[0]) },
		"no tracking":            func(f *agui.Fold) { f.Tracking = nil },
		"tracking that is none":  func(f *agui.Fold) { f.Tracking = []byte(`7`) },
		"tracking of a run":      func(f *agui.Fold) { f.Tracking = started(t).Fold().Tracking },
		"tracking that is more":  func(f *agui.Fold) { f.Tracking = []byte(`{"phase":3,"open":{"x":{}}}`) },
		"tracking of its own":    func(f *agui.Fold) { f.Tracking = append(f.Tracking, ' ') },
	} {
		fold := th.Fold()
		lim := agui.DefaultLimits()
		lim.State = 1000
		if _, err := agui.RestoreForeign("t", fold, [32]byte{}, lim); err != nil {
			t.Fatal(err)
		}
		change(&fold)
		if _, err := agui.RestoreForeign("t", fold, [32]byte{}, lim); !errors.Is(err, agui.ErrFoldCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Nothing that is a fold by its form panics, when it is taken from outside or gone on with.
func FuzzForeignFold(f *testing.F) {
	th := started(f)
	mustApply(f, th, `{"type":"STATE_SNAPSHOT","snapshot":{"a":1}}`, `{"type":"TEXT_MESSAGE_START","messageId":"m"}`, `{"type":"TEXT_MESSAGE_END","messageId":"m"}`, runFinished)
	fold := th.Fold()
	f.Add(fold.Append(nil))
	f.Fuzz(func(t *testing.T, stored []byte) {
		fold, err := agui.DecodeFold(stored)
		if err != nil {
			return
		}
		th, err := agui.RestoreForeign("t", fold, [32]byte{}, agui.DefaultLimits())
		if err != nil {
			return
		}
		th.Await("r2")
		for i, event := range []string{runStartedAs("r2"), `{"type":"STATE_DELTA","delta":[{"op":"add","path":"/z","value":1}]}`, `{"type":"TEXT_MESSAGE_START","messageId":"m"}`} {
			if _, v := th.Apply(uint64(i), []byte(event)); v != nil {
				break
			}
		}
		th.RunInput(false)
	})
}

func runStartedAs(run string) string {
	return `{"type":"RUN_STARTED","threadId":"t","runId":"` + run + `"}`
}
