package agui

import (
	"cmp"
	"slices"

	"github.com/threadsvc/threadsvc/agui/jsondoc"
)

// Thread is a thread at one version: its messages, its state, and what it remembers of its runs. It accepts events
// (Apply), inputs (Begin, Create) and what the service does to its runs (Truncate, Fail), each of which it describes by
// log entries; replaying these on the Thread of an earlier version gives the same Thread.
//
// After a violation a Thread can be closed with Fail or must be thrown away.
type Thread struct {
	id  string
	lim Limits

	version uint64
	hash    [32]byte
	state   *jsondoc.Doc // nil before anything has set it
	msgs    messages
	track   tracking
	input   Value // payload of the open run's input entry

	// What has happened to the state since the stored fold.
	stateReplaced   bool
	statePatches    []StatePatch
	statePatchBytes int

	replaying bool
	strict    bool              // replay obeys the limits (ReplayWithinLimits)
	watch     func(StateEffect) // nil unless WatchState was called
}

// Applied is what an accepted event or input amounts to: the entries to be committed, and what they mean for the
// thread's runs.
type Applied struct {
	// Stored are the stored forms of the entries, one after another; Entries is their number.
	Stored  []byte
	Entries int
	// RunID is the run the entries belong to; empty for those outside of any run.
	RunID    string
	Warnings []Warning
	// Opened is set when the event opened a run that had not been announced.
	Opened *RunOpened
	// Ended is set when the run ended.
	Ended *RunEnded
}

// RunOpened describes a run that its own RUN_STARTED, or a RUN_ERROR without one, has opened.
type RunOpened struct {
	RunID, ParentRunID string
}

// RunEnded describes how a run ended. The texts are nil when absent.
type RunEnded struct {
	RunID  string
	Ending Ending
	// ProtocolVersion is what the producer declared.
	ProtocolVersion        Value
	Outcome, Result, Usage Value
	// Error is an object with "message" and "code".
	Error Value
}

// Ending says how a run ended.
type Ending string

// The endings.
const (
	EndFinished    Ending = "finished"
	EndInterrupted Ending = "interrupted"
	EndCancelled   Ending = "cancelled"
	EndFailed      Ending = "failed"
	EndTruncated   Ending = "truncated"
)

// NewThread returns a thread at version 0.
func NewThread(id string, lim Limits) *Thread {
	t := &Thread{id: id, lim: lim, msgs: newMessages()}
	t.track.resetRun()
	return t
}

// maxInputDepth bounds the nesting of a stored input, whatever the limits were when it came.
const maxInputDepth = 10_000

// Restore returns the thread that a fold describes. The log's hash is that of the fold's version. The Thread keeps the
// fold's texts, which were checked when they came: no message and no part of the state is read before something asks for
// what is in it. The input of an open run is checked again, since a run input quotes it; one that is no JSON, as of a damaged
// entry, is left out.
func Restore(id string, fold Fold, hash [32]byte, lim Limits) (*Thread, error) {
	t := NewThread(id, lim)
	t.version, t.hash = fold.Version, hash
	if CheckJSON(fold.Input, maxInputDepth) == nil {
		t.input = fold.Input
	}
	if fold.State != nil {
		t.state = jsondoc.Known(fold.State, t.docLimits())
	}
	track, err := decodeTracking(fold.Tracking)
	if err != nil {
		return nil, err
	}
	t.track = track
	t.msgs.reserve(len(fold.Messages))
	for _, stored := range fold.Messages {
		t.msgs.restore(restoreMessage(&stored))
	}
	t.msgs.settle()
	return t, nil
}

// Version is the number of entries the thread's log has; Hash chains them (Chain).
func (t *Thread) Version() uint64 { return t.version }

// Hash is the hash of the log.
func (t *Thread) Hash() [32]byte { return t.hash }

// RunID is the run that is open, was last, or is awaited; empty if there never was one.
func (t *Thread) RunID() string { return t.track.RunID }

