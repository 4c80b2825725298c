package agui

import (
	"fmt"
	"strings"
)

// startCall is TOOL_CALL_START: it adds a call to its parent message; one already held keeps its arguments and takes the
// new name.
func (t *Thread) startCall(ev *Event) *Warning {
	t.track.noteCall(ev.ToolCallID)
	if place, held := t.msgs.call(ev.ToolCallID); held {
		return t.restartCall(place, ev)
	}
	call := newToolCall(ev.ToolCallID, ev.ToolCallName)
	call.obj.merge("metadata", ev.Metadata)
	m := t.callParent(ev)
	t.msgs.grew(m, m.addCall(call))
	t.msgs.holdCall(m, call)
	return nil
}

func (t *Thread) restartCall(place callPlace, ev *Event) *Warning {
	grown := place.call.obj.merge("metadata", ev.Metadata)
	renamed := !equalStrings(place.call.function.get("name"), ev.ToolCallName)
	grown += place.call.function.setValue("name", ev.ToolCallName)
	t.msgs.grew(place.message, grown)
	if renamed {
		return &Warning{Code: ToolCallRenamed, Path: "/toolCallName", Detail: "the tool call was held under another name"}
	}
	return nil
}

// callParent returns the assistant message that holds a new call: the parent named, created if unknown; if none is named,
// or the name belongs to another kind of message, a new one with the call's id.
func (t *Thread) callParent(ev *Event) *Message {
	parent := t.msgs.byID[ev.ParentMessageID]
	if parent != nil && parent.Role == RoleAssistant {
		return parent
	}
	id := ev.ParentMessageID
	if id == "" || parent != nil {
		id = ev.ToolCallID
	}
	if held := t.msgs.byID[id]; held != nil {
		if held.Role == RoleAssistant {
			return held
		}
		id = t.freeID(id)
	}
	m := newMessage(id, RoleAssistant)
	m.obj.setString("subagentRunId", ev.SubagentRunID)
	t.msgs.append(m)
	return m
}

// freeID makes an id that no message holds of one that is taken.
func (t *Thread) freeID(taken string) string {
	for n := t.version + 1; ; n++ {
		suffix := fmt.Sprintf("-%d", n)
		id := strings.ToValidUTF8(taken[:min(len(taken), MaxIDBytes-len(suffix))], "") + suffix
		if t.msgs.byID[id] == nil {
			return id
		}
	}
}

// changeCall is TOOL_CALL_ARGS and TOOL_CALL_END.
func (t *Thread) changeCall(ev *Event) *Warning {
	place, held := t.msgs.call(ev.ToolCallID)
	if !held { // a snapshot dropped it while it was open
		return &Warning{Code: TargetUnknown, Path: "/toolCallId", Detail: "the thread does not hold the tool call"}
	}
	grown := place.call.appendArguments(ev.Delta)
	t.msgs.grew(place.message, grown+place.call.obj.merge("metadata", ev.Metadata))
	return nil
}

// resultOfCall is TOOL_CALL_RESULT: it mints a tool message, seated after the message that holds the call and the tool
// messages already there; a tool message that is held under its id is replaced.
func (t *Thread) resultOfCall(ev *Event) *Warning {
	t.track.Answered.add(ev.ToolCallID)
	m := newMessage(ev.MessageID, RoleTool)
	m.ToolCallID = ev.ToolCallID
	m.obj.set("toolCallId", quote(ev.ToolCallID))
	m.obj.setValue("content", ev.Content)
	m.obj.setString("subagentRunId", ev.SubagentRunID)
	m.obj.merge("metadata", ev.Metadata)
	if held := t.msgs.byID[ev.MessageID]; held != nil {
		if held.Role != RoleTool {
			return conflictWith(held)
		}
		t.msgs.replace(held, m)
		return nil
	}
	place, held := t.msgs.call(ev.ToolCallID)
	if !held {
		t.msgs.append(m)
		return &Warning{Code: ToolResultOrphaned, Path: "/toolCallId", Detail: "no message holds the tool call"}
	}
	at := t.msgs.index(place.message) + 1
	for at < len(t.msgs.order) && t.msgs.order[at].Role == RoleTool {
		at++
	}
	t.msgs.insert(at, m)
	return nil
}
