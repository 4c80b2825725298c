package agui

import (
	"bytes"
	"github.com/threadsvc/threadsvc/agui/jsondoc"
)

// Role says whose message it is.
type Role string

// The roles of messages (schema.json, Role).
const (
	RoleDeveloper Role = "developer"
	RoleSystem    Role = "system"
	RoleAssistant Role = "assistant"
	RoleUser      Role = "user"
	RoleTool      Role = "tool"
	RoleActivity  Role = "activity"
	RoleReasoning Role = "reasoning"
)

// Message is one message of a thread. It stays the text it came as until an event changes it.
type Message struct {
	// ID is unique on the thread.
	ID   string
	Role Role
	// Position orders the thread's messages. Positions leave gaps.
	Position int64

	// ToolCallID is the call that a tool message answers, else empty.
	ToolCallID string

	raw      Value        // the text, while obj is nil
	rawCalls Value        // the list of tool calls in raw, nil if there is none
	rawIDs   []string     // the ids of these, once they were asked for
	obj      *object      // the members, once they are needed
	draft    *jsondoc.Doc // the content of an activity, parsed for a patch that did not apply
	stored   bool         // whether the stored fold has a message at Position
}

// Size is the length of the message's JSON text.
func (m *Message) Size() int { return m.body().Size() }

// AppendTo appends the message's JSON text.
func (m *Message) AppendTo(dst []byte) []byte { return m.body().AppendTo(dst) }

// detached is the message with a text of its own, so that it does not keep alive the event it came in.
func (m *Message) detached() *Message {
	return parseMessage(m.AppendTo(make(Value, 0, m.Size())))
}

// sameText reports whether two messages have the same JSON text.
func (m *Message) sameText(other *Message) bool {
	switch {
	case m.obj == nil && other.obj == nil:
		return bytes.Equal(m.raw, other.raw)
	case m.Size() != other.Size():
		return false
	case other.obj == nil:
		return bytes.Equal(m.AppendTo(nil), other.raw)
	}
	return bytes.Equal(m.AppendTo(nil), other.AppendTo(nil))
}

// equals is sameText for a message that came: of one with tool calls, what counts is the text it is held as.
func (m *Message) equals(came *Message) bool {
	if m.sameText(came) {
		return true
	}
	if came.rawCalls == nil {
		return false
	}
	came.open()
	return m.sameText(came)
}

func (m *Message) body() node {
	if m.obj == nil {
		return m.raw
	}
	return m.obj
}

// newMessage makes a message of its first two members.
func newMessage(id string, role Role) *Message {
	m := &Message{ID: id, Role: role, obj: &object{}}
	m.obj.set("id", quote(id))
	m.obj.set("role", quote(string(role)))
	return m
}

// parseMessage reads a checked message, whose text it keeps.
func parseMessage(raw Value) *Message {
	m := &Message{raw: raw}
	for name, value := range jsondoc.Members(raw) {
		switch string(nameOf(name)) {
		case "id":
			m.ID = unquote(value)
		case "role":
			m.Role = Role(unquote(value))
		case "toolCallId":
			m.ToolCallID = unquote(value)
		case "toolCalls":
			m.rawCalls = value
		}
	}
	return m
}

// open makes the members of the message accessible. It returns by how much the size changed, since white space between
// the members goes.
func (m *Message) open() (obj *object, grown int) {
	if m.obj != nil {
		return m.obj, 0
	}
	obj = parseObject(m.raw)
	m.obj = obj
	if list := obj.find("toolCalls"); list != nil {
		list.value = parseCalls(list.value.(Value))
	}
	grown = obj.Size() - len(m.raw)
	m.raw, m.rawCalls, m.rawIDs = nil, nil, nil
	return obj, grown
}

// peek returns the text of one member without opening the message.
func (m *Message) peek(name string) Value {
	if m.obj != nil {
		return m.obj.get(name)
	}
	return memberOf(m.raw, name)
}

// appendContent appends a JSON string to the message's content, which becomes a text if it was absent. It returns by how
// much the message grew, and false if the content is not a text.
func (m *Message) appendContent(delta Value) (grown int, ok bool) {
	obj, grown := m.open()
	content := obj.find("content")
	if content == nil {
		return grown + obj.set("content", newText(delta)), true
	}
	if raw, isRaw := content.value.(Value); isRaw && len(raw) > 0 && raw[0] == '"' {
		content.value = newText(raw)
	}
	if t, isText := content.value.(*text); isText {
		return grown + t.append(delta), true
	}
	return grown, false
}

// patchContent applies the text of a patch to the content of an activity message, and returns by how much the message
// grew. If the patch does not apply, the message keeps every byte.
func (m *Message) patchContent(patch Value, lim jsondoc.Limits) (grown int, err error) {
	doc, err := m.document(lim)
	if err != nil {
		return 0, err
	}
	before := doc.Size()
	if _, err := applyText(doc, patch, lim); err != nil {
		return 0, err
	}
	obj, grown := m.open()
	content := obj.find("content")
	if content.value != node(doc) {
		before = content.value.Size()
		content.value, m.draft = doc, nil
	}
	return grown + doc.Size() - before, nil
}

// document returns the content of an activity message as a document that can be patched. It becomes the content only
// once a patch has applied, since its text may differ in white space.
func (m *Message) document(lim jsondoc.Limits) (*jsondoc.Doc, error) {
	if m.draft != nil {
		return m.draft, nil
	}
	if m.obj != nil {
		if content := m.obj.find("content"); content != nil {
			if doc, ok := content.value.(*jsondoc.Doc); ok {
				return doc, nil
			}
		}
	}
	doc, err := jsondoc.Parse(m.peek("content"), lim)
	if err == nil {
		m.draft = doc
	}
	return doc, err
}

func quote(s string) Value { return jsondoc.AppendQuote(nil, s) }
