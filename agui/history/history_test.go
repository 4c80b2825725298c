package history_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/agui/aguitest"
	"github.com/threadsvc/threadsvc/agui/history"
	"github.com/threadsvc/threadsvc/agui/jsondoc"
)

// story is the log of a thread whose state changes, and what the model knows of each step.
type story struct {
	entries []string
	steps   []*modelStep // with the initial state as the first
}

func drawStory(t *rapid.T) *story {
	s := &story{entries: []string{`{"type":"RUN_STARTED","threadId":"t","runId":"r"}`}}
	state := &modelNode{object: true}
	s.steps = append(s.steps, &modelStep{after: state})
	for range rapid.IntRange(1, 12).Draw(t, "events") {
		version := uint64(len(s.entries) + 1)
		if rapid.IntRange(0, 5).Draw(t, "snapshot") == 0 {
			next := &modelStep{version: version, op: "replace", was: map[*modelNode]string{}, after: drawValue(t, 3)}
			if rapid.Bool().Draw(t, "restated") {
				next.after = state.clone()
			}
			next.set = next.after
			s.entries = append(s.entries, `{"type":"STATE_SNAPSHOT","snapshot":`+next.after.text()+`}`)
			if next.after.text() == state.text() {
				continue // nothing is done
			}
			state, s.steps = next.after, append(s.steps, next)
			continue
		}
		var ops []string
		for range rapid.IntRange(1, 4).Draw(t, "operations") {
			op := rapid.SampledFrom([]string{"add", "add", "replace", "remove", "move", "copy"}).Draw(t, "op")
			if step := modelOp(state, op, drawPath(t, state), drawPath(t, state), drawValue(t, 2)); step != nil {
				step.version = version
				state, s.steps, ops = step.after, append(s.steps, step), append(ops, step.json)
			}
		}
		s.entries = append(s.entries, `{"type":"STATE_DELTA","subagentRunId":"sub","delta":[`+strings.Join(ops, ",")+`]}`)
	}
	return s
}

// replayed is a window over the versions after one, up to another.
func (s *story) replayed(t *rapid.T, after, until uint64) *history.Window {
	thread := agui.NewThread("t", agui.DefaultLimits())
	var w *history.Window
	for i, payload := range s.entries[:until] {
		if uint64(i) == after {
			w = newWindow(t, thread)
		}
		entry := agui.Entry{Kind: agui.KindEvent, Offset: uint64(i), Payload: []byte(payload)}
		var err error
		if w == nil {
			err = thread.Replay(&entry, entry.Append(nil))
		} else {
			err = w.Replay(history.Source{RunID: "r"}, &entry, entry.Append(nil))
		}
		if err != nil {
			t.Fatalf("%s: %v", payload, err)
		}
	}
	if w == nil {
		return newWindow(t, thread)
	}
	return w
}

func newWindow(t *rapid.T, thread *agui.Thread) *history.Window {
	w, err := history.NewWindow(thread)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (s *story) end() uint64 { return uint64(len(s.entries)) }

// brute finds what changed the value at a path by looking at all that there was. It stops where the path is that of an
// element that an array does not have: then it names nothing that could be followed.
func (s *story) brute(path string) (changes []string) {
	for i := len(s.steps) - 1; i > 0; i-- {
		step, before := s.steps[i], s.steps[i-1].after
		if step.after.beyond(path) {
			return append(changes, "…")
		}
		was, begun := step.before(path)
		now := textOf(step.after.find(path))
		if begun && now == "none" {
			return changes
		}
		if begun {
			return append(changes, fmt.Sprint(step.version, " ", step.op, " ", path, ": none, ", now))
		}
		old := textOf(before.find(was))
		direct := step.set != nil && (step.op == "move" || step.op == "copy") && was != path && step.sets(path)
		if old != now || direct && now != "none" {
			changes = append(changes, fmt.Sprint(step.version, " ", step.op, " ", path, ": ", old, ", ", now))
		}
		path = was
	}
	return changes
}

func textOf(n *modelNode) string {
	if n == nil {
		return "none"
	}
	return n.text()
}

// before is where the value at a path was before the step.
func (s *modelStep) before(path string) (was string, begun bool) {
	tokens := tokensOf(path)
	for n := len(tokens); ; n-- { // the innermost that is there, or was
		around := ""
		if n > 0 {
			around = "/" + strings.Join(tokens[:n], "/")
		}
		node := s.after.find(around)
		if node == s.inserted && node != nil && s.op != "move" && s.op != "copy" {
			return path, true
		}
		if place, survived := s.was[node]; survived && node != nil {
			return place + strings.TrimPrefix(path, around), false
		}
		if n == 0 {
			return path, false
		}
	}
}

// sets reports whether the step put the value at a path there.
func (s *modelStep) sets(path string) bool {
	places := map[*modelNode]string{}
	s.after.places("", places)
	at := places[s.set]
	return path == at || strings.HasPrefix(path, at+"/")
}

// windows goes from the end to the start in stretches that are drawn.
func (s *story) windows(t *rapid.T, each func(w *history.Window, start uint64) (more bool)) {
	for end := s.end(); end > 0; {
		start := uint64(rapid.IntRange(0, int(end-1)).Draw(t, "start"))
		if !each(s.replayed(t, start, end), start) {
			return
		}
		end = start
	}
}

// What changed a value is found as by brute force, wherever the log is cut, and wherever one stops on the way.
func TestChangesAsByBruteForce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawStory(t)
		last := s.steps[len(s.steps)-1].after
		path := drawPath(t, last)
		at, _ := jsondoc.ParsePointer(path)
		var got []string
		s.windows(t, func(w *history.Window, start uint64) (more bool) {
			end := w.Version()
			for stopped := true; stopped; {
				stopped = false
				var place history.Place
				at, more = w.Changes(at, func(c *history.Change) bool {
					got = append(got, fmt.Sprint(c.Version, " ", c.Op, " ", c.Path, ": ", old(c.Old), ", ", old(c.New)))
					if c.RunID != "r" || (c.EventType == agui.StateDelta) != (c.SubagentRunID == "sub") || c.Offset+1 != c.Version {
						t.Fatalf("a change by %+v", c.Source)
					}
					place, stopped = c.Place, rapid.IntRange(0, 3).Draw(t, "stop") == 0
					return !stopped
				})
				if stopped && more { // go on with another window that is taken back to the place
					w = s.replayed(t, start, end)
					w.BackTo(place)
				}
				stopped = stopped && more
			}
			return more
		})
		want := s.brute(path)
		if n := len(want) - 1; n >= 0 && want[n] == "…" && len(got) >= n {
			got, want = got[:n], want[:n]
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%q of %s:\n%s\nwant\n%s\nlog\n%s", path, last.text(), strings.Join(got, "\n"), strings.Join(want, "\n"), strings.Join(s.entries, "\n"))
		}
	})
}

