package agui

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/threadsvc/threadsvc/agui/jsondoc"
)

// startRun is RUN_STARTED: run-scoped tracking starts anew, the messages of an echoed input that are not held are added.
func (t *Thread) startRun(a *Applied, ev *Event) *Warning {
	k := &t.track
	if !k.Opened || k.Phase != phaseAwaited {
		a.Opened = &RunOpened{RunID: ev.RunID, ParentRunID: ev.ParentRunID}
		k.Pending, k.Interrupts, k.Suspended = nil, nil, nil
		k.Resumed, k.ResumedCalls = nil, nil
		t.input = nil
	}
	k.resetRun()
	k.Phase, k.RunID, k.Opened = phaseRunning, ev.RunID, true
	k.ProtocolVersion = slices.Clone(ev.ProtocolVersion) // it would keep an echoed input alive
	list := memberOf(ev.Input, "messages")
	for _, m := range t.readMessages(list) {
		k.seedOwners(m, false)
	}
	t.addMessages(list)
	return versionWarning(ev.ProtocolVersion)
}

// versionWarning warns of a producer that declares a newer or an unreadable version (protocol page on versioning).
func versionWarning(declared Value) *Warning {
	if declared == nil {
		return nil
	}
	major, minor, ok := parseVersion(unquote(declared))
	if !ok {
		return &Warning{Code: VersionUnreadable, Path: "/protocolVersion", Detail: "the version is not MAJOR.MINOR"}
	}
	ourMajor, ourMinor, _ := parseVersion(ProtocolVersion)
	if major > ourMajor || major == ourMajor && minor > ourMinor {
		return &Warning{Code: VersionNewer, Path: "/protocolVersion", Detail: fmt.Sprintf("the producer speaks %d.%d, this service %s", major, minor, ProtocolVersion)}
	}
	return nil
}

// parseVersion reads MAJOR.MINOR, and the three-part versions of before 1.0.
func parseVersion(version string) (major, minor uint64, ok bool) {
	parts := strings.Split(version, ".")
	if len(parts) != 2 && len(parts) != 3 {
		return 0, 0, false
	}
	var numbers [3]uint64
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 32)
		if err != nil || part[0] == '+' {
			return 0, 0, false
		}
		numbers[i] = n
	}
	return numbers[0], numbers[1], true
}

// finishRun is RUN_FINISHED.
func (t *Thread) finishRun(a *Applied, ev *Event) {
	k := &t.track
	ended := &RunEnded{RunID: k.RunID, Ending: EndFinished, ProtocolVersion: k.ProtocolVersion, Outcome: ev.Outcome, Result: ev.Result, Usage: ev.Usage}
	k.Pending, k.Interrupts, k.Suspended = nil, nil, nil
	k.Resumed, k.ResumedCalls = nil, nil
	switch outcomeType(ev.Outcome) {
	case "interrupt":
		ended.Ending = EndInterrupted
		k.Interrupts = interruptsOf(ev.Outcome)
		k.Suspended = k.unanswered()
	case "cancelled":
		ended.Ending = EndCancelled
	default:
		if k.Pending = pendingOf(ev.Outcome); len(k.Pending) == 0 {
			k.Pending = k.unanswered()
		}
	}
	a.Ended = ended
	t.endRun(phaseFinished, true)
}

// failRun is RUN_ERROR: first of all, in the midst of a run, or late.
func (t *Thread) failRun(a *Applied, ev *Event) {
	k := &t.track
	if !k.Opened {
		a.Opened = &RunOpened{RunID: k.RunID}
		k.Opened = true
	}
	var w writer
	w.value("message", ev.Message)
	w.value("code", ev.Code)
	a.Ended = &RunEnded{RunID: k.RunID, Ending: EndFailed, ProtocolVersion: k.ProtocolVersion, Usage: ev.Usage, Error: w.object()}
	k.Pending, k.Interrupts, k.Suspended = nil, nil, nil
	t.endRun(phaseFailed, false)
}

// endRun notes that the run is over, and forgets what it was started with.
func (t *Thread) endRun(to phase, ordinary bool) {
	t.track.end(to, ordinary)
	t.input = nil
}

// unanswered derives the tool calls that the run started and that got no result in it, in their order.
func (k *tracking) unanswered() []string {
	var ids []string
	for _, id := range k.Calls {
		if !k.Answered.has(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// outcomeType returns the discriminator of an outcome, empty if there is none.
func outcomeType(outcome Value) string { return unquote(memberOf(outcome, "type")) }

// pendingOf returns the pendingToolCallIds of an outcome.
func pendingOf(outcome Value) []string {
	var ids []string
	for id := range jsondoc.Elements(memberOf(outcome, "pendingToolCallIds")) {
		ids = append(ids, unquote(id))
	}
	return ids
}

// interruptsOf returns copies of the interrupts of an outcome: they are kept for longer than the event.
func interruptsOf(outcome Value) []Value {
	var list []Value
	for interrupt := range jsondoc.Elements(memberOf(outcome, "interrupts")) {
		list = append(list, slices.Clone(interrupt))
	}
	return list
}

func interruptID(interrupt Value) string { return unquote(memberOf(interrupt, "id")) }

// memberOf returns the text of a member of a checked object, nil if the object or the member is absent.
func memberOf(object Value, name string) (found Value) {
	for key, value := range jsondoc.Members(object) {
		if string(nameOf(key)) == name {
			found = value
		}
	}
	return found
}
