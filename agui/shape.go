package agui

import (
	"bytes"
	"slices"
)

// kind says what JSON values a shape admits.
type kind uint8

const (
	kindAny       kind = iota // any JSON value
	kindNotNull               // any JSON value but null
	kindOpen                  // an object whose members are data
	kindString                // a string
	kindMaybe                 // a string or null; only in the retired binary part
	kindID                    // a string that is an identifier
	kindBool                  // true or false
	kindInteger               // an integer of magnitude up to 2^53-1
	kindCount                 // such an integer, not negative
	kindEnum                  // a string of a closed set
	kindTag                   // a string of a set that newer versions may extend
	kindObject                // an object with the shape's fields
	kindArray                 // an array of the shape's elements
	kindUnion                 // one of the shape's options, told apart by its tag
	kindText                  // a string, or an array of content parts
	kindOperation             // a JSON Patch operation
)

// shape is a node of the schema table (schema.go). Shapes are immutable.
type shape struct {
	kind kind
	name string // of an event, or how people call the value

	fields  []shapeField      // kindObject
	element *shape            // kindArray, kindText
	atLeast int               // kindArray: the fewest elements
	words   []string          // kindEnum, kindTag
	tag     string            // kindUnion: the discriminating member
	options map[string]*shape // kindUnion, by the tag's value
}

// shapeField is a member that a closed object may have.
type shapeField struct {
	name     string
	shape    *shape
	required bool
	// store keeps the member of an event or a run input in an Event field. The string is the decoded value of
	// identifiers and of closed sets.
	store func(*Event, Value, string)
}

func (s *shape) field(name []byte) int {
	for i := range s.fields {
		if s.fields[i].name == string(name) {
			return i
		}
	}
	return -1
}

// verdict is the outcome of checking a value.
type verdict uint8

const (
	kept verdict = iota // the value conforms, perhaps after edits
	gone                // the value is of a kind that is not known: whatever holds it must let go of it
	bad                 // a violation was recorded
)

// check judges the value at pos. Only when the verdict is kept is pos after the value.
func (d *decoder) check(s *shape) verdict {
	first := d.text[d.pos]
	switch s.kind {
	case kindObject:
		return d.object(s)
	case kindArray:
		return d.array(s)
	case kindUnion:
		return d.union(s)
	case kindOperation:
		return d.operation()
	case kindText:
		if first == '[' {
			return d.array(s)
		}
	}
	if !s.admits(first) {
		return d.fail(FieldMalformed, wrongType(first, s.name))
	}
	start := d.pos
	d.pos = skipValue(d.text, start)
	return d.scalar(s, d.text[start:d.pos])
}

// admits reports whether a value that starts with the byte can be of this kind.
func (s *shape) admits(first byte) bool {
	switch s.kind {
	case kindAny:
		return true
	case kindNotNull:
		return first != 'n'
	case kindOpen:
		return first == '{'
	case kindBool:
		return first == 't' || first == 'f'
	case kindInteger, kindCount:
		return first == '-' || '0' <= first && first <= '9'
	case kindMaybe:
		return first == '"' || first == 'n'
	default:
		return first == '"'
	}
}

// scalar judges the text of a value whose JSON type is right.
func (d *decoder) scalar(s *shape, text []byte) verdict {
	switch s.kind {
	case kindID:
		return d.identifier(text)
	case kindEnum, kindTag:
		return d.choice(s, unquoted(text))
	case kindInteger, kindCount:
		if n, ok := safeInteger(text); !ok || s.kind == kindCount && n < 0 {
			return d.fail(FieldMalformed, "must be "+s.name)
		}
	}
	return kept
}

// choice judges a string of a set.
func (d *decoder) choice(s *shape, word []byte) verdict {
	if i := slices.Index(s.words, string(word)); i >= 0 {
		d.word = s.words[i]
		return kept
	}
	if s.kind == kindTag {
		return d.unrecognised(string(word))
	}
	return d.fail(FieldMalformed, "must be "+s.name)
}

// unrecognised remembers why the value that the path leads to is gone.
func (d *decoder) unrecognised(tag string) verdict {
	d.unknown, d.unknownAt = tag, d.pointer()
	return gone
}

