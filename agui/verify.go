package agui

import "fmt"

// verify judges whether a canonical event may come now (protocol pages on lifecycle, streaming and subagents), and if so
// notes what it opens, continues and closes. After a violation the tracking is as before.
func (t *Thread) verify(ev *Event) *Violation {
	if v := t.verifyPhase(ev); v != nil {
		return v
	}
	k := &t.track
	switch ev.Type {
	case TextMessageStart:
		return k.start(ev, itemText, ev.MessageID, "/messageId")
	case TextMessageContent, TextMessageEnd:
		return k.carryOn(ev, itemText, ev.MessageID, "/messageId", ev.Type == TextMessageEnd)
	case ReasoningMessageStart:
		return k.start(ev, itemReasoning, ev.MessageID, "/messageId")
	case ReasoningMessageContent, ReasoningMessageEnd:
		return k.carryOn(ev, itemReasoning, ev.MessageID, "/messageId", ev.Type == ReasoningMessageEnd)
	case ReasoningStart:
		return k.start(ev, itemSpan, ev.MessageID, "/messageId")
	case ReasoningEnd:
		return k.carryOn(ev, itemSpan, ev.MessageID, "/messageId", true)
	case ToolCallStart:
		return k.startCall(ev)
	case ToolCallArgs, ToolCallEnd:
		return k.carryOn(ev, itemCall, ev.ToolCallID, "/toolCallId", ev.Type == ToolCallEnd)
	case ToolCallResult:
		k.Owners[itemOf(itemText, ev.MessageID)] = ev.SubagentRunID
	case StepStarted, StepFinished:
		return k.verifyStep(ev)
	case SubagentStarted, SubagentFinished, SubagentError:
		return k.verifySubagent(ev)
	case ActivitySnapshot:
		key := itemOf(itemActivity, ev.MessageID)
		if _, known := k.Owners[key]; !known || !ev.Keep {
			k.Owners[key] = ev.SubagentRunID
		}
	case ActivityDelta:
		return k.verifyOwner(ev, itemOf(itemActivity, ev.MessageID))
	case ReasoningEncryptedValue:
		return k.verifyEntityOwner(ev)
	case RunFinished:
		return k.verifyFinish(ev)
	}
	return nil
}

// verifyPhase judges an event by where the thread is between its runs.
func (t *Thread) verifyPhase(ev *Event) *Violation {
	if ev.ThreadID != "" && ev.ThreadID != t.id {
		return &Violation{ThreadMismatch, "/threadId", "the event names another thread than the stream's"}
	}
	k := &t.track
	switch k.Phase {
	case phaseAwaited, phaseIdle:
		if ev.Type != RunStarted && ev.Type != RunError {
			return &Violation{SequenceNotStarted, "/type", fmt.Sprintf("the first event is %s, not RUN_STARTED or RUN_ERROR", ev.Type)}
		}
		if ev.RunID != "" && k.RunID != "" && ev.RunID != k.RunID {
			return &Violation{RunMismatch, "/runId", "RUN_STARTED names another run than the one that was opened"}
		}
	case phaseRunning:
		if ev.Type == RunStarted {
			return &Violation{SequenceRunActive, "/type", "RUN_STARTED while a run is active"}
		}
	case phaseFinished:
		if ev.Type != RunStarted && ev.Type != RunError {
			return &Violation{SequenceRunOver, "/type", fmt.Sprintf("%s after RUN_FINISHED", ev.Type)}
		}
	case phaseFailed:
		if ev.Type != RunStarted {
			return &Violation{SequenceRunOver, "/type", fmt.Sprintf("%s after RUN_ERROR", ev.Type)}
		}
	case phaseClosed:
		return &Violation{SequenceRunOver, "/type", fmt.Sprintf("%s after the run was closed", ev.Type)}
	}
	return nil
}

// start opens an item, which keeps the owner it had earlier in the run.
func (k *tracking) start(ev *Event, kind itemKind, id, path string) *Violation {
	key := k.itemOf(kind, id)
	if k.Open.has(key) {
		return &Violation{SequenceAlreadyOpen, path, fmt.Sprintf("the %s is already open", kind)}
	}
	ownerKey := key
	if kind == itemSpan { // spans and reasoning messages share their owners
		ownerKey = itemOf(itemReasoning, id)
	}
	if v := k.verifyOwner(ev, ownerKey); v != nil {
		return v
	}
	k.Open.add(key)
	if _, known := k.Owners[ownerKey]; !known {
		k.Owners[ownerKey] = ev.SubagentRunID
	}
	return nil
}

// carryOn continues or closes an open item.
func (k *tracking) carryOn(ev *Event, kind itemKind, id, path string, closes bool) *Violation {
	key := k.itemOf(kind, id)
	if !k.Open.has(key) {
		return &Violation{SequenceNotOpen, path, fmt.Sprintf("no such %s is open", kind)}
	}
	ownerKey := key
	if kind == itemSpan {
		ownerKey = itemOf(itemReasoning, id)
	}
	if v := k.verifyOwner(ev, ownerKey); v != nil {
		return v
	}
	if closes {
		delete(k.Open, key)
	}
	return nil
}

