package agui

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
)

// RunInput is the RunAgentInput that a thread amounts to.
type RunInput struct {
	// Text is its JSON text.
	Text []byte
	// Repaired are the tool calls that were given an error result.
	Repaired []string
}

// repairText is the error that repaired tool calls are answered with.
const repairText = "The tool call was not completed: its run ended before a result arrived."

// RunInput assembles the run input (protocol page on run inputs): state, the messages without activities, and what the
// application brought for the run that is open. While none is open, it is what a run started now would be given, without
// a runId.
//
// What providers refuse is put right in this derived text, never in what is stored: a tool message follows the message
// that holds its call, of several that answer the same call the last one counts, and one that answers no call is left
// out. With repair, calls without a result get an error as one, unless they wait for the answer to an interrupt.
func (t *Thread) RunInput(repair bool) RunInput {
	return t.AppendRunInput(make([]byte, 0, t.InputSize()), repair)
}

// InputSize is about the length of the run input, and seldom below it.
func (t *Thread) InputSize() int { return t.Size() + len(t.input) + 512 }

// AppendRunInput is RunInput with a text in the memory of dst, which must be empty, or in larger memory if it needs that.
func (t *Thread) AppendRunInput(dst []byte, repair bool) RunInput {
	var in RunInput
	w := writer{text: dst}
	w.string("threadId", t.id)
	if t.Running() {
		w.string("runId", t.track.RunID)
		w.value("parentRunId", memberOf(t.input, "parentRunId"))
	}
	w.string("protocolVersion", ProtocolVersion)
	if !t.stateIsNull() {
		w.name("state")
		w.text = t.State(w.text)
	}
	w.name("messages")
	w.text, in.Repaired = t.appendMessages(w.text, repair)
	t.appendInput(&w)
	in.Text = w.object()
	return in
}

// stateIsNull reports whether the state is null, which a run input cannot say.
func (t *Thread) stateIsNull() bool {
	return t.stateSize() == len("null") && string(t.State(nil)) == "null"
}

// appendInput adds what the application brought for the open run. What it left out is written as empty where older
// agents require it.
func (t *Thread) appendInput(w *writer) {
	input := t.input
	if !t.Running() {
		input = nil
	}
	orElse := func(name string, absent Value) {
		value := memberOf(input, name)
		if value == nil {
			value = absent
		}
		w.value(name, value)
	}
	orElse("tools", Value("[]"))
	orElse("context", Value("[]"))
	orElse("forwardedProps", Value("{}"))
	orElse("resume", nil)
}

// appendMessages appends the array of the input's messages.
func (t *Thread) appendMessages(dst []byte, repair bool) (_ []byte, repaired []string) {
	results, waiting, seen := t.results(), t.waiting(), set[string]{}
	dst = append(dst, '[')
	first := true
	separate := func() {
		if !first {
			dst = append(dst, ',')
		}
		first = false
	}
	for _, m := range t.msgs.order {
		if m.Role == RoleActivity || m.Role == RoleTool {
			continue
		}
		separate()
		dst = m.AppendTo(dst)
		calls := heldCalls(m, seen)
		for _, result := range resultsFor(calls, results) {
			separate()
			dst = result.AppendTo(dst)
		}
		if !repair {
			continue
		}
		for _, id := range calls {
			if results[id] == nil && !waiting.has(id) {
				separate()
				dst = append(dst, errorResult(id)...)
				repaired = append(repaired, id)
			}
		}
	}
	return append(dst, ']'), repaired
}

// results finds the last tool message for each call.
func (t *Thread) results() map[string]*Message {
	results := map[string]*Message{}
	for _, m := range t.msgs.order {
		if m.Role == RoleTool {
			results[m.ToolCallID] = m
		}
	}
	return results
}

// heldCalls returns the ids of a message's calls that are not among those seen in messages before it, and adds them.
func heldCalls(m *Message, seen set[string]) (held []string) {
	for _, id := range m.callIDs() {
		if !seen.has(id) {
			seen.add(id)
			held = append(held, id)
		}
	}
	return held
}

// resultsFor returns the tool messages that answer calls, in the thread's order.
func resultsFor(calls []string, results map[string]*Message) []*Message {
	var found []*Message
	for _, id := range calls {
		if result := results[id]; result != nil {
			found = append(found, result)
		}
	}
	slices.SortFunc(found, func(a, b *Message) int { return cmp.Compare(a.Position, b.Position) })
	return found
}

// errorResult is the tool message that stands for a result that never came.
func errorResult(callID string) []byte {
	var w writer
	w.string("id", repairID(callID))
	w.string("role", string(RoleTool))
	w.string("toolCallId", callID)
	w.string("content", repairText)
	w.string("error", repairText)
	return w.object()
}

// repairID makes the id of the message that answers a call: the same every time, and an id of legal length.
func repairID(callID string) string {
	id := "repair-" + callID
	if len(id) > MaxIDBytes {
		id = fmt.Sprintf("repair-%x", sha256.Sum256([]byte(callID)))
	}
	return id
}

// PendingToolCalls lists the tool calls without a result, in the order of the messages that hold them.
func (t *Thread) PendingToolCalls() []string {
	results, seen := t.results(), set[string]{}
	var pending []string
	for _, m := range t.msgs.order {
		for _, id := range heldCalls(m, seen) {
			if results[id] == nil {
				pending = append(pending, id)
			}
		}
	}
	return pending
}

// OpenInterrupts returns the interrupts that the next run must answer, as they came.
func (t *Thread) OpenInterrupts() []Value { return t.track.Interrupts }

// TouchedByIncompleteRun reports whether the state was last touched by a run that got no ordinary end.
func (t *Thread) TouchedByIncompleteRun() bool { return t.track.IncompleteTouch }

// pendingCalls are the calls that the last completed run left for the application, and that no message answers.
func (t *Thread) pendingCalls() []string {
	if len(t.track.Pending) == 0 {
		return nil
	}
	results := t.results()
	var pending []string
	for _, id := range t.track.Pending {
		if results[id] == nil {
			pending = append(pending, id)
		}
	}
	return pending
}

// waiting are the calls that wait for the answer to an interrupt: one that is open, or one that the present run answers.
func (t *Thread) waiting() set[string] {
	calls := set[string]{}
	for _, id := range t.track.Suspended {
		calls.add(id)
	}
	for _, interrupt := range t.track.Interrupts {
		calls.add(unquote(memberOf(interrupt, "toolCallId")))
	}
	return calls
}
