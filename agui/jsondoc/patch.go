package jsondoc

import (
	"errors"
	"iter"
	"strconv"
)

// Patch is a parsed RFC 6902 patch. It does not change and may be applied to any number of documents, also by
// several goroutines at once.
type Patch struct {
	ops  []operation
	size int // length of the text it was parsed from
}

type operation struct {
	index  int // in the patch text
	op     string
	path   Pointer
	from   Pointer
	value  value
	height int // of value
	text   string
}

// ParsePatch reads a JSON array of operations. The error is a *MalformedError when the text is not JSON, not an
// array, or holds an operation that is not an object, has an unknown "op", lacks a required member, repeats "op",
// "path", "from" or "value", or has a pointer that is none; its Path points into text. It is an *ApplyError when
// text, the operations or a value exceed lim; what follows the excess is not looked at. Members that an operation
// does not define are ignored (RFC 6902 section 4). Text is copied once.
func ParsePatch(text []byte, lim Limits) (*Patch, error) {
	p, _, err := parsePatch(text, lim, false)
	return p, err
}

// ParseKnownOps is ParsePatch for readers that tolerate operations of a later standard: an operation whose "op" is a
// string other than those of RFC 6902 is left out of the patch, whatever its other members hold, and its index in text
// returned.
func ParseKnownOps(text []byte, lim Limits) (p *Patch, unknown []int, err error) {
	return parsePatch(text, lim, true)
}

// Len returns the number of operations.
func (p *Patch) Len() int { return len(p.ops) }

// Each yields the operations as patches of their own: for what is known to apply, where nothing need be undone, and whose limits
// were those of several patches.
func (p *Patch) Each() iter.Seq[*Patch] {
	return func(yield func(*Patch) bool) {
		for i := range p.ops {
			if !yield(&Patch{ops: p.ops[i : i+1], size: len(p.ops[i].text)}) {
				return
			}
		}
	}
}

// AppendTo appends the patch as JSON text to dst: every operation as it came, with its unknown members, and without
// white space between operations.
func (p *Patch) AppendTo(dst []byte) []byte {
	dst = append(dst, '[')
	for i := range p.ops {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, p.ops[i].text...)
	}
	return append(dst, ']')
}

func parsePatch(text []byte, lim Limits, skipUnknown bool) (*Patch, []int, error) {
	lim = lim.orDefaults()
	p, err := newParser(text, lim)
	if err != nil {
		return nil, nil, err
	}
	defer p.release()
	if kind := p.dec.PeekKind(); kind != '[' {
		return nil, nil, p.unexpected("", "a patch must be an array")
	}
	if err := p.token(); err != nil {
		return nil, nil, err
	}
	ops, unknown, err := p.operations(lim.Ops, skipUnknown)
	if err != nil {
		return nil, nil, err
	}
	if err := p.end(); err != nil {
		return nil, nil, err
	}
	return &Patch{ops: ops, size: len(text)}, unknown, nil
}

// operations reads the rest of the array of operations.
func (p *parser) operations(limit int, skipUnknown bool) (ops []operation, unknown []int, err error) {
	for p.op = 0; p.dec.PeekKind() != ']'; p.op++ {
		if p.op == limit {
			return nil, nil, &ApplyError{Op: p.op, Code: LimitOps}
		}
		op, err := p.operation()
		var malformed *MalformedError
		switch {
		case err == nil:
			ops = append(ops, op)
		case skipUnknown && errors.As(err, &malformed) && malformed.unknownOp:
			unknown = append(unknown, p.op)
		default:
			return nil, nil, err
		}
	}
	return ops, unknown, p.token()
}

// unexpected refuses the value that comes next: for its syntax, or else for the reason given.
func (p *parser) unexpected(path, reason string) error {
	if err := p.dec.SkipValue(); err != nil {
		return p.syntax(err)
	}
	return &MalformedError{Path: path, Reason: reason}
}

// members are the members of an operation as they are written; "" is absent.
type members struct {
	op, path, from string
	value          value
	height         int
}

// operation reads one operation.
func (p *parser) operation() (operation, error) {
	if p.dec.PeekKind() != '{' {
		return operation{}, p.unexpected(p.at(""), "an operation must be an object")
	}
	if err := p.token(); err != nil {
		return operation{}, err
	}
	start := int(p.dec.InputOffset()) - len("{")
	var m members
	for p.dec.PeekKind() != '}' {
		if err := p.member(&m); err != nil {
			return operation{}, err
		}
	}
	if err := p.token(); err != nil {
		return operation{}, err
	}
	op, err := p.check(&m)
	op.text = p.src[start:p.dec.InputOffset()]
	return op, err
}

// member reads one member of an operation into m.
func (p *parser) member(m *members) error {
	literal, err := p.raw()
	if err != nil {
		return err
	}
	key := unquote(literal)
	switch key {
	case "op":
		return p.text(&m.op, key)
	case "path":
		return p.text(&m.path, key)
	case "from":
		return p.text(&m.from, key)
	case "value":
		if !m.value.absent() {
			return p.repeated(key)
		}
		p.height = 0
		m.value, err = p.value(0)
		m.height = p.height
		return err
	}
	if err := p.dec.SkipValue(); err != nil {
		return p.syntax(err)
	}
	return nil
}

// text reads a member other than "value" into field.
func (p *parser) text(field *string, key string) error {
	if *field != "" {
		return p.repeated(key)
	}
	text, err := p.raw()
	*field = text
	return err
}

func (p *parser) repeated(key string) error {
	return &MalformedError{Path: p.at(key), Reason: "member is repeated"}
}

// at is the place of a member of the current operation, or of the operation itself.
func (p *parser) at(key string) string {
	path := "/" + strconv.Itoa(p.op)
	if key != "" {
		path += "/" + key
	}
	return path
}

// check turns the members of an operation into the operation, if they are what RFC 6902 section 4 asks for.
func (p *parser) check(m *members) (operation, error) {
	o := operation{index: p.op}
	name, err := p.string(m.op, "op")
	if err != nil {
		return o, err
	}
	needsFrom, needsValue := false, false
	switch name {
	case "remove":
	case "add", "replace", "test":
		needsValue = true
	case "move", "copy":
		needsFrom = true
	default:
		return o, &MalformedError{Path: p.at("op"), Reason: "unknown operation", unknownOp: true}
	}
	o.op = name
	if o.path, err = p.pointer(m.path, "path"); err != nil {
		return o, err
	}
	if needsFrom {
		o.from, err = p.pointer(m.from, "from")
	}
	if needsValue {
		o.value, o.height = m.value, m.height
		if o.value.absent() {
			err = p.missing("value")
		}
	}
	return o, err
}

// string unquotes a member that must be there and be a string.
func (p *parser) string(literal, key string) (string, error) {
	switch {
	case literal == "":
		return "", p.missing(key)
	case literal[0] != '"':
		return "", &MalformedError{Path: p.at(key), Reason: "member must be a string"}
	}
	return unquote(literal), nil
}

func (p *parser) missing(key string) error {
	return &MalformedError{Path: p.at(""), Reason: `required member "` + key + `" is missing`}
}

func (p *parser) pointer(literal, key string) (Pointer, error) {
	s, err := p.string(literal, key)
	if err != nil {
		return Pointer{}, err
	}
	ptr, err := ParsePointer(s)
	var malformed *MalformedError
	if errors.As(err, &malformed) {
		malformed.Path = p.at(key)
	}
	return ptr, err
}
