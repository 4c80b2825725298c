package jsondoc

import "slices"

// edit is one change to a tree with what it takes to undo it. Undoing the edits of a patch in reverse order restores
// the tree exactly, the order of members included.
type edit struct {
	kind editKind
	in   *container // nil: the root of the document
	slot int
	old  value // what was there before; absent for an insertion
}

type editKind uint8

const (
	editSet editKind = iota
	editInsert
	editRemove
)

// set replaces the value in slot i and returns the old one.
func (c *container) set(i int, v value) value {
	old := c.values[i]
	c.values[i] = c.adopt(v)
	c.grow(v.size() - old.size())
	return old
}

// insert adds an element before slot i of an array.
func (c *container) insert(i int, v value) {
	c.grow(v.size() + c.overhead("", len(c.values) == 0))
	c.put(i, v)
}

// add adds a member behind the others.
func (c *container) add(n name, v value) {
	c.grow(v.size() + c.overhead(n.literal, c.len() == 0))
	c.push(n, v)
}

// remove takes the value out of slot i and returns it; in an object the slot stays, empty.
func (c *container) remove(i int) value {
	old := c.values[i]
	if c.fields == nil {
		c.values = slices.Delete(c.values, i, i+1)
		c.grow(-old.size() - c.overhead("", len(c.values) == 0))
		return old
	}
	n := c.fields.names[i]
	c.values[i] = value{}
	c.fields.dead++
	delete(c.fields.index, n.key)
	c.grow(-old.size() - c.overhead(n.literal, c.len() == 0))
	return old
}

// restore is the reverse of remove.
func (c *container) restore(i int, v value) {
	if c.fields == nil {
		c.insert(i, v)
		return
	}
	n := c.fields.names[i]
	c.grow(v.size() + c.overhead(n.literal, c.len() == 0))
	c.values[i] = c.adopt(v)
	c.fields.dead--
	if c.fields.index != nil {
		c.fields.index[n.key] = i
	}
}

// retract is the reverse of insert and add.
func (c *container) retract(i int) {
	c.remove(i)
	if f := c.fields; f != nil { // a member was added last, so its slot is the last one
		f.names = slices.Delete(f.names, i, i+1)
		c.values = slices.Delete(c.values, i, i+1)
		f.dead--
	}
}

// undo reverts e, which must be the latest edit that has not been reverted.
func (d *Doc) undo(e edit) {
	switch {
	case e.in == nil:
		d.setRoot(e.old)
	case e.kind == editSet:
		e.in.set(e.slot, e.old)
	case e.kind == editInsert:
		e.in.retract(e.slot)
	case e.kind == editRemove:
		e.in.restore(e.slot, e.old)
	}
}
