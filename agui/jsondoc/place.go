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
// order of the document. Those up to and with the leaf at after, a place that was yielded before, are left out, at the cost
// of the way there; nil leaves out none.
func (d *Doc) Leaves(ptr Pointer, after *Pointer) iter.Seq[Pointer] {
	return func(yield func(Pointer) bool) {
		at, code := d.find(ptr)
		if code != "" {
			return
		}
		if after == nil {
			at.value.leaves(ptr, yield)
		} else if rest, ok := after.Within(ptr); ok {
			at.value.leavesAfter(ptr, rest, yield)
		}
	}
}

func (v value) leaves(at Pointer, yield func(Pointer) bool) bool {
	if v.node == nil || v.node.len() == 0 {
		return yield(at)
	}
	return v.node.leavesFrom(0, at, yield)
}

// leavesFrom yields the leaves of the values from a slot on.
func (c *container) leavesFrom(slot int, at Pointer, yield func(Pointer) bool) bool {
	for i := slot; i < len(c.values); i++ {
		if !c.values[i].absent() && !c.values[i].leaves(c.place(at, i), yield) {
			return false
		}
	}
	return true
}

// place is where the value in a slot is, if the container is at a place.
func (c *container) place(at Pointer, slot int) Pointer {
	if c.fields != nil {
		return at.Child(c.fields.names[slot].key)
	}
	return at.Index(slot)
}

// leavesAfter yields the leaves behind the one that rest leads to.
func (v value) leavesAfter(at, rest Pointer, yield func(Pointer) bool) bool {
	if rest.text == "" || v.node == nil {
		return true
	}
	token, below := rest.next()
	slot, code := v.node.slot(token)
	if code != "" {
		return true
	}
	return v.node.values[slot].leavesAfter(v.node.place(at, slot), below, yield) && v.node.leavesFrom(slot+1, at, yield)
}
