package agui

import "fmt"

// reduce builds in state and messages what a verified canonical event builds (protocol pages on the events). It returns a
// warning if the event did not build what it should have. inert is FlagInert of the event's entry: whether a patch
// applied was decided when the entry was recorded, by the limits of that time.
func (t *Thread) reduce(ev *Event, inert bool) *Warning {
	switch ev.Type {
	case TextMessageStart:
		return t.startMessage(ev, Role(ev.Role), RoleAssistant)
	case ReasoningMessageStart:
		return t.startMessage(ev, RoleReasoning, RoleReasoning)
	case TextMessageContent, ReasoningMessageContent:
		return t.appendMessage(ev)
	case TextMessageEnd, ReasoningMessageEnd:
		return t.endMessage(ev)
	case ToolCallStart:
		return t.startCall(ev)
	case ToolCallArgs, ToolCallEnd:
		return t.changeCall(ev)
	case ToolCallResult:
		return t.resultOfCall(ev)
	case StateSnapshot:
		return t.noteLoss(t.replaceState(ev.Snapshot, inert), inert)
	case StateDelta:
		return t.noteLoss(t.patchState(ev.Patch, inert), inert)
	case MessagesSnapshot:
		return t.reconcile(ev)
	case ActivitySnapshot:
		return t.snapshotActivity(ev)
	case ActivityDelta:
		return t.patchActivity(ev, inert)
	case ReasoningEncryptedValue:
		return t.storeEncrypted(ev)
	}
	return nil
}

func (t *Thread) startMessage(ev *Event, role, absent Role) *Warning {
	if role == "" {
		role = absent
	}
	m := t.msgs.byID[ev.MessageID]
	if m != nil && m.Role == RoleActivity {
		return conflictWith(m)
	}
	if m != nil {
		t.mergeMetadata(m, ev.Metadata)
		return nil
	}
	m = newMessage(ev.MessageID, role)
	m.obj.set("content", newText(nil))
	m.obj.setValue("name", ev.Name)
	m.obj.setString("subagentRunId", ev.SubagentRunID)
	m.obj.merge("metadata", ev.Metadata)
	t.msgs.append(m)
	return nil
}

// target returns the message that a text or reasoning event continues.
func (t *Thread) target(ev *Event) (*Message, *Warning) {
	m := t.msgs.byID[ev.MessageID]
	if m == nil { // a snapshot dropped it while it was open
		return nil, &Warning{Code: TargetUnknown, Path: "/messageId", Detail: "the thread does not hold the message"}
	}
	if m.Role == RoleActivity {
		return nil, conflictWith(m)
	}
	return m, nil
}

func (t *Thread) appendMessage(ev *Event) *Warning {
	m, warning := t.target(ev)
	if warning != nil {
		return warning
	}
	grown, ok := m.appendContent(ev.Delta)
	t.msgs.grew(m, grown)
	t.mergeMetadata(m, ev.Metadata)
	if !ok {
		return &Warning{Code: TargetConflict, Path: "/messageId", Detail: "the message's content is a list of parts, which text cannot continue"}
	}
	return nil
}

func (t *Thread) endMessage(ev *Event) *Warning {
	m, warning := t.target(ev)
	if warning == nil {
		t.mergeMetadata(m, ev.Metadata)
	}
	return warning
}

// mergeMetadata merges an event's metadata into what it builds (protocol page on metadata).
func (t *Thread) mergeMetadata(m *Message, metadata Value) {
	if metadata == nil {
		return
	}
	obj, grown := m.open()
	t.msgs.grew(m, grown+obj.merge("metadata", metadata))
}

func conflictWith(m *Message) *Warning {
	return &Warning{Code: TargetConflict, Path: "/messageId", Detail: fmt.Sprintf("the id belongs to a message of role %s", m.Role)}
}

// storeEncrypted is REASONING_ENCRYPTED_VALUE: the value and its type replace those held; a value without a type removes
// the type held.
func (t *Thread) storeEncrypted(ev *Event) *Warning {
	unknown := &Warning{Code: TargetUnknown, Path: "/entityId", Detail: "the thread does not hold what the value belongs to"}
	if ev.Subtype == "tool-call" {
		place, held := t.msgs.call(ev.EntityID)
		if !held {
			return unknown
		}
		t.msgs.grew(place.message, setEncrypted(place.call.obj, ev))
		return nil
	}
	m := t.msgs.byID[ev.EntityID]
	if m == nil {
		return unknown
	}
	if m.Role == RoleActivity { // has no place for it, so it counts as unknown
		return unknown
	}
	obj, grown := m.open()
	t.msgs.grew(m, grown+setEncrypted(obj, ev))
	return nil
}

func setEncrypted(obj *object, ev *Event) int {
	grown := obj.setValue("encryptedValue", ev.EncryptedValue)
	if ev.EncryptedValueType == nil {
		return grown + obj.remove("encryptedValueType")
	}
	return grown + obj.setValue("encryptedValueType", ev.EncryptedValueType)
}