func old(text agui.Value) string {
	if text == nil {
		return "none"
	}
	return string(text)
}

// bruteBlame is the version that gave the leaf at a path its value.
func (s *story) bruteBlame(path string) uint64 {
	value := s.steps[len(s.steps)-1].after.find(path).text()
	for i := len(s.steps) - 1; i > 0; i-- {
		step := s.steps[i]
		was, begun := step.before(path)
		if begun || step.op == "copy" && step.sets(path) || textOf(s.steps[i-1].after.find(was)) != value {
			return step.version
		}
		path = was
	}
	return 0
}

// Each leaf is blamed on the entry that gave it its value, as by brute force, wherever the log is cut.
func TestBlameAsByBruteForce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawStory(t)
		w := s.replayed(t, 0, s.end())
		var leaves []*history.Leaf
		var paths []string
		doc, err := jsondoc.Parse(w.Thread().State(nil), jsondoc.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		for at := range doc.Leaves(jsondoc.Pointer{}, nil) {
			leaves, paths = append(leaves, &history.Leaf{At: at}), append(paths, at.String())
		}
		s.windows(t, func(w *history.Window, _ uint64) bool {
			w.Blame(leaves)
			return true
		})
		for i, l := range leaves {
			if want := s.bruteBlame(paths[i]); l.Version != want || l.Found != (want > 0) {
				t.Fatalf("%s is blamed on %d (%v), want %d, in\n%s", paths[i], l.Version, l.Found, want, strings.Join(s.entries, "\n"))
			}
		}
	})
}

// follow is a live thread whose log goes through a window, entry by entry, with the states on the way.
type follow struct {
	t            *rapid.T
	live, shadow *agui.Thread
	window       *history.Window
	states       []string
	offset       uint64
}

func (f *follow) feed(a agui.Applied) {
	err := agui.EachEntry(a.Stored, func(e *agui.Entry, stored []byte) error {
		err := f.shadow.Replay(e, stored)
		f.states = append(f.states, string(f.shadow.State(nil)))
		return errors.Join(err, f.window.Replay(history.Source{}, e, stored))
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

// step takes a step, and reports whether the thread can go on.
func (f *follow) step(step aguitest.Step) bool {
	if (step.Input != nil || step.Await != "") && f.live.Running() {
		f.feed(f.live.Truncate(agui.TakenOver))
	}
	switch {
	case step.Input != nil:
		in, _, _ := agui.DecodeInput(step.Input, agui.DefaultLimits())
		a, err := f.live.Begin(agui.Start{Input: in, AllowUnanswered: true})
		if err != nil {
			return false
		}
		f.feed(a)
	case step.Event != nil:
		a, v := f.live.Apply(f.offset, step.Event)
		if v != nil {
			f.t.Fatal(v)
		}
		f.feed(a)
		f.offset++
	case step.Await != "":
		f.live.Await(step.Await)
	}
	return true
}

// Real streams, with all that they may bring, go through windows without a difference to the fold.
func TestWindowsOverRealStreams(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		lim := agui.DefaultLimits()
		f := &follow{t: t, live: agui.NewThread("t", lim), shadow: agui.NewThread("t", lim), window: newWindow(t, agui.NewThread("t", lim))}
		f.states = []string{string(f.live.State(nil))}
		for _, step := range aguitest.Stream(t, aguitest.Options{}) {
			if !f.step(step) {
				return
			}
		}
		f.check()
	})
}

// check goes back over all changes of the state.
func (f *follow) check() {
	var newest uint64
	f.window.Changes(jsondoc.Pointer{}, func(c *history.Change) bool {
		newest = max(newest, c.Version)
		if c.Before != (jsondoc.Pointer{}) { // a part of the state became the state
			return false
		}
		if c.Place.Step == 0 && string(c.Old) != f.states[c.Version-1] {
			f.t.Fatalf("before version %d the state was\n%s, not\n%s", c.Version, f.states[c.Version-1], c.Old)
		}
		return true
	})
	for v := newest; v+1 < uint64(len(f.states)); v++ {
		if f.states[v] != f.states[v+1] {
			f.t.Fatalf("nothing was said of the change by version %d", v+1)
		}
	}
}
