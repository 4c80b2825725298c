package jsondoc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// parser reads one text into trees whose literals are slices of a single copy of it. Parsers are pooled.
type parser struct {
	dec    jsontext.Decoder
	input  bytes.Buffer // what dec reads: the text itself
	src    string
	limit  int // deepest nesting allowed
	height int // deepest nesting met since it was last set to 0
	op     int // index of the operation being read, for errors; -1 outside a patch

	// Values and names of the containers still open, innermost last; finished ones are copied out at their exact size.
	values []value
	names  []name
}

var parsers = sync.Pool{New: func() any { return new(parser) }}

// newParser checks the encoding of text. The decoder is lenient there and with repeated names, because escaped lone
// surrogates are kept and the last of equal names wins. The parser must be released.
func newParser(text []byte, lim Limits) (*parser, error) {
	if len(text) > lim.Size {
		return nil, &ApplyError{Op: -1, Code: LimitSize}
	}
	if !utf8.Valid(text) {
		return nil, &MalformedError{Reason: "not valid UTF-8"}
	}
	p := parsers.Get().(*parser)
	p.input = *bytes.NewBuffer(text)
	p.dec.Reset(&p.input, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	p.src, p.limit, p.height, p.op = string(text), lim.Depth, 0, -1
	return p, nil
}

// pooledText bounds the memory that a pooled parser keeps: of the last text, which its decoder refers to, and of the containers
// that were open at once.
const pooledText, pooledValues = 16 << 10, 256

// release gives the parser back. What it has read stays as it is.
func (p *parser) release() {
	if len(p.src) > pooledText || cap(p.values) > pooledValues || cap(p.names) > pooledValues {
		return
	}
	p.src, p.values, p.names = "", shrink(p.values, 0), shrink(p.names, 0)
	parsers.Put(p)
}

// end checks that nothing follows the value read.
func (p *parser) end() error {
	if _, err := p.dec.ReadToken(); err != io.EOF {
		return p.syntax(err)
	}
	return nil
}

// syntax turns an error of the decoder into a MalformedError.
func (p *parser) syntax(err error) error {
	malformed := &MalformedError{Reason: fmt.Sprintf("not valid JSON at byte %d", p.dec.InputOffset())}
	var at *jsontext.SyntacticError
	if errors.As(err, &at) {
		malformed.Path = shorten(string(at.JSONPointer), 256)
		malformed.Reason = fmt.Sprintf("not valid JSON at byte %d", at.ByteOffset)
	}
	return malformed
}

// token consumes a delimiter.
func (p *parser) token() error {
	if _, err := p.dec.ReadToken(); err != nil {
		return p.syntax(err)
	}
	return nil
}

// raw reads a value of any kind as it is written.
func (p *parser) raw() (string, error) {
	text, err := p.dec.ReadValue()
	if err != nil {
		return "", p.syntax(err)
	}
	end := int(p.dec.InputOffset())
	return p.src[end-len(text) : end], nil
}

// value reads a value that depth containers of the same tree enclose.
func (p *parser) value(depth int) (value, error) {
	kind := p.dec.PeekKind()
	if kind != '{' && kind != '[' {
		text, err := p.raw()
		return value{text: text}, err
	}
	depth++
	if depth > p.limit {
		return value{}, &ApplyError{Op: p.op, Code: LimitDepth}
	}
	p.height = max(p.height, depth)
	if err := p.token(); err != nil {
		return value{}, err
	}
	if kind == '{' {
		return p.object(depth)
	}
	return p.array(depth)
}

func (p *parser) array(depth int) (value, error) {
	base := len(p.values)
	for p.dec.PeekKind() != ']' {
		v, err := p.value(depth)
		if err != nil {
			return value{}, err
		}
		p.values = push(p.values, v)
	}
	c := &container{values: slices.Clone(p.values[base:])}
	for _, v := range c.values {
		c.adopt(v)
	}
	p.values = shrink(p.values, base)
	return value{node: c.measured()}, p.token()
}

func (p *parser) object(depth int) (value, error) {
	base, baseNames := len(p.values), len(p.names)
	for p.dec.PeekKind() != '}' {
		literal, err := p.raw()
		if err != nil {
			return value{}, err
		}
		p.names = append(p.names, name{key: unquote(literal), literal: literal})
		v, err := p.value(depth)
		if err != nil {
			return value{}, err
		}
		p.values = push(p.values, v)
	}
	c := newObject(len(p.values) - base)
	for i, v := range p.values[base:] {
		c.merge(p.names[baseNames+i], v)
	}
	p.values, p.names = shrink(p.values, base), shrink(p.names, baseNames)
	return value{node: c.measured()}, p.token()
}

// merge adds a member as a parser does: a repeated name gives its value to the first one, as JSON.parse has it.
func (c *container) merge(n name, v value) {
	if i := c.find(n.key); i >= 0 {
		c.values[i] = c.adopt(v)
		return
	}
	c.push(n, v)
}

// push appends and doubles the capacity when it is used up; append alone grows large slices by a quarter only, which
// would copy a long array many times.
func push[T any](s []T, v T) []T {
	if len(s) == cap(s) {
		s = slices.Grow(s, len(s)+1)
	}
	return append(s, v)
}

// shrink drops the elements from n on, and what they refer to.
func shrink[T any](s []T, n int) []T {
	clear(s[n:])
	return s[:n]
}
