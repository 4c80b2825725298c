package agui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/threadsvc/threadsvc/agui/jsondoc"
)

// Start is what StartRun brings: a decoded run input, and how to treat what is open on the thread.
type Start struct {
	// Input is what DecodeInput returned.
	Input Event
	// StatePatch is a JSON Patch to the state, nil if there is none. It is applied to Input.State if that is set.
	StatePatch Value
	// Now is the time by which interrupts expire.
	Now time.Time
	// AllowUnanswered goes on although tool calls of the last run have no result.
	AllowUnanswered bool
}

// RefusalReason says why a run cannot start.
type RefusalReason string

// The reasons.
const (
	// InterruptsOpen: resume does not answer all open interrupts.
	InterruptsOpen RefusalReason = "INTERRUPTS_OPEN"
	// InterruptsExpired: resume resolves interrupts past their expiry, which can only be cancelled.
	InterruptsExpired RefusalReason = "INTERRUPTS_EXPIRED"
	// InterruptsUnknown: resume answers interrupts that are not open.
	InterruptsUnknown RefusalReason = "INTERRUPTS_UNKNOWN"
	// ToolCallsUnanswered: tool calls that the last run left for the application have no result.
	ToolCallsUnanswered RefusalReason = "TOOL_CALLS_UNANSWERED"
)

// RefusalError says that a run cannot start as the thread stands.
type RefusalError struct {
	Reason RefusalReason
	// IDs are the interrupts or tool calls concerned.
	IDs []string
}

func (e *RefusalError) Error() string {
	return fmt.Sprintf("agui: the run cannot start: %s: %s", e.Reason, strings.Join(e.IDs, ", "))
}

// Begin opens the run that start describes (protocol pages on run inputs and on interrupts). The entry it records holds
// the input reduced to what the thread did not hold yet. The error is a *RefusalError, or a *Violation if the state
// patch does not apply or the thread would exceed its limits; the thread must be thrown away then.
func (t *Thread) Begin(start Start) (Applied, error) {
	in := &start.Input
	if err := t.checkResume(in.Resume, start.Now); err != nil {
		return Applied{}, err
	}
	if size := t.Size() + len(in.Text) + len(start.StatePatch); size > t.lim.Context {
		return Applied{}, &Violation{ContextTooLarge, "", fmt.Sprintf("state and messages would exceed %d bytes", t.lim.Context)}
	}
	payload, v := t.foldInput(in, start.StatePatch)
	if v != nil {
		return Applied{}, v
	}
	if ids := t.pendingCalls(); len(ids) > 0 && !start.AllowUnanswered {
		return Applied{}, &RefusalError{ToolCallsUnanswered, ids}
	}
	t.beginRun(in.RunID, payload)
	applied := Applied{RunID: in.RunID}
	t.record(&applied, &Entry{Kind: KindInput, Payload: payload})
	return applied, nil
}

// Create records the initial state and messages of a new thread.
func (t *Thread) Create(in Event) (Applied, error) {
	if len(in.Text) > t.lim.Context {
		return Applied{}, &Violation{ContextTooLarge, "", fmt.Sprintf("state and messages would exceed %d bytes", t.lim.Context)}
	}
	payload, v := t.foldInput(&in, nil)
	if v != nil {
		return Applied{}, v
	}
	var applied Applied
	t.record(&applied, &Entry{Kind: KindInput, Payload: payload})
	return applied, nil
}

// foldInput folds an input's messages and state, and returns the payload of its entry.
func (t *Thread) foldInput(in *Event, statePatch Value) (Value, *Violation) {
	var w writer
	w.string("runId", in.RunID)
	w.string("parentRunId", in.ParentRunID)
	if added := t.addMessages(in.Messages); len(added) > 0 {
		w.value("messages", joinArray(added))
	}
	if in.State != nil {
		if warning := t.replaceState(in.State, false); warning != nil {
			return nil, &Violation{warning.Code, "/state", warning.Detail}
		}
		t.track.IncompleteTouch = false
		w.value("state", in.State)
		w.value("stateLacks", t.takeUpResync(in.StateLacks))
	}
	if statePatch != nil {
		if warning := t.patchState(statePatch, false); warning != nil {
			return nil, &Violation{warning.Code, strings.Replace(warning.Path, "/delta", "/statePatch", 1), warning.Detail}
		}
		w.value("statePatch", statePatch)
	}
	w.value("tools", in.Tools)
	w.value("context", in.Context)
	w.value("forwardedProps", in.ForwardedProps)
	w.value("resume", in.Resume)
	return w.object(), nil
}

