package agui

import (
	"bytes"
	"fmt"
	"iter"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/threadsvc/threadsvc/agui/jsondoc"
)

// readers holds decoders for shallow reading. They accept what the protocol lets pass: lone surrogates as escapes and,
// in open objects, repeated names.
var readers = sync.Pool{New: func() any {
	return jsontext.NewDecoder(new(bytes.Buffer), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
}}

// eachMember calls yield for every member of a JSON object, in order, with the name as it is written and its value.
// Both alias text. It stops at the first error. It is for texts that are not known to be good; jsondoc.Members is for others.
func eachMember(text Value, yield func(name, value Value) error) error {
	return eachItem(text, '{', func(read func() (Value, error)) error {
		name, err := read()
		if err != nil {
			return err
		}
		value, err := read()
		if err != nil {
			return err
		}
		return yield(name, value)
	})
}

// eachElement calls yield for every element of a JSON array, in order. The values alias text.
func eachElement(text Value, yield func(value Value) error) error {
	return eachItem(text, '[', func(read func() (Value, error)) error {
		value, err := read()
		if err != nil {
			return err
		}
		return yield(value)
	})
}

func eachItem(text Value, open jsontext.Kind, item func(read func() (Value, error)) error) error {
	dec := readers.Get().(*jsontext.Decoder)
	defer readers.Put(dec)
	dec.Reset(bytes.NewBuffer(text), dec.Options())
	read := func() (Value, error) {
		value, err := dec.ReadValue()
		if err != nil {
			return nil, err
		}
		end := int(dec.InputOffset())
		return text[end-len(value) : end : end], nil
	}
	token, err := dec.ReadToken()
	if err != nil {
		return err
	}
	if token.Kind() != open {
		return fmt.Errorf("agui: expected %q, found %q", byte(open), byte(token.Kind()))
	}
	for {
		switch kind := dec.PeekKind(); kind {
		case '}', ']':
			return nil
		case 0:
			_, err := dec.ReadToken()
			return err
		}
		if err := item(read); err != nil {
			return err
		}
	}
}

// objects iterates over the elements of a checked array, and ends at one that is no object.
func objects(list Value) iter.Seq[Value] {
	return func(yield func(Value) bool) {
		for element := range jsondoc.Elements(list) {
			if element[0] != '{' || !yield(element) {
				return
			}
		}
	}
}

// nameOf decodes the name of a member of a checked object. It copies nothing unless there are escapes.
func nameOf(literal Value) []byte {
	if bytes.IndexByte(literal, '\\') < 0 {
		return literal[1 : len(literal)-1]
	}
	return []byte(unquote(literal))
}

// unquote decodes a JSON string that was checked before; a value that is none gives "".
func unquote(literal Value) string {
	s, err := jsondoc.Unquote(literal)
	if err != nil {
		return ""
	}
	return s
}

// equalStrings reports whether two optional JSON strings are both absent or have the same value.
func equalStrings(a, b Value) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return bytes.Equal(a, b) || unquote(a) == unquote(b)
}

// writer builds the text of a JSON object member by member; empty and nil values are left out.
type writer struct{ text []byte }

func (w *writer) name(name string) {
	if len(w.text) == 0 {
		w.text = append(w.text, '{')
	} else {
		w.text = append(w.text, ',')
	}
	w.text = append(w.text, '"')
	w.text = append(w.text, name...)
	w.text = append(w.text, '"', ':')
}

func (w *writer) string(name, value string) {
	if value == "" {
		return
	}
	w.name(name)
	w.text = jsondoc.AppendQuote(w.text, value)
}

func (w *writer) value(name string, value Value) {
	if value == nil {
		return
	}
	w.name(name)
	w.text = append(w.text, value...)
}

// object closes the object and returns its text.
func (w *writer) object() []byte {
	if len(w.text) == 0 {
		return []byte("{}")
	}
	return append(w.text, '}')
}

// Text decodes a JSON string for showing it to people: lone surrogates become U+FFFD. What is no string gives "".
func Text(literal Value) string { return strings.ToValidUTF8(unquote(literal), "\uFFFD") }

// CheckJSON returns an error unless text is one JSON value that nests no deeper than maxDepth.
func CheckJSON(text []byte, maxDepth int) error {
	if v := checkJSON(text, maxDepth); v != nil {
		return v
	}
	return nil
}
