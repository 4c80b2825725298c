// Package jsondoc keeps a JSON document parsed and patches it in place, so that a patch costs what it changes and
// not what the document holds.
//
// Patches are RFC 6902, pointers RFC 6901, both read strictly. Where they leave a choice, this package decides:
//
//   - Text is kept. Numbers, string escapes and the order of members come out as they came in; only insignificant
//     white space goes. A member that a patch creates is written with the escapes of AppendQuote.
//   - Of a name repeated in an object, the last value stands at the first place, as JSON.parse has it.
//   - "add" and "copy" onto an existing member, and "replace", keep the member's place; a new member goes last.
//   - "move" onto itself changes nothing if the value exists, and fails otherwise. "copy" of an element onto itself
//     inserts a second one, as "add" does.
//   - "remove" of the whole document fails with RootRemoval: what is left would not be JSON. "add", "replace",
//     "move" and "copy" to "" replace the document, whatever its kind and theirs.
//   - Numbers are equal when their mathematical values are, strings when they are equal after unescaping, where a
//     lone surrogate equals only itself.
//
// The package does no I/O and starts no goroutines.
package jsondoc

import "math"

// Doc is a JSON document: any JSON value. It is not safe for concurrent use.
type Doc struct {
	root value
	lim  Limits
	// taken is the number of bytes of text taken in since the tree was built: an upper bound of the memory that
	// literals keep alive, whatever has been removed since.
	taken int
	edits []edit // of the patch being applied
}

// Parse reads a document. It copies text once and keeps no reference to it. The error is a *MalformedError when text
// is not one JSON value in UTF-8, and an *ApplyError with Op -1 when it exceeds lim.Size or lim.Depth. lim also bounds
// the patches applied later.
func Parse(text []byte, lim Limits) (*Doc, error) {
	lim = lim.orDefaults()
	root, err := parseValue(text, lim)
	if err != nil {
		return nil, err
	}
	return &Doc{root: root, lim: lim, taken: len(text)}, nil
}

func parseValue(text []byte, lim Limits) (value, error) {
	p, err := newParser(text, lim)
	if err != nil {
		return value{}, err
	}
	defer p.release()
	v, err := p.value(0)
	if err != nil {
		return value{}, err
	}
	return v, p.end()
}

// AppendTo appends the compact text of the document to dst.
func (d *Doc) AppendTo(dst []byte) []byte { return d.root.appendTo(dst) }

// Size returns the length of the compact text in bytes, in O(1).
func (d *Doc) Size() int { return d.root.size() }

// Clone returns an independent copy with the same limits. The copy may be used by another goroutine: what the two
// share never changes.
func (d *Doc) Clone() *Doc {
	return &Doc{root: d.root.clone(), lim: d.lim, taken: d.taken}
}

// Find returns a copy of the compact text of the value at ptr, and whether there is one.
func (d *Doc) Find(ptr Pointer) ([]byte, bool) {
	at, code := d.find(ptr)
	if code != "" {
		return nil, false
	}
	return at.value.appendTo(make([]byte, 0, at.value.size())), true
}

// setRoot replaces the whole tree and returns the old one.
func (d *Doc) setRoot(v value) value {
	old := d.root
	if v.node != nil {
		v.node.parent = nil
	}
	d.root = v
	return old
}

// rebuild parses the document's own text when literals may keep alive much more text than the document has. The bytes
// taken in since the last time pay for it.
func (d *Doc) rebuild() {
	if d.taken <= 4*d.Size()+64<<10 {
		return
	}
	unbounded := Limits{Depth: maxDepth, Size: math.MaxInt}
	if root, err := parseValue(d.AppendTo(make([]byte, 0, d.Size())), unbounded); err == nil {
		d.root, d.taken = root, d.Size()
	}
}