// verifyOwner judges an attribution against the owner of an item; an event without one, or an item without an owner on
// record, is fine.
func (k *tracking) verifyOwner(ev *Event, key item) *Violation {
	owner, known := k.Owners[key]
	if ev.SubagentRunID == "" || !known || owner == ev.SubagentRunID {
		return nil
	}
	return &Violation{OwnerMismatch, "/subagentRunId", "the event is attributed to another subagent than its opener was"}
}

// verifyEntityOwner is verifyOwner for what an encrypted value belongs to.
func (k *tracking) verifyEntityOwner(ev *Event) *Violation {
	if ev.Subtype == "tool-call" {
		return k.verifyOwner(ev, itemOf(itemCall, ev.EntityID))
	}
	key := itemOf(itemText, ev.EntityID)
	if _, known := k.Owners[key]; !known {
		key = itemOf(itemReasoning, ev.EntityID)
	}
	return k.verifyOwner(ev, key)
}

// startCall opens a tool call, which belongs to the owner of its parent message.
func (k *tracking) startCall(ev *Event) *Violation {
	parent, hasParent := k.Owners[itemOf(itemText, ev.ParentMessageID)]
	hasParent = hasParent && ev.ParentMessageID != ""
	mismatch := &Violation{OwnerMismatch, "/subagentRunId", "a tool call belongs to the owner of its parent message"}
	if hasParent && ev.SubagentRunID != "" && ev.SubagentRunID != parent {
		return mismatch
	}
	key := itemOf(itemCall, ev.ToolCallID)
	if owner, known := k.Owners[key]; known && hasParent && ev.SubagentRunID == "" && owner != parent {
		return mismatch
	}
	_, known := k.Owners[key]
	if v := k.start(ev, itemCall, ev.ToolCallID, "/toolCallId"); v != nil {
		return v
	}
	if !known && ev.SubagentRunID == "" && hasParent {
		k.Owners[key] = parent
	}
	return nil
}

func (k *tracking) verifyStep(ev *Event) *Violation {
	key := stepOf(ev.SubagentRunID, ev.StepName)
	if ev.Type == StepStarted {
		if k.Steps.has(key) {
			return &Violation{SequenceAlreadyOpen, "/stepName", "the step is already open"}
		}
		k.Steps.add(key)
		return nil
	}
	if !k.Steps.has(key) {
		return &Violation{SequenceNotOpen, "/stepName", "no such step of this owner is open"}
	}
	delete(k.Steps, key)
	return nil
}

func (k *tracking) verifySubagent(ev *Event) *Violation {
	active, known := k.Subagents[ev.SubagentRunID]
	if ev.Type != SubagentStarted {
		if !active {
			return &Violation{SubagentUnknown, "/subagentRunId", "no such subagent is active"}
		}
		k.Subagents[ev.SubagentRunID] = false
		return nil
	}
	if known {
		return &Violation{SubagentReused, "/subagentRunId", "the run has already had this subagent"}
	}
	if _, announced := k.Subagents[ev.ParentSubagentRunID]; ev.ParentSubagentRunID != "" && !announced {
		return &Violation{SubagentUnknown, "/parentSubagentRunId", "the parent subagent was never announced"}
	}
	k.Subagents[ev.SubagentRunID] = true
	return nil
}

// verifyFinish judges RUN_FINISHED: it names the run, and everything is closed.
func (k *tracking) verifyFinish(ev *Event) *Violation {
	if ev.RunID != k.RunID {
		return &Violation{RunMismatch, "/runId", "RUN_FINISHED names another run than RUN_STARTED did"}
	}
	if n := len(k.Open); n > 0 {
		return &Violation{SequenceStillOpen, "", fmt.Sprintf("RUN_FINISHED while %d messages, tool calls or reasoning spans are open", n)}
	}
	if n := len(k.Steps); n > 0 {
		return &Violation{SequenceStillOpen, "", fmt.Sprintf("RUN_FINISHED while %d steps are open", n)}
	}
	for _, active := range k.Subagents {
		if active {
			return &Violation{SequenceStillOpen, "", "RUN_FINISHED while a subagent is active"}
		}
	}
	return verifyInterrupts(ev.Outcome)
}

// verifyInterrupts judges that the interrupts of an outcome have different ids.
func verifyInterrupts(outcome Value) *Violation {
	seen := set[string]{}
	for i, interrupt := range interruptsOf(outcome) {
		id := interruptID(interrupt)
		if seen.has(id) {
			return &Violation{InterruptRepeated, fmt.Sprintf("/outcome/interrupts/%d/id", i), "two interrupts share an id"}
		}
		seen.add(id)
	}
	return nil
}

// seedOwners puts the owners of messages that came whole on record: those of a MESSAGES_SNAPSHOT replace what is there.
func (k *tracking) seedOwners(m *Message, authoritative bool) {
	owner := unquote(m.peek("subagentRunId"))
	kind := itemText
	switch m.Role {
	case RoleReasoning:
		kind = itemReasoning
	case RoleActivity:
		kind = itemActivity
	}
	seed := func(key item) {
		if _, known := k.Owners[key]; authoritative || !known {
			k.Owners[key] = owner
		}
	}
	seed(itemOf(kind, m.ID))
	for _, id := range m.callIDs() {
		seed(itemOf(itemCall, id))
	}
}
