package agui

import (
	"encoding/json"
	"errors"
	"fmt"
)

// The marks that restore a fold. They carry it, so that replaying them needs nothing else: beside the members of the mark a
// "state" (absent: {}), the "messages", and the "tracking" of the runs.
const (
	// MarkRewound restores the fold of an earlier version of the thread: its "toVersion". What lies between is undone.
	MarkRewound MarkType = "REWOUND"
	// MarkForked begins a thread with the fold of a version of another: its "origin".
	MarkForked MarkType = "FORKED"
)

// Undone is a range of versions that a rewind has undone. They stay in the log.
type Undone struct {
	FirstVersion uint64 `json:"first"`
	LastVersion  uint64 `json:"last"`
}

// Origin is where a thread was forked from.
type Origin struct {
	ThreadID string `json:"threadId"`
	Version  uint64 `json:"version"`
	// LogHash is the hash of the origin's log up to the version.
	LogHash []byte `json:"logHash"`
}

// restoring is what a mark that restores a fold says of itself.
type restoring struct {
	Type      MarkType `json:"type"`
	ToVersion *uint64  `json:"toVersion,omitempty"`
	Origin    *Origin  `json:"origin,omitempty"`
}

// Rewind makes the thread what it was at an earlier version, whose fold is given. No run may be open. A run that was open
// then counts as truncated there, and the stream of the last run can append nothing more.
func (t *Thread) Rewind(to Fold) (Applied, error) {
	version := to.Version
	return t.recordRestoring(&restoring{Type: MarkRewound, ToVersion: &version}, &to)
}

// Fork makes a new thread what another one was at a version, whose fold is given, as Rewind does.
func (t *Thread) Fork(origin Origin, of Fold) (Applied, error) {
	return t.recordRestoring(&restoring{Type: MarkForked, Origin: &origin}, &of)
}

func (t *Thread) recordRestoring(r *restoring, fold *Fold) (Applied, error) {
	payload := r.encode(fold)
	var a Applied
	t.replaying = true // what is restored was within the limits of its time
	defer func() { t.replaying = false }()
	if err := t.restoreFold(payload); err != nil {
		return a, err
	}
	t.record(&a, &Entry{Kind: KindMark, Payload: payload})
	return a, nil
}

func (r *restoring) encode(fold *Fold) []byte {
	text, err := json.Marshal(r)
	if err != nil { // cannot happen: there is nothing in it that JSON lacks
		panic(fmt.Sprintf("agui: encode mark: %v", err))
	}
	w := writer{text: append(make([]byte, 0, fold.Size()+len(text)), text[:len(text)-1]...)}
	w.value("state", fold.State)
	bodies := make([]Value, len(fold.Messages))
	for i := range fold.Messages {
		bodies[i] = fold.Messages[i].Body
	}
	w.value("messages", joinArray(bodies))
	w.value("tracking", fold.Tracking)
	return w.object()
}

// restoreFold folds a mark that restores a fold.
func (t *Thread) restoreFold(payload Value) error {
	var r restoring
	if err := json.Unmarshal(payload, &r); err != nil {
		return fmt.Errorf("read mark: %w", err)
	}
	track, err := decodeTracking(memberOf(payload, "tracking"))
	if err != nil {
		return err
	}
	messages, err := restoredMessages(memberOf(payload, "messages"))
	if err != nil {
		return err
	}
	state := memberOf(payload, "state")
	if state == nil {
		state = Value(emptyState)
	}
	if warning := t.replaceState(state, false); warning != nil {
		return fmt.Errorf("%s: %s", warning.Code, warning.Detail)
	}
	t.msgs.keepOnly(func(*Message) bool { return false })
	for _, m := range messages {
		t.msgs.append(m)
	}
	t.restoreTracking(track, &r)
	return nil
}

// restoredMessages reads the messages of a mark, with texts of their own.
func restoredMessages(list Value) (messages []*Message, err error) {
	if list == nil {
		return nil, nil
	}
	seen := set[string]{}
	err = eachElement(list, func(raw Value) error {
		m := parseMessage(append(Value{}, raw...))
		if m.ID == "" || seen.has(m.ID) {
			return errors.New("a message has no id of its own")
		}
		seen.add(m.ID)
		messages = append(messages, m)
		return nil
	})
	return messages, err
}

// restoreTracking takes up what was remembered of the runs then. Whatever was open is closed; what the thread knows of its own
// past stays.
func (t *Thread) restoreTracking(track tracking, r *restoring) {
	if track.Phase == phaseRunning || track.Phase == phaseAwaited && track.Opened {
		track.Pending, track.Interrupts, track.Suspended = nil, nil, nil
		track.end(phaseClosed, false)
	}
	track.resetRun()
	track.Phase = phaseClosed
	track.Undone, track.Origin, track.Amended = t.track.Undone, t.track.Origin, t.track.Amended
	if r.Origin != nil {
		track.Origin = r.Origin
		track.Resync = track.Resync.inFork(t.version + 1)
	}
	if r.ToVersion != nil && *r.ToVersion < t.version {
		track.Undone = append(track.Undone, Undone{FirstVersion: *r.ToVersion + 1, LastVersion: t.version})
	}
	t.track, t.input = track, nil
}

// Undone returns the ranges of versions that rewinds have undone, in the order of the rewinds; a later range may hold
// earlier ones. The caller must not change them.
func (t *Thread) Undone() []Undone { return t.track.Undone }

// Origin is where the thread was forked from, nil if it was not.
func (t *Thread) Origin() *Origin { return t.track.Origin }
