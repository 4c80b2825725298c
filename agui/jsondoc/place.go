package jsondoc

import (
	"iter"
	"strings"
)

// Child is the place of a member of the object at p.
func (p Pointer) Child(key string) Pointer {
	if strings.ContainsAny(key, "~/") {
		key = tokenEncoder.Replace(key)
	}
	return Pointer{text: p.text + "/" + key}
}

var tokenEncoder = strings.NewReplacer("~", "~0", "/", "~1")

// Within reports whether p is at or below q, and where seen from there.
func (p Pointer) Within(q Pointer) (rest Pointer, ok bool) {
	if p == q {
		return Pointer{}, true
	}
	if !q.contains(p) {
		return Pointer{}, false
	}
	return Pointer{text: p.text[len(q.text):]}, true
}

// Join is the place that rest leads to from p.
func (p Pointer) Join(rest Pointer) Pointer { return Pointer{text: p.text + rest.text} }

// Split cuts off the last token if it is an array index.
func (p Pointer) Split() (parent Pointer, index int, ok bool) {
	if p.text == "" {
		return p, 0, false
	}
	parent, token := p.last()
	index, ok = parseIndex(token)
	return parent, index, ok
}

// First cuts off the first token if it is an array index.
func (p Pointer) First() (index int, rest Pointer, ok bool) {
	if p.text == "" {
		return 0, p, false
	}
	token, rest := p.next()
	index, ok = parseIndex(token)
	return index, rest, ok
}

// SizeAt returns the length of the value at a place, and whether there is one.
func (d *Doc) SizeAt(ptr Pointer) (int, bool) {
	at, code := d.find(ptr)
	return at.value.size(), code == ""
}

// Leaves yields the places of all values at or below a place that hold no others, scalars and empty containers, in the
// order of the document, with their texts.
func (d *Doc) Leaves(ptr Pointer) iter.Seq2[Pointer, string] {
	return func(yield func(Pointer, string) bool) {
		if at, code := d.find(ptr); code == "" {
			at.value.leaves(ptr, yield)
		}
	}
}

func (v value) leaves(at Pointer, yield func(Pointer, string) bool) bool {
	if v.node == nil || v.node.len() == 0 {
		return yield(at, string(v.appendTo(nil)))
	}
	for i, child := range v.node.values {
		if child.absent() {
			continue
		}
		place := at.Index(i)
		if v.node.fields != nil {
			place = at.Child(v.node.fields.names[i].key)
		}
		if !child.leaves(place, yield) {
			return false
		}
	}
	return true
}
