package jsondoc

// Diff returns a JSON Patch (RFC 6902) that makes one document of another: after it every value is written as in to, the
// text of numbers and strings included, and only the order of members may differ. Documents that differ in that order
// alone give an empty patch. Where describing the differences would take more than the document, the patch replaces it.
func Diff(from, to *Doc) []byte {
	d := differ{text: []byte{'['}, most: to.Size() + len(`[{"op":"replace","path":"","value":}]`)}
	d.compare(Pointer{}, from.root, to.root)
	if d.text = append(d.text, ']'); len(d.text) <= d.most {
		return d.text
	}
	whole := differ{text: []byte{'['}}
	whole.add("replace", Pointer{}, to.root)
	return append(whole.text, ']')
}

// differ writes operations. Beyond most bytes it stops.
type differ struct {
	text []byte
	most int
}

func (d *differ) add(op string, at Pointer, v value) {
	if len(d.text) > 1 {
		d.text = append(d.text, ',')
	}
	d.text = append(append(d.text, `{"op":"`...), op...)
	d.text = AppendQuote(append(d.text, `","path":`...), at.text)
	if !v.absent() {
		d.text = v.appendTo(append(d.text, `,"value":`...))
	}
	d.text = append(d.text, '}')
}

func (d *differ) compare(at Pointer, from, to value) {
	switch {
	case d.most > 0 && len(d.text) > d.most:
	case from.node == nil || to.node == nil:
		if from.node != nil || to.node != nil || from.text != to.text {
			d.add("replace", at, to)
		}
	case (from.node.fields == nil) != (to.node.fields == nil):
		d.add("replace", at, to)
	case from.node.fields == nil:
		d.arrays(at, from.node.values, to.node.values)
	default:
		d.objects(at, from.node, to.node)
	}
}

func (d *differ) objects(at Pointer, from, to *container) {
	for i, v := range from.values {
		if !v.absent() && to.find(from.fields.names[i].key) < 0 {
			d.add("remove", at.Child(from.fields.names[i].key), value{})
		}
	}
	for i, v := range to.values {
		if v.absent() {
			continue
		}
		key := to.fields.names[i].key
		if j := from.find(key); j >= 0 {
			d.compare(at.Child(key), from.values[j], v)
		} else {
			d.add("add", at.Child(key), v)
		}
	}
}

// arrays leaves alone what is the same at both ends, compares what lies between one by one, and removes or adds what is
// left of the longer array.
func (d *differ) arrays(at Pointer, from, to []value) {
	start := 0
	for start < min(len(from), len(to)) && same(from[start], to[start]) {
		start++
	}
	end := 0
	for end < min(len(from), len(to))-start && same(from[len(from)-1-end], to[len(to)-1-end]) {
		end++
	}
	from, to = from[start:len(from)-end], to[start:len(to)-end]
	both := min(len(from), len(to))
	for i := range both {
		d.compare(at.Index(start+i), from[i], to[i])
	}
	for i := len(from) - 1; i >= both; i-- {
		d.add("remove", at.Index(start+i), value{})
	}
	for i := both; i < len(to); i++ {
		d.add("add", at.Index(start+i), to[i])
	}
}

// same reports whether two values are written alike but for the order of members.
func same(a, b value) bool {
	switch {
	case a.node == nil || b.node == nil:
		return a.node == nil && b.node == nil && a.text == b.text
	case a.node.len() != b.node.len() || (a.node.fields == nil) != (b.node.fields == nil):
		return false
	}
	for i, v := range a.node.values {
		if v.absent() {
			continue
		}
		j := i
		if a.node.fields != nil {
			j = b.node.find(a.node.fields.names[i].key)
		}
		if j < 0 || !same(v, b.node.values[j]) {
			return false
		}
	}
	return true
}