// identifier judges an identifier: 1 to MaxIDBytes bytes of text that any database and any language can hold.
func (d *decoder) identifier(literal []byte) verdict {
	id := unquoted(literal)
	switch {
	case len(id) == 0:
		return d.fail(IDInvalid, "is empty")
	case len(id) > MaxIDBytes:
		return d.fail(IDInvalid, "is too long")
	case bytes.IndexByte(id, 0) >= 0:
		return d.fail(IDInvalid, "contains NUL")
	case len(id) != len(literal)-2 && hasLoneSurrogate(id):
		return d.fail(IDInvalid, "contains a lone surrogate")
	}
	if len(d.path) == 1 {
		if d.word = d.recent; d.word != string(id) { // neighbouring events tend to name the same message
			d.word = string(id)
			d.recent = d.word
		}
	}
	return kept
}

// hasLoneSurrogate looks for the three-byte form in which unquoted writes one: ED, then A0 to BF.
func hasLoneSurrogate(text []byte) bool {
	for i := 0; i+1 < len(text); i++ {
		if text[i] == 0xED && text[i+1] >= 0xA0 {
			return true
		}
	}
	return false
}

// union judges an object by the option its tag names. An object whose tag names none is gone.
func (d *decoder) union(s *shape) verdict {
	if d.text[d.pos] != '{' {
		return d.fail(FieldMalformed, wrongType(d.text[d.pos], "an object"))
	}
	value, next := findMember(d.text, skipSpace(d.text, d.pos+1), s.tag)
	if value < 0 {
		return d.unrecognised("no " + s.tag)
	}
	if d.text[value] == '"' {
		tag := unquoted(d.text[value:skipString(d.text, value)])
		if option := s.options[string(tag)]; option == binaryShape {
			return d.binary()
		} else if option != nil {
			return d.object(option)
		}
		d.unrecognised(string(tag))
	} else {
		d.unrecognised(wrongType(d.text[value], s.tag))
	}
	if again, _ := findMember(d.text, next, s.tag); again >= 0 {
		return d.failAt(JSONMalformed, s.tag, "repeated name")
	}
	return gone
}

// array judges the elements of an array and cuts those that are gone.
func (d *decoder) array(s *shape) verdict {
	if d.text[d.pos] != '[' {
		return d.fail(s.element.malformed(), wrongType(d.text[d.pos], "an array"))
	}
	w, more := d.enter()
	n, at := 0, len(d.path)
	d.path = append(d.path, pathStep{})
	for ; more; n++ {
		d.path[at].index = n
		undo := d.mark()
		v := d.check(s.element)
		if v == bad {
			d.pop()
			return bad
		}
		if v == gone {
			d.pos = skipValue(d.text, w.start)
			d.rewind(undo)
			d.warn(d.removal(s.element, w.start))
		}
		more = d.leave(&w, v == gone)
	}
	d.pop()
	if n < s.atLeast {
		return d.fail(FieldMalformed, "must have an element")
	}
	return kept
}

// malformed is the code for a wrong JSON type of the shape or of an array of it.
func (s *shape) malformed() Code {
	if s.kind == kindOperation {
		return PatchMalformed
	}
	return FieldMalformed
}

// removal is the warning about the value from start to pos, which the path leads to and which is gone.
func (d *decoder) removal(s *shape, start int) Warning {
	code := MemberUnknown
	if s.kind == kindOperation {
		code = OperationUnknown
	}
	return Warning{Code: code, Detail: printable(d.unknown), Removed: d.text[start:d.pos]}
}

// containerWalk is the place in a container: where the current member or element starts, where the one before ended, and
// whether one before was kept.
type containerWalk struct {
	start, before int
	kept          bool
}

// enter steps into the container at pos. It reports false, with pos after the container, when there is nothing in it.
func (d *decoder) enter() (w containerWalk, more bool) {
	d.pos = skipSpace(d.text, d.pos+1)
	if c := d.text[d.pos]; c == '}' || c == ']' {
		d.pos++
		return containerWalk{}, false
	}
	return containerWalk{start: d.pos}, true
}

// leave steps from the end of a member or element to the next one, or over the container's end. A removed one is cut
// with the comma before it, or with the one after it when none before was kept.
func (d *decoder) leave(w *containerWalk, removed bool) (more bool) {
	end := d.pos
	d.pos = skipSpace(d.text, end)
	more = d.text[d.pos] == ','
	d.pos++
	if more {
		d.pos = skipSpace(d.text, d.pos)
	}
	switch {
	case !removed:
		w.kept = true
	case w.kept:
		d.cut(w.before, end)
	case more:
		d.cut(w.start, d.pos)
	default:
		d.cut(w.start, end)
	}
	w.before, w.start = end, d.pos
	return more
}
