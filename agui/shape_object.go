package agui

import (
	"bytes"
	"slices"
)

// object judges the members of a closed object: strips those it does not describe, and judges the others to the end
// even after a violation, because a required member of an unknown kind makes the object unrecognisable as a whole,
// whatever else is in it.
func (d *decoder) object(s *shape) verdict {
	if d.text[d.pos] != '{' {
		return d.fail(FieldMalformed, wrongType(d.text[d.pos], "an object"))
	}
	o := objectWalk{shape: s, names: len(d.names), before: d.violation}
	w, more := d.enter()
	for more {
		removed := d.member(&o)
		more = d.leave(&w, removed)
	}
	if name := d.repeated(o.names); name != nil {
		o.repeated(d, d.unknownPointer(name))
	}
	switch {
	case o.twice:
		return bad
	case o.gone:
		d.violation = o.before
		return gone
	}
	for i := range s.fields {
		if f := &s.fields[i]; f.required && o.seen&(1<<i) == 0 {
			d.failAt(FieldMissing, f.name, "is required")
			o.bad = true
		}
	}
	if o.bad {
		return bad
	}
	return kept
}

// objectWalk is the state of judging one closed object.
type objectWalk struct {
	shape  *shape
	seen   uint64 // bit i: fields[i] was there
	names  int    // where the object's unknown names start in decoder.names
	before *Violation
	bad    bool // a violation was found
	twice  bool // a name was repeated: malformed as JSON, whatever the object is
	gone   bool // a required member is of an unknown kind
}

// repeated records a repeated name, which outranks the object's other violations.
func (o *objectWalk) repeated(d *decoder, pointer string) {
	if !o.twice && o.before == nil {
		d.violation = &Violation{Code: JSONMalformed, Path: pointer, Detail: "repeated name"}
	}
	o.twice = true
}

// member judges the member at pos, leaves pos after it, and reports whether it is to be removed.
func (d *decoder) member(o *objectWalk) (removed bool) {
	name, value := memberAt(d.text, d.pos)
	d.pos = value
	i := o.shape.field(name)
	if i < 0 {
		d.strip(name)
		return true
	}
	f := &o.shape.fields[i]
	d.push(f.name)
	defer d.pop()
	if o.seen&(1<<i) != 0 {
		o.repeated(d, d.pointer())
	}
	o.seen |= 1 << i
	undo := d.mark()
	v := d.check(f.shape)
	if v != kept {
		d.pos = skipValue(d.text, value)
	}
	switch {
	case v == bad:
		o.bad = true
	case v == gone && f.required:
		o.gone = true
	case v == gone:
		d.rewind(undo)
		d.warn(d.removal(f.shape, value))
		return true
	case f.store != nil && len(d.path) == 1:
		f.store(&d.event, d.text[value:d.pos:d.pos], d.word)
	}
	return false
}

// strip removes the value at pos, which a closed object has under a name it does not describe.
func (d *decoder) strip(name []byte) {
	start := d.pos
	d.pos = skipValue(d.text, start)
	d.names = append(d.names, name)
	if len(d.warnings) == d.lim.Warnings {
		d.unrecorded++
		return
	}
	d.warn(Warning{Code: PropertyUnknown, Path: d.unknownPointer(name), Detail: d.about, Removed: d.text[start:d.pos]})
}

// repeated forgets the unknown names of an object, which start at from, and returns one that is there twice, or nil.
func (d *decoder) repeated(from int) (name []byte) {
	names := d.names[from:]
	d.names = d.names[:from]
	slices.SortFunc(names, bytes.Compare)
	for i := 1; i < len(names); i++ {
		if bytes.Equal(names[i-1], names[i]) {
			return names[i]
		}
	}
	return nil
}
