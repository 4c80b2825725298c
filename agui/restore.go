package agui

import (
	"bytes"

	"github.com/threadsvc/threadsvc/agui/jsondoc"
)

// restoreMessage makes a message of the fold. What its row says is not read again in its text.
func restoreMessage(stored *StoredMessage) *Message {
	m := &Message{ID: stored.ID, Role: stored.Role, Position: stored.Position, raw: stored.Body, stored: true}
	switch m.Role {
	case RoleTool:
		m.ToolCallID = unquote(firstMember(m.raw, "toolCallId"))
	case RoleAssistant:
		if mayHave(m.raw, "toolCalls") {
			m.rawCalls = firstMember(m.raw, "toolCalls")
		}
	}
	return m
}

// mayHave reports whether a JSON object may have a member of that name. It may say so of one that has the name elsewhere in
// its text, or escapes.
func mayHave(object Value, name string) bool {
	return bytes.Contains(object, quote(name)) || bytes.Contains(object, []byte(`\u`))
}

// firstMember is memberOf for an object that has no name twice. It reads no further than the member.
func firstMember(object Value, name string) Value {
	for key, value := range jsondoc.Members(object) {
		if string(nameOf(key)) == name {
			return value
		}
	}
	return nil
}
