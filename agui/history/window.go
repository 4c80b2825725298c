// Package history tells what changed in the state of a thread, and which entry of its log gave each value: it follows
// values back through what was done to the state, through moves, copies, shifts within arrays and snapshots.
//
// It works on one stretch of the log at a time, a Window, and goes from stretch to stretch towards the beginning, so that
// it needs no more memory than one of them. Like agui it does no I/O and has no clock.
package history

import (
	"fmt"
	"math"
	"time"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/agui/jsondoc"
)

// Source is the log entry that did something.
type Source struct {
	Version     uint64
	CommittedAt time.Time
	// RunID is the run it belongs to, empty if none.
	RunID string
	Kind  agui.Kind
	// Offset, EventType and SubagentRunID are those of the event, if it is one.
	Offset        uint64
	EventType     agui.EventType
	SubagentRunID string
}

// Place is a place between the steps of a log: before the step of an entry. Steps count from 0 in each entry.
type Place struct {
	Version uint64
	Step    int
}

// After is the place after all that an entry did.
func After(version uint64) Place { return Place{Version: version + 1} }

// Window is a stretch of a log with all that it did to the state. It is not safe for concurrent use.
type Window struct {
	thread  *agui.Thread
	journal *jsondoc.Journal
	origins []origin // of the journal's steps
	sources []Source
	now     Source // of the entry being replayed
	size    int
	err     error
}

// origin is where a step comes from.
type origin struct {
	source int // among the sources
	step   int // within its entry
}

var unlimited = jsondoc.Limits{Depth: math.MaxInt, Ops: math.MaxInt, Size: math.MaxInt, Work: math.MaxInt}

// NewWindow begins a window at a thread's version. It takes the thread over.
func NewWindow(thread *agui.Thread) (*Window, error) {
	doc, err := jsondoc.Parse(thread.State(nil), unlimited)
	if err != nil {
		return nil, fmt.Errorf("history: the state: %w", err)
	}
	w := &Window{thread: thread, journal: jsondoc.NewJournal(doc)}
	thread.WatchState(w.effect)
	return w, nil
}

// Replay goes on with the next entry of the log. Of the source, what the entry itself does not tell must be given. The
// error is that of agui.Thread.Replay; the window goes on after it.
func (w *Window) Replay(source Source, entry *agui.Entry, stored []byte) error {
	w.now = source
	w.now.Version, w.now.Kind, w.now.Offset = w.thread.Version()+1, entry.Kind, entry.Offset
	steps := w.journal.Len()
	err := w.thread.Replay(entry, stored)
	if w.journal.Len() > steps {
		w.size += len(entry.Payload)
		w.describe(entry, steps)
	}
	if err == nil {
		err = w.err
	}
	w.err = nil
	return err
}

// effect journals what an entry does. A state that is only restated is not changed.
func (w *Window) effect(e agui.StateEffect) {
	if e.Replaced == nil {
		patch, _, err := jsondoc.ParseKnownOps(e.Patch, unlimited)
		if err == nil {
			err = w.journal.Apply(patch)
		}
		w.fail(err)
		return
	}
	doc, err := jsondoc.Parse(e.Replaced, unlimited)
	if err != nil {
		w.fail(err)
		return
	}
	if doc.Size() != w.journal.Doc().Size() || string(doc.AppendTo(nil)) != string(w.journal.Doc().AppendTo(nil)) {
		w.journal.Replace(doc)
	}
}

func (w *Window) fail(err error) {
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("history: version %d: %w", w.now.Version, err)
	}
}

// describe completes the source of an entry that has done something, and notes it for its steps.
func (w *Window) describe(entry *agui.Entry, before int) {
	if entry.Kind == agui.KindEvent {
		lim := agui.Limits{Event: math.MaxInt, Depth: math.MaxInt16, PatchOps: math.MaxInt, Warnings: 1}
		if ev, _, v := agui.Decode(entry.Payload, lim); v == nil {
			w.now.EventType, w.now.SubagentRunID = ev.Type, ev.SubagentRunID
		}
	}
	w.sources = append(w.sources, w.now)
	for step := range w.journal.Len() - before {
		w.origins = append(w.origins, origin{len(w.sources) - 1, step})
	}
}

// Version is that of the last entry replayed.
func (w *Window) Version() uint64 { return w.thread.Version() }

// Size is the length of the entries that did something, and so how much memory the window takes beside the state.
func (w *Window) Size() int { return w.size }

// Thread gives the thread back, to begin another window with. This one replays nothing any more.
func (w *Window) Thread() *agui.Thread {
	w.thread.WatchState(nil)
	return w.thread
}

// BackTo takes back all that was done after a place.
func (w *Window) BackTo(p Place) {
	for w.journal.Len() > 0 {
		if last := w.last(); last.Version < p.Version || last.Version == p.Version && last.Step < p.Step {
			return
		}
		w.journal.Undo()
	}
}

// last is the place of the last step that was not taken back.
func (w *Window) last() Place {
	o := w.origins[w.journal.Len()-1]
	return Place{Version: w.sources[o.source].Version, Step: o.step}
}

// source is that of the last step that was not taken back.
func (w *Window) source() Source { return w.sources[w.origins[w.journal.Len()-1].source] }
