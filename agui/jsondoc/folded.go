package jsondoc

import (
	"bytes"
	"slices"
	"strings"
	"unsafe"
)

// A value read from a text that is known to be good stays text until a patch reaches into it: a folded container. Only the
// levels on the way of a pointer are ever read, so that the cost of a patch to a stored document is a scan and no parse.

// Known reads a document from what AppendTo wrote before, without looking at it: a tree grows where patches reach into it.
// It keeps text, which must not be changed from then on. Of a text that is not JSON what can be found is found, and patches
// to the rest do not apply; no text at all is null. lim bounds the patches applied later.
func Known(text []byte, lim Limits) *Doc {
	if text = bytes.Trim(text, " \n\t\r"); len(text) == 0 {
		text = []byte("null")
	}
	return &Doc{root: value{text: unsafe.String(&text[0], len(text))}, lim: lim.orDefaults(), taken: len(text)}
}

// folded reports whether v is a container that is still text.
func (v value) folded() bool {
	return v.node == nil && v.text != "" && (v.text[0] == '{' || v.text[0] == '[')
}

// unfolded is v with one level of it read, if it was folded and can be read.
func (v value) unfolded() value {
	if v.folded() {
		if c := readLevel(v.text); c != nil {
			return value{node: c}
		}
	}
	return v
}

// open returns the container at a place, of which it unfolds the outermost level; nil if there is none.
func (d *Doc) open(at *location) *container {
	if !at.value.folded() {
		return at.value.node
	}
	length := at.value.size()
	at.value = at.value.unfolded()
	if at.in == nil {
		d.root = at.value
	} else {
		at.in.values[at.slot] = at.in.adopt(at.value)
		at.in.grow(at.value.size() - length)
	}
	return at.value.node
}

// readLevel reads the members or elements of a container and leaves these as text; nil if that is not possible. An object has
// no index yet, and of a name that is repeated the first counts.
func readLevel(text string) *container {
	l := level{text: text, at: 1}
	if text[0] == '{' {
		return l.object()
	}
	return l.array()
}

// level is a container being read.
type level struct {
	text   string
	at     int
	closed bool // the end of the container was there
}

func (l *level) object() *container {
	c := newObject(0)
	for first := true; !l.ends('}', first); first = false {
		literal := l.value()
		if literal == "" || literal[0] != '"' || !l.take(':') {
			return nil
		}
		v := value{text: l.value()}
		if v.absent() {
			return nil
		}
		if len(c.values) == sampled {
			l.makeRoom(c)
		}
		c.values, c.fields.names = append(c.values, v), append(c.fields.names, name{key: unquote(literal), literal: literal})
	}
	return l.whole(c)
}

// sampled is the number of members from whose lengths that of the others is guessed.
const sampled = 16

// makeRoom makes room for as many members as the rest of the text may hold, so that long objects are not copied as they grow.
func (l *level) makeRoom(c *container) {
	rest := (len(l.text) - l.at) * (sampled + 1) / l.at
	c.values = slices.Grow(c.values, rest)
	c.fields.names = slices.Grow(c.fields.names, rest)
}

func (l *level) array() *container {
	c := &container{}
	for first := true; !l.ends(']', first); first = false {
		v := value{text: l.value()}
		if v.absent() {
			return nil
		}
		c.values = push(c.values, v)
	}
	return l.whole(c)
}

// whole is the container, if it ended where the text does.
func (l *level) whole(c *container) *container {
	if !l.closed || l.at != len(l.text) {
		return nil
	}
	return c.measured()
}

// ends consumes the container's end, or else the comma before an item that is not the first. It reports whether no item
// follows.
func (l *level) ends(closing byte, first bool) bool {
	l.closed = l.take(closing)
	return l.closed || !first && !l.take(',') || l.at >= len(l.text)
}

// take consumes a delimiter.
func (l *level) take(c byte) bool {
	l.space()
	if l.at >= len(l.text) || l.text[l.at] != c {
		return false
	}
	l.at++
	l.space()
	return true
}

func (l *level) space() {
	for l.at < len(l.text) && isSpace(l.text[l.at]) {
		l.at++
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// value consumes a value and returns its text, empty if there is none.
func (l *level) value() string {
	start := l.at
	if start >= len(l.text) {
		return ""
	}
	switch l.text[start] {
	case '{', '[':
		l.at, _ = skipContainer(l.text, start)
	case '"':
		l.at = skipString(l.text, start)
	default:
		for l.at < len(l.text) && !strings.ContainsRune(",:]} \n\t\r", rune(l.text[l.at])) {
			l.at++
		}
	}
	return l.text[start:l.at]
}

// skipContainer returns the end of the container that begins at text[i], and how many levels it has; the end of the text
// if it has no end.
func skipContainer(text string, i int) (end, height int) {
	depth := 0
	for i < len(text) {
		switch text[i] {
		case '"':
			i = skipString(text, i)
			continue
		case '{', '[':
			depth++
			height = max(height, depth)
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1, height
			}
		}
		i++
	}
	return len(text), height
}

// skipString returns the end of the string that begins at text[i]; the end of the text if it has no end.
func skipString(text string, i int) int {
	for at := i + 1; ; {
		quote := strings.IndexByte(text[at:], '"')
		if quote < 0 {
			return len(text)
		}
		at += quote + 1
		escapes := 0
		for text[at-2-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return at
		}
	}
}
