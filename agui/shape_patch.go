package agui

import "bytes"

// operation judges one operation of a JSON Patch (RFC 6902 section 4). Members that the operation does not define are
// kept. An operation whose "op" is an unknown string is gone.
func (d *decoder) operation() verdict {
	if d.text[d.pos] != '{' {
		return d.fail(PatchMalformed, wrongType(d.text[d.pos], "an object"))
	}
	var at [len(operationMembers)]int // offsets of the values, 0 when absent
	for w, more := d.enter(); more; more = d.leave(&w, false) {
		name, value := memberAt(d.text, d.pos)
		for i, known := range operationMembers {
			if string(name) != known {
				continue
			}
			if at[i] > 0 {
				return d.failAt(PatchMalformed, known, "repeated name")
			}
			at[i] = value
		}
		d.pos = skipValue(d.text, value)
	}
	op, v := d.operationName(at[0])
	if v != kept {
		return v
	}
	return d.operands(op, at)
}

var operationMembers = [...]string{"op", "path", "from", "value"}

// operands lists what an operation needs beside its path, as an index into operationMembers.
var operands = map[string]int{"add": 3, "remove": 1, "replace": 3, "move": 2, "copy": 2, "test": 3}

func (d *decoder) operationName(at int) (string, verdict) {
	if at == 0 {
		return "", d.failAt(PatchMalformed, "op", "is required")
	}
	if first := d.text[at]; first != '"' {
		return "", d.failAt(PatchMalformed, "op", wrongType(first, "a string"))
	}
	op := unquoted(d.text[at:skipString(d.text, at)])
	if _, known := operands[string(op)]; !known {
		return "", d.unrecognised(string(op))
	}
	return string(op), kept
}

// operands judges the members that the operation needs.
func (d *decoder) operands(op string, at [len(operationMembers)]int) verdict {
	for _, i := range [...]int{1, operands[op]} {
		name := operationMembers[i]
		if at[i] == 0 {
			return d.failAt(PatchMalformed, name, "is required")
		}
		if name == "value" {
			continue
		}
		if first := d.text[at[i]]; first != '"' {
			return d.failAt(PatchMalformed, name, wrongType(first, "a string"))
		}
		if !isPointer(unquoted(d.text[at[i]:skipString(d.text, at[i])])) {
			return d.failAt(PatchMalformed, name, "is not a JSON pointer")
		}
	}
	return kept
}

// isPointer reports whether s is a JSON pointer (RFC 6901 section 3).
func isPointer(s []byte) bool {
	if len(s) > 0 && s[0] != '/' {
		return false
	}
	for i := bytes.IndexByte(s, '~'); i >= 0; i = bytes.IndexByte(s, '~') {
		if s = s[i+1:]; len(s) == 0 || s[0] != '0' && s[0] != '1' {
			return false
		}
	}
	return true
}
