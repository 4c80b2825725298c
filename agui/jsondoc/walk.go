package jsondoc

import (
	"iter"
	"unsafe"
)

// Members iterates over the members of the object that a text is, which is known to be good, as that of Known: over their names
// as they are written and their values, both parts of text. What is within a value is passed over without being looked at. Of a
// text that is not JSON it gives what can be found, and of one that is no object nothing.
func Members(text []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		l := levelOf(text)
		if !l.take('{') {
			return
		}
		for first := true; !l.ends('}', first); first = false {
			name := l.part(text)
			if len(name) < 2 || name[0] != '"' || !l.take(':') {
				return
			}
			if value := l.part(text); len(value) == 0 || !yield(name, value) {
				return
			}
		}
	}
}

// Elements is Members for the elements of an array.
func Elements(text []byte) iter.Seq[[]byte] {
	return func(yield func(element []byte) bool) {
		l := levelOf(text)
		if !l.take('[') {
			return
		}
		for first := true; !l.ends(']', first); first = false {
			if element := l.part(text); len(element) == 0 || !yield(element) {
				return
			}
		}
	}
}

func levelOf(text []byte) level {
	l := level{text: unsafe.String(unsafe.SliceData(text), len(text))}
	l.space()
	return l
}

// part is value as a part of text, which the level is made of.
func (l *level) part(text []byte) []byte {
	start := l.at
	l.value()
	return text[start:l.at:l.at]
}
