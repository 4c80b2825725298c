package agui

import (
	"slices"

	"github.com/threadsvc/threadsvc/agui/jsondoc"
)

// node is a JSON value that can render itself: a raw Value, a growing text, a list of tool calls, a nested object, or a
// *jsondoc.Doc.
type node interface {
	// Size is the length of what AppendTo appends.
	Size() int
	AppendTo(dst []byte) []byte
}

// Size implements node.
func (v Value) Size() int { return len(v) }

// AppendTo implements node.
func (v Value) AppendTo(dst []byte) []byte { return append(dst, v...) }

// text is a JSON string that grows at its end. Appending a literal costs its own length only: the bodies of JSON string
// literals concatenate to the literal of the concatenation, also where a surrogate pair was cut in two.
type text struct{ open []byte } // the literal without its closing quote

func newText(literal Value) *text {
	if len(literal) < 2 {
		return &text{open: []byte{'"'}}
	}
	return &text{open: slices.Clone(literal[:len(literal)-1])}
}

// append appends a JSON string literal and returns by how much the text grew.
func (t *text) append(literal Value) int {
	if len(literal) < 2 {
		return 0
	}
	t.open = append(t.open, literal[1:len(literal)-1]...)
	return len(literal) - 2
}

func (t *text) Size() int { return len(t.open) + 1 }

func (t *text) AppendTo(dst []byte) []byte { return append(append(dst, t.open...), '"') }

// object is a JSON object that keeps the order of its members and the text of their names and values. The methods that
// change it return by how much its size changed. Most objects are small, so members are searched in order; metadata may
// have any number of members, so a large object is searched by its index.
type object struct {
	members []member
	index   map[string]int // the places of the members by name; nil while there are few
}

// indexedMembers is the number of members from which on an object has an index.
const indexedMembers = 16

// usualMembers is the number of members that there is room for from the beginning: a message's id, role, content, and one more.
const usualMembers = 4

type member struct {
	name    string
	literal Value // the name as it is written, with quotes
	value   node
}

// parseObject reads the members of a checked JSON object, whose text it keeps. Of a repeated name the last value counts,
// at the first place, as in ECMAScript.
func parseObject(text Value) *object {
	o := &object{}
	for name, value := range jsondoc.Members(text) {
		o.setLiteral(unquote(name), name, Value(value))
	}
	return o
}

func (o *object) find(name string) *member {
	if o.index != nil {
		if i, ok := o.index[name]; ok {
			return &o.members[i]
		}
		return nil
	}
	for i := range o.members {
		if o.members[i].name == name {
			return &o.members[i]
		}
	}
	return nil
}

// get returns the text of a member that is a plain value, nil if there is none.
func (o *object) get(name string) Value {
	if m := o.find(name); m != nil {
		if v, ok := m.value.(Value); ok {
			return v
		}
		return m.value.AppendTo(nil)
	}
	return nil
}

// set sets a member whose name needs no escapes.
func (o *object) set(name string, value node) int {
	return o.setLiteral(name, nil, value)
}

// setValue is set for a value of an event, of which it keeps a copy: the event may be a small part of what was received
// with it, all of which would stay in memory. An absent one changes nothing.
func (o *object) setValue(name string, value Value) int {
	if value == nil {
		return 0
	}
	return o.set(name, slices.Clone(value))
}

// setString is set for a string that is absent when empty.
func (o *object) setString(name, value string) int {
	if value == "" {
		return 0
	}
	return o.set(name, quote(value))
}

func (o *object) setLiteral(name string, literal Value, value node) int {
	if m := o.find(name); m != nil {
		grown := value.Size() - m.value.Size()
		m.value = value
		return grown
	}
	if literal == nil {
		literal = quote(name)
	}
	if o.members == nil {
		o.members = make([]member, 0, usualMembers)
	}
	o.members = append(o.members, member{name: name, literal: literal, value: value})
	if o.index != nil {
		o.index[name] = len(o.members) - 1
	} else {
		o.reindex()
	}
	return o.members[len(o.members)-1].size() + o.comma()
}

func (o *object) remove(name string) int {
	m := o.find(name)
	if m == nil {
		return 0
	}
	grown := -m.size() - o.comma()
	o.members = slices.DeleteFunc(o.members, func(m member) bool { return m.name == name })
	o.reindex()
	return grown
}

// reindex makes the index anew if there are enough members for one.
func (o *object) reindex() {
	o.index = nil
	if len(o.members) < indexedMembers {
		return
	}
	o.index = make(map[string]int, 2*len(o.members))
	for i := range o.members {
		o.index[o.members[i].name] = i
	}
}

// size is the length of the member's text, without a comma.
func (m *member) size() int { return len(m.literal) + 1 + m.value.Size() }

// comma is the length of the comma that one of the members needs.
func (o *object) comma() int { return min(1, len(o.members)-1) }

// merge sets the member called name, an object, to itself merged with from, member by member and never recursively.
// An absent from changes nothing.
func (o *object) merge(name string, from Value) int {
	if from == nil {
		return 0
	}
	into, grown := o.nested(name)
	for key, value := range jsondoc.Members(slices.Clone(from)) {
		grown += into.setLiteral(unquote(key), key, Value(value))
	}
	return grown
}

// nested returns the member called name as an object that can be changed, which is empty if it was absent, and by how
// much o grew on the way.
func (o *object) nested(name string) (into *object, grown int) {
	m := o.find(name)
	if m == nil {
		into = &object{}
		return into, o.set(name, into)
	}
	if into, ok := m.value.(*object); ok {
		return into, 0
	}
	into = parseObject(m.value.AppendTo(nil))
	grown = into.Size() - m.value.Size()
	m.value = into
	return into, grown
}

// Size implements node.
func (o *object) Size() int {
	size := 2
	for i := range o.members {
		size += o.members[i].size()
	}
	return size + max(0, len(o.members)-1)
}

// AppendTo implements node.
func (o *object) AppendTo(dst []byte) []byte {
	dst = append(dst, '{')
	for i := range o.members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, o.members[i].literal...)
		dst = append(dst, ':')
		dst = o.members[i].value.AppendTo(dst)
	}
	return append(dst, '}')
}
