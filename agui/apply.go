package agui

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Apply takes the next event of the thread's producer stream. offset is its index there. If the event is refused, the
// thread must be closed with Fail or thrown away when the violation is fatal, and is unchanged otherwise.
func (t *Thread) Apply(offset uint64, text []byte) (Applied, *Violation) {
	return t.ApplyTo(nil, offset, text)
}

// ApplyTo is Apply with memory for Applied.Stored, which it overwrites.
func (t *Thread) ApplyTo(memory []byte, offset uint64, text []byte) (Applied, *Violation) {
	d := newDecoder()
	defer d.release()
	warnings, v := d.decodeEvent(text, t.lim)
	if v != nil {
		return Applied{}, v
	}
	decoded := &d.event
	applied := Applied{Stored: memory[:0], RunID: t.track.RunID, Warnings: warnings}
	if decoded.Text == nil {
		t.recordOmitted(&applied, offset, text, decoded.Type, warnings[0].Code)
		return applied, nil
	}
	if v := t.verifyGrowth(decoded); v != nil {
		return Applied{}, v
	}
	ev, translated := t.translate(decoded)
	applied.Warnings = append(applied.Warnings, translated...)
	if v := t.applyExpanded(&applied, ev, offset, text); v != nil {
		return Applied{}, v
	}
	if applied.Entries == 0 {
		t.recordOmitted(&applied, offset, text, decoded.Type, "")
	}
	return applied, nil
}

// applyExpanded applies the canonical events that an event stands for.
func (t *Thread) applyExpanded(a *Applied, ev *Event, offset uint64, received []byte) *Violation {
	if !t.track.expands(ev) {
		return t.applyCanonical(a, ev, 0, offset, received)
	}
	expanded, v := t.expand(ev)
	if v != nil {
		return v
	}
	version, hash := t.version, t.hash
	for i := range expanded {
		if v := t.applyCanonical(a, &expanded[i].Event, expanded[i].flags, offset, received); v != nil {
			t.version, t.hash = version, hash // the ends of lanes that came before go with it
			return v
		}
	}
	return nil
}

// applyCanonical verifies, reduces and records one canonical event.
func (t *Thread) applyCanonical(a *Applied, ev *Event, flags Flags, offset uint64, received []byte) *Violation {
	if v := t.verify(ev); v != nil {
		return v
	}
	if ev.Type == RunError && !t.track.Opened {
		t.recordOpening(a, offset, received)
	}
	warning := t.step(a, ev, flags)
	if warning != nil {
		a.Warnings = append(a.Warnings, *warning)
		if warning.Code == PatchNotApplied || warning.Code == PatchLimit {
			flags |= FlagInert
		}
	}
	entry := Entry{Kind: KindEvent, Flags: flags, Offset: offset, Payload: ev.Text}
	if !bytes.Equal(ev.Text, received) {
		entry.Flags |= FlagDigest
		entry.Digest = DigestOf(received)
	}
	a.RunID = t.track.RunID
	t.record(a, &entry)
	return nil
}

// step advances the thread by one verified event: its lanes, its run, its messages and state.
func (t *Thread) step(a *Applied, ev *Event, flags Flags) *Warning {
	if flags&FlagChunk != 0 {
		t.track.trackLanes(ev)
	}
	switch ev.Type {
	case RunStarted:
		return t.startRun(a, ev)
	case RunFinished:
		t.finishRun(a, ev)
		return nil
	case RunError:
		t.failRun(a, ev)
		return nil
	}
	return t.reduce(ev, flags&FlagInert != 0)
}

