package agui

import "slices"

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
// change it return by how much its size changed. Objects here are small, so members are searched in order.
type object struct{ members []member }

type member struct {
	name    string
	literal Value // the name as it is written, with quotes
	value   node
}

// parseObject reads the members of a checked JSON object, whose text it keeps. Of a repeated name the last value counts,
// at the first place, as in ECMAScript.
func parseObject(text Value) (*object, error) {
	o := &object{}
	err := eachMember(text, func(name, value Value) error {
		o.setLiteral(unquote(name), name, value)
		return nil
	})
	return o, err
}

func (o *object) find(name string) *member {
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

// setValue is set for a value that may be absent, in which case it does nothing.
func (o *object) setValue(name string, value Value) int {
	if value == nil {
		return 0
	}
	return o.set(name, value)
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
	before := o.Size()
	if literal == nil {
		literal = quote(name)
	}
	o.members = append(o.members, member{name: name, literal: literal, value: value})
	return o.Size() - before
}

func (o *object) remove(name string) int {
	before := o.Size()
	o.members = slices.DeleteFunc(o.members, func(m member) bool { return m.name == name })
	return o.Size() - before
}

// merge sets the member called name, an object, to itself merged with from, member by member and never recursively.
// An absent from changes nothing.
func (o *object) merge(name string, from Value) int {
	if from == nil {
		return 0
	}
	before := o.Size()
	into := o.nested(name)
	_ = eachMember(from, func(key, value Value) error {
		into.setLiteral(unquote(key), key, value)
		return nil
	})
	return o.Size() - before
}

// nested returns the member called name as an object that can be changed, which is empty if it was absent.
func (o *object) nested(name string) *object {
	m := o.find(name)
	if m == nil {
		into := &object{}
		o.set(name, into)
		return into
	}
	if into, ok := m.value.(*object); ok {
		return into
	}
	into, err := parseObject(m.value.AppendTo(nil))
	if err != nil {
		into = &object{}
	}
	m.value = into
	return into
}

// Size implements node.
func (o *object) Size() int {
	size := 2
	for i := range o.members {
		size += len(o.members[i].literal) + 1 + o.members[i].value.Size()
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
