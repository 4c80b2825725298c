package jsondoc

import "slices"

// value is a JSON value in a tree: a scalar as its literal, a container, or the text of one that is folded. The zero value
// is no value at all.
type value struct {
	text string
	node *container
}

// container is an array, or an object when it has fields. The operations below keep size right up to the root.
type container struct {
	parent *container // nil at the root of a tree
	size   int        // length of the compact text
	values []value
	fields *fields
}

// fields are the names of an object's values, slot by slot. A removed member leaves an empty slot behind, so that
// removal is O(1) and can be undone; compact closes the gaps.
type fields struct {
	names []name
	index map[string]int // slot by key; nil while there are few slots, or few of many were looked for
	dead  int            // empty slots
	looks int            // how often a wide object without an index was searched
}

// name is a member name: unescaped (WTF-8), and as it is written.
type name struct{ key, literal string }

// indexThreshold is the number of slots up to which comparing names one by one is as fast as a map.
const indexThreshold = 12

// looksThreshold is the number of searches that cost about as much as the making of an index.
const looksThreshold = 32

func newObject(capacity int) *container {
	f := &fields{names: make([]name, 0, capacity)}
	if capacity > indexThreshold {
		f.index = make(map[string]int, capacity)
	}
	return &container{size: len("{}"), values: make([]value, 0, capacity), fields: f}
}

func (v value) absent() bool { return v.node == nil && v.text == "" }

// size is the length of the value's compact text.
func (v value) size() int {
	if v.node != nil {
		return v.node.size
	}
	return len(v.text)
}

// height is the number of containers nested in v, itself included.
func (v value) height() int {
	if v.folded() {
		_, height := skipContainer(v.text, 0)
		return height
	}
	if v.node == nil {
		return 0
	}
	highest := 0
	for _, child := range v.node.values {
		highest = max(highest, child.height())
	}
	return highest + 1
}

// appendTo appends the compact text.
func (v value) appendTo(dst []byte) []byte {
	switch {
	case v.node == nil:
		return append(dst, v.text...)
	case v.node.fields != nil:
		return v.node.appendObject(dst)
	default:
		return v.node.appendArray(dst)
	}
}

func (c *container) appendArray(dst []byte) []byte {
	dst = append(dst, '[')
	for i, v := range c.values {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = v.appendTo(dst)
	}
	return append(dst, ']')
}

func (c *container) appendObject(dst []byte) []byte {
	dst = append(dst, '{')
	first := true
	for i, v := range c.values {
		if v.absent() {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(append(dst, c.fields.names[i].literal...), ':')
		dst = v.appendTo(dst)
	}
	return append(dst, '}')
}

// clone copies the tree under v. Literals are shared: strings do not change.
func (v value) clone() value {
	if v.node == nil {
		return v
	}
	c := v.node
	if c.fields == nil {
		copied := &container{size: len("[]"), values: make([]value, 0, len(c.values))}
		for i, child := range c.values {
			copied.put(i, child.clone())
		}
		return value{node: copied.measured()}
	}
	copied := newObject(c.len())
	for i, child := range c.values {
		if !child.absent() {
			copied.push(c.fields.names[i], child.clone())
		}
	}
	return value{node: copied.measured()}
}

// len is the number of elements or members.
func (c *container) len() int {
	if c.fields == nil {
		return len(c.values)
	}
	return len(c.values) - c.fields.dead
}

// find returns the slot of the member with that key, or -1.
func (c *container) find(key string) int {
	if c.wanting() {
		c.reindex()
	}
	if c.fields.index != nil {
		if i, ok := c.fields.index[key]; ok {
			return i
		}
		return -1
	}
	for i := range c.fields.names {
		if c.fields.names[i].key == key && !c.values[i].absent() {
			return i
		}
	}
	return -1
}

// wanting reports whether an object that was read without an index has been searched so often that it pays to make one.
func (c *container) wanting() bool {
	if c.fields.index != nil || len(c.fields.names) <= indexThreshold {
		return false
	}
	c.fields.looks++
	return c.fields.looks > looksThreshold
}

// slot resolves a reference token to the slot of an existing value, or tells why there is none.
func (c *container) slot(token string) (int, Code) {
	if c.fields != nil {
		if i := c.find(token); i >= 0 {
			return i, ""
		}
		return 0, PathNotFound
	}
	if token == "-" {
		return 0, IndexOutOfRange
	}
	i, ok := parseIndex(token)
	switch {
	case !ok:
		return 0, InvalidIndex
	case i >= len(c.values):
		return 0, IndexOutOfRange
	}
	return i, ""
}

// overhead is what a value costs besides its own text: the name, the colon, and the comma if it is not alone.
func (c *container) overhead(literal string, alone bool) int {
	n := 0
	if c.fields != nil {
		n = len(literal) + len(":")
	}
	if !alone {
		n += len(",")
	}
	return n
}

// grow adds delta to the size of c and of everything around it.
func (c *container) grow(delta int) {
	for ; c != nil; c = c.parent {
		c.size += delta
	}
}

// measured sets the size of a container whose values have been put or pushed, and returns it.
func (c *container) measured() *container {
	c.size = len("[]") + max(0, c.len()-1)
	for i, v := range c.values {
		c.size += v.size()
		if c.fields != nil && !v.absent() {
			c.size += len(c.fields.names[i].literal) + len(":")
		}
	}
	return c
}

// adopt makes c the parent of v.
func (c *container) adopt(v value) value {
	if v.node != nil {
		v.node.parent = c
	}
	return v
}

// put inserts an element before slot i, without measuring.
func (c *container) put(i int, v value) {
	c.values = slices.Insert(c.values, i, c.adopt(v))
}

// push adds a member behind the others, without measuring. The object must not have the key.
func (c *container) push(n name, v value) {
	f := c.fields
	c.values = append(c.values, c.adopt(v))
	f.names = append(f.names, n)
	switch {
	case f.index != nil:
		f.index[n.key] = len(f.names) - 1
	case len(f.names) == indexThreshold+1:
		c.reindex()
	}
}

// reindex builds the index anew.
func (c *container) reindex() {
	c.fields.index = make(map[string]int, 2*len(c.values))
	for i, n := range c.fields.names {
		if !c.values[i].absent() {
			c.fields.index[n.key] = i
		}
	}
}

// compact closes the gaps of an object once they are most of it, so that the removals pay for it.
func (c *container) compact() {
	if c.fields == nil || c.fields.dead <= max(c.len(), indexThreshold) {
		return
	}
	dense := newObject(c.len())
	for i, v := range c.values {
		if !v.absent() {
			dense.push(c.fields.names[i], v)
		}
	}
	for _, v := range dense.values {
		c.adopt(v)
	}
	c.values, c.fields = dense.values, dense.fields
}
