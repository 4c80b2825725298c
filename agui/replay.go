package agui

import (
	"encoding/json"
	"fmt"
	"math"
)

// replayLimits let everything pass that the log holds: it was within the limits of its time.
var replayLimits = Limits{Event: math.MaxInt, Depth: 9000, State: math.MaxInt, Context: math.MaxInt, PatchOps: math.MaxInt, OpenItems: math.MaxInt, Warnings: 1}

// Replay folds one stored entry, which makes the thread what it was after the entry had been recorded. stored is the
// entry's stored form. An error (of an entry that this version cannot read) leaves messages and state as they are; the
// entry still counts, so that the log can be read on.
func (t *Thread) Replay(entry *Entry, stored []byte) error {
	t.replaying = true
	defer func() { t.replaying = false }()
	err := t.replay(entry)
	t.hash = Chain(t.hash, stored)
	t.version++
	if err != nil {
		return fmt.Errorf("agui: version %d: %w", t.version, err)
	}
	return nil
}

// ReplayAll replays the concatenated stored forms of entries. It returns one error for each entry that could not be
// read.
func (t *Thread) ReplayAll(stored []byte) []error {
	var unreadable []error
	entries, err := DecodeEntries(stored)
	for i, rest := 0, stored; i < len(entries); i++ {
		_, n := decodeEntry(rest)
		if err := t.Replay(&entries[i], rest[:n]); err != nil {
			unreadable = append(unreadable, err)
		}
		rest = rest[n:]
	}
	if err != nil {
		unreadable = append(unreadable, err)
	}
	return unreadable
}

func (t *Thread) replay(entry *Entry) error {
	switch entry.Kind {
	case KindEvent:
		return t.replayEvent(entry)
	case KindInput:
		return t.replayInput(entry.Payload)
	case KindMark:
		var mark Mark
		if err := json.Unmarshal(entry.Payload, &mark); err != nil {
			return fmt.Errorf("read mark: %w", err)
		}
		if mark.Type == MarkRewound || mark.Type == MarkForked {
			return t.restoreFold(entry.Payload)
		}
		t.foldMark(&mark)
		return nil
	}
	return fmt.Errorf("unknown kind %d", entry.Kind)
}

func (t *Thread) replayEvent(entry *Entry) error {
	d := newDecoder()
	defer d.release()
	if _, v := d.decodeEvent(entry.Payload, replayLimits); v != nil {
		return v
	}
	ev := &d.event
	if ev.Text == nil {
		return fmt.Errorf("unknown event type")
	}
	if t.track.Phase == phaseIdle && t.track.RunID == "" || t.track.Phase == phaseClosed {
		t.Await(ev.RunID)
	}
	if v := t.verify(ev); v != nil {
		return v
	}
	var a Applied
	return t.insist(t.step(&a, ev, entry.Flags))
}