// Running reports whether a run is open: announced, and not ended.
func (t *Thread) Running() bool {
	return t.track.Phase == phaseRunning || t.track.Phase == phaseAwaited && t.track.Opened
}

// Closed reports whether the service closed the last run (Truncate, Fail), so that its stream can append nothing more.
func (t *Thread) Closed() bool { return t.track.Phase == phaseClosed }

// Size is the length of state and messages together, in bytes of JSON.
func (t *Thread) Size() int { return t.stateSize() + t.msgs.size }

// MessageCount is the number of messages, activity messages included.
func (t *Thread) MessageCount() int { return len(t.msgs.order) }

// Messages returns the messages in order, which the caller must not change.
func (t *Thread) Messages() []*Message { return t.msgs.order }

// State appends the state's JSON text to dst.
func (t *Thread) State(dst []byte) []byte {
	if t.state == nil {
		return append(dst, emptyState...)
	}
	return t.state.AppendTo(dst)
}

// Await prepares the thread for a producer stream that nobody announced: its first RUN_STARTED must name runID. It
// changes nothing that is stored.
func (t *Thread) Await(runID string) {
	t.track.resetRun()
	t.track.Phase, t.track.RunID, t.track.Opened = phaseAwaited, runID, false
}

// await is Await for a run that may be awaited already.
func (t *Thread) await(runID string) {
	if !t.awaiting() || t.track.RunID != runID {
		t.Await(runID)
	}
}

// awaiting reports whether the next event is the first of a run that nobody announced.
func (t *Thread) awaiting() bool { return t.track.Phase == phaseAwaited && !t.track.Opened }

// record adds an entry to the thread's log and to what is to be committed.
func (t *Thread) record(a *Applied, e *Entry) {
	start := len(a.Stored)
	a.Stored = e.Append(a.Stored)
	t.hash = Chain(t.hash, a.Stored[start:])
	t.version++
	a.Entries++
}

// Changes returns what must be written to bring the stored fold up to the thread's version.
func (t *Thread) Changes() Changes {
	c := Changes{
		Version: t.version, Deletes: slices.Clone(t.msgs.deleted), Stored: t.msgs.stored, Tracking: t.track.encode(),
	}
	for m := range t.msgs.dirty {
		c.Upserts = append(c.Upserts, StoredMessage{Position: m.Position, ID: m.ID, Role: m.Role, Body: m.AppendTo(nil)})
	}
	slices.SortFunc(c.Upserts, func(a, b StoredMessage) int { return cmp.Compare(a.Position, b.Position) })
	c.Deletes = slices.DeleteFunc(c.Deletes, func(gone int64) bool {
		_, taken := slices.BinarySearchFunc(c.Upserts, gone, func(m StoredMessage, position int64) int {
			return cmp.Compare(m.Position, position)
		})
		return taken
	})
	switch {
	case t.stateReplaced:
		c.State.Replaced = t.State(nil)
	default:
		c.State.Patches = t.statePatches
	}
	return c
}

// Settle notes that the changes were written.
func (t *Thread) Settle() {
	t.msgs.settle()
	t.stateReplaced, t.statePatches, t.statePatchBytes = false, nil, 0
}

// Input is the payload of the input entry of the run that is open, nil if it had none or no run is open.
func (t *Thread) Input() Value { return t.input }

// StateSize is the length of the state, in bytes of JSON.
func (t *Thread) StateSize() int { return t.stateSize() }

// Skip passes over stored entries that cannot be read, up to version.
func (t *Thread) Skip(version uint64) { t.version = max(t.version, version) }

// Seal sets the version and the hash of a thread that was loaded to those of its head. They differ from what replay
// gave only if entries could not be read.
func (t *Thread) Seal(version uint64, hash [32]byte) { t.version, t.hash = version, hash }

// Over reports whether the last run has ended.
func (t *Thread) Over() bool {
	return t.track.Phase == phaseFinished || t.track.Phase == phaseFailed || t.track.Phase == phaseClosed
}