// verifyGrowth refuses an event that would take the thread beyond its limits. What ends a run is never refused.
func (t *Thread) verifyGrowth(ev *Event) *Violation {
	size := t.Size() + len(ev.Text)
	switch ev.Type {
	case RunFinished, RunError, StepFinished, TextMessageEnd, ToolCallEnd, ReasoningMessageEnd, ReasoningEnd,
		SubagentFinished, SubagentError, Raw, Custom, ThinkingEnd, ThinkingTextEnd:
		return nil
	case StepStarted, SubagentStarted: // only the tracking grows
		size = 0
	case StateSnapshot:
		if len(ev.Snapshot) > t.lim.State {
			return &Violation{ContextTooLarge, "/snapshot", fmt.Sprintf("the state would exceed %d bytes", t.lim.State)}
		}
		size -= t.stateSize()
	case MessagesSnapshot:
		size = t.sizeAfter(ev)
	}
	if size > t.lim.Context {
		return &Violation{ContextTooLarge, "", fmt.Sprintf("state and messages would exceed %d bytes", t.lim.Context)}
	}
	if t.track.size() >= t.lim.OpenItems {
		return &Violation{ContextTooLarge, "", fmt.Sprintf("the run would track more than %d items", t.lim.OpenItems)}
	}
	return nil
}

// recordOmitted accounts for an event that left no canonical event.
func (t *Thread) recordOmitted(a *Applied, offset uint64, received []byte, typ EventType, code Code) {
	name := string(typ)
	if len(name) > 64 {
		name = name[:64]
	}
	mark := Mark{Type: MarkEventOmitted, Code: code, EventType: name}
	if t.awaiting() {
		mark.RunID = t.track.RunID
	}
	t.record(a, &Entry{Kind: KindMark, Flags: FlagDigest, Offset: offset, Digest: DigestOf(received), Payload: mark.encode()})
}

// recordOpening says which run a RUN_ERROR ends that comes first of all, since the event itself does not.
func (t *Thread) recordOpening(a *Applied, offset uint64, received []byte) {
	mark := Mark{Type: MarkRunOpened, RunID: t.track.RunID}
	t.record(a, &Entry{Kind: KindMark, Flags: FlagDigest, Offset: offset, Digest: DigestOf(received), Payload: mark.encode()})
}

// Truncate closes the run that is open, which never got its terminal event, because of reason.
func (t *Thread) Truncate(reason Code) Applied {
	return t.closeRun(EndTruncated, 0, Mark{Type: MarkRunTruncated, RunID: t.track.RunID, Code: reason}, nil)
}

// Fail closes the run that is open because the event at offset broke the protocol. Without an open run it does nothing.
func (t *Thread) Fail(offset uint64, v *Violation) Applied {
	if !t.Running() {
		return Applied{}
	}
	mark := Mark{Type: MarkRunFailed, RunID: t.track.RunID, Code: v.Code, Path: v.Path, Detail: v.Detail}
	var w writer
	w.string("message", v.Detail)
	w.string("code", string(v.Code))
	return t.closeRun(EndFailed, offset, mark, w.object())
}

func (t *Thread) closeRun(ending Ending, offset uint64, mark Mark, reason Value) Applied {
	a := Applied{RunID: t.track.RunID}
	a.Ended = &RunEnded{RunID: t.track.RunID, Ending: ending, ProtocolVersion: t.track.ProtocolVersion, Error: reason}
	t.record(&a, &Entry{Kind: KindMark, Offset: offset, Payload: mark.encode()})
	t.foldMark(&mark)
	return a
}

// foldMark folds a mark: those that close a run also end what the run left open, and its interrupts; one gives up the
// interrupts alone; one that precedes the RUN_STARTED of a run that nobody announced tells of that run.
func (t *Thread) foldMark(m *Mark) {
	switch m.Type {
	case MarkRunTruncated, MarkRunFailed:
		t.track.Pending, t.track.Interrupts, t.track.Suspended = nil, nil, nil
		t.endRun(phaseClosed, false)
	case MarkInterruptsAbandoned:
		t.track.abandon()
	case MarkRunOpened:
		t.await(m.RunID)
	case MarkEventOmitted:
		if m.RunID != "" {
			t.await(m.RunID)
		}
	}
}

func (m *Mark) encode() []byte {
	text, err := json.Marshal(m)
	if err != nil { // cannot happen: it consists of strings
		panic(fmt.Sprintf("agui: encode mark: %v", err))
	}
	return text
}