func joinArray(values []Value) Value {
	list := Value{'['}
	for i, value := range values {
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, value...)
	}
	return append(list, ']')
}

// beginRun notes an announced run, which answers the open interrupts, or again those that a run without an ordinary end
// was to answer.
func (t *Thread) beginRun(runID string, payload Value) {
	k := &t.track
	t.input = payload
	k.resetRun()
	k.Phase, k.RunID, k.Opened = phaseAwaited, runID, true
	switch {
	case len(k.Interrupts) > 0:
		k.Resumed, k.ResumedCalls = k.Interrupts, k.Suspended
	case memberOf(payload, "resume") == nil:
		k.Resumed, k.ResumedCalls = nil, nil
	}
	k.Pending, k.Interrupts, k.Suspended = nil, nil, k.ResumedCalls
}

// replayInput folds a stored input.
func (t *Thread) replayInput(payload Value) error {
	var messages, state, lacks, patch, runID Value
	amends := false
	err := eachMember(payload, func(name, value Value) error {
		switch string(name) {
		case `"amendmentId"`:
			amends = true
		case `"messages"`:
			messages = value
		case `"state"`:
			state = value
		case `"stateLacks"`:
			lacks = value
		case `"statePatch"`:
			patch = value
		case `"runId"`:
			runID = value
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case amends:
		return t.replayAmendment(payload)
	}
	t.addMessages(messages)
	var failed error
	if state != nil {
		failed = t.insist(t.replaceState(state, false))
		t.track.IncompleteTouch = false
		t.takeUpResync(lacks)
	}
	if patch != nil && failed == nil {
		failed = t.insist(t.patchState(patch, false))
	}
	if runID != nil {
		t.beginRun(unquote(runID), payload)
	}
	return failed
}

// checkResume judges the answers to interrupts: each open one is answered, none else is, and one past its expiry is
// cancelled. Those that a run without an ordinary end was to answer may be answered again.
func (t *Thread) checkResume(resume Value, now time.Time) error {
	answers := map[string]string{}
	var answered []string
	for entry := range jsondoc.Elements(resume) {
		id := unquote(memberOf(entry, "interruptId"))
		answered = append(answered, id)
		answers[id] = unquote(memberOf(entry, "status"))
	}
	var open, expired, unknown []string
	known := set[string]{}
	for i, interrupt := range slices.Concat(t.track.Interrupts, t.track.Resumed) {
		id := interruptID(interrupt)
		known.add(id)
		status, found := answers[id]
		switch {
		case !found && i < len(t.track.Interrupts):
			open = append(open, id)
		case status == "resolved" && expiredBy(interrupt, now):
			expired = append(expired, id)
		}
	}
	for _, id := range answered {
		if !known.has(id) {
			unknown = append(unknown, id)
		}
	}
	switch {
	case len(open) > 0:
		return &RefusalError{InterruptsOpen, open}
	case len(expired) > 0:
		return &RefusalError{InterruptsExpired, expired}
	case len(unknown) > 0:
		return &RefusalError{InterruptsUnknown, unknown}
	}
	return nil
}

// expiredBy reports whether an interrupt is past its expiresAt. One that is not a date never expires (schema.json,
// Interrupt.expiresAt).
func expiredBy(interrupt Value, now time.Time) bool {
	at := unquote(memberOf(interrupt, "expiresAt"))
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", time.DateOnly} {
		if expiry, err := time.Parse(layout, at); err == nil {
			return !expiry.After(now)
		}
	}
	return false
}
