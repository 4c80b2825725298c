package agui

import (
	"bytes"
	"errors"
)

// restoreMessage makes a message of the fold. What its row says is not read again in its text.
func restoreMessage(stored *StoredMessage) *Message {
	m := &Message{ID: stored.ID, Role: stored.Role, Position: stored.Position, raw: stored.Body, stored: true}
	switch m.Role {
	case RoleTool:
		m.ToolCallID = unquote(firstMember(m.raw, "toolCallId"))
	case RoleAssistant:
		m.rawCalls = mayHave(m.raw, "toolCalls") && firstMember(m.raw, "toolCalls") != nil
	}
	return m
}

// mayHave reports whether a JSON object may have a member of that name. It may say so of one that has the name elsewhere in
// its text, or escapes.
func mayHave(object Value, name string) bool {
	return bytes.Contains(object, quote(name)) || bytes.Contains(object, []byte(`\u`))
}

// errFound stops the reading of an object.
var errFound = errors.New("agui: found")

// firstMember is memberOf for an object that has no name twice. It reads no further than the member.
func firstMember(object Value, name string) Value {
	var found Value
	_ = eachMember(object, func(key, value Value) error {
		if unquote(key) != name {
			return nil
		}
		found = value
		return errFound
	})
	return found
}
