package jsondoc

// Apply carries out the operations in order, all of them or none: when one fails, the document is exactly as it was
// before, and the error is an *ApplyError. The size and depth of the document stay within its Limits after every
// operation. The patch is not changed.
func (d *Doc) Apply(p *Patch) error {
	if p.Len() > d.lim.Ops {
		return &ApplyError{Op: p.ops[d.lim.Ops].index, Code: LimitOps}
	}
	run := application{Doc: d, work: d.lim.Work}
	for i := range p.ops {
		if code := run.do(&p.ops[i]); code != "" {
			d.rollBack()
			return &ApplyError{Op: p.ops[i].index, Pointer: run.at, Code: code}
		}
	}
	d.taken += run.copied
	if run.keepsText {
		d.taken += p.size
	}
	d.commit()
	return nil
}

func (d *Doc) rollBack() {
	for i := len(d.edits) - 1; i >= 0; i-- {
		d.undo(d.edits[i])
	}
	d.forget()
}

func (d *Doc) commit() {
	for i := range d.edits {
		if e := &d.edits[i]; e.kind == editRemove {
			e.in.compact()
		}
	}
	d.forget()
	d.rebuild()
}

// forget empties the undo log but keeps a little of its memory.
func (d *Doc) forget() {
	if cap(d.edits) > 64 {
		d.edits = nil
		return
	}
	clear(d.edits)
	d.edits = d.edits[:0]
}

// application is one run of a patch over a document.
type application struct {
	*Doc
	at        Pointer // the pointer being resolved, for the error
	work      int     // what is left of Limits.Work
	copied    int     // bytes of text that copies added
	keepsText bool    // the document may now refer to the patch's text
}

// location is where an existing value is: a slot of a container, or the root when in is nil.
type location struct {
	in    *container
	slot  int
	value value
}

// find resolves a pointer to an existing value.
func (d *Doc) find(ptr Pointer) (location, Code) {
	at := location{value: d.root}
	for ptr.text != "" {
		var token string
		token, ptr = ptr.next()
		in := d.open(&at)
		if in == nil {
			return at, NotAContainer
		}
		slot, code := in.slot(token)
		if code != "" {
			return at, code
		}
		at = location{in: in, slot: slot, value: in.values[slot]}
	}
	return at, ""
}

// do carries out one operation.
func (a *application) do(o *operation) Code {
	switch o.op {
	case "add":
		return a.addNew(o)
	case "replace":
		return a.replace(o)
	case "remove":
		return a.remove(o.path)
	case "move":
		return a.move(o)
	case "copy":
		return a.copy(o)
	default:
		return a.test(o)
	}
}

func (a *application) addNew(o *operation) Code {
	return a.add(o.path, o.value, o.height, value.clone)
}

func (a *application) replace(o *operation) Code {
	a.at, a.keepsText = o.path, true
	at, code := a.find(o.path)
	if code == "" {
		code = a.fits(o.value.size()-at.value.size(), o.path.depth()+o.height)
	}
	if code == "" {
		a.set(at, o.value.clone())
	}
	return code
}

func (a *application) remove(path Pointer) Code {
	a.at = path
	at, code := a.find(path)
	switch {
	case code != "":
		return code
	case at.in == nil:
		return RootRemoval
	}
	return a.cut(at)
}

func (a *application) move(o *operation) Code {
	a.at = o.from
	if o.from.contains(o.path) {
		return MoveIntoChild
	}
	at, code := a.find(o.from)
	if code != "" || o.from == o.path {
		return code
	}
	height := 0
	if o.path.depth() > o.from.depth() { // elsewhere it cannot nest deeper than it did
		if code := a.charge(at.value.size()); code != "" {
			return code
		}
		height = at.value.height()
	}
	if code := a.cut(at); code != "" {
		return code
	}
	return a.add(o.path, at.value, height, func(v value) value { return v })
}

func (a *application) copy(o *operation) Code {
	a.at = o.from
	at, code := a.find(o.from)
	if code != "" {
		return code
	}
	if code := a.charge(at.value.size()); code != "" {
		return code
	}
	if a.copied += at.value.size(); a.copied > a.lim.Size { // until the patch ends, copies live on even if removed
		return LimitSize
	}
	return a.add(o.path, at.value, at.value.height(), value.clone)
}

func (a *application) test(o *operation) Code {
	a.at = o.path
	at, code := a.find(o.path)
	if code != "" {
		return code
	}
	var c comparison
	if !c.equal(o.value, at.value) {
		return TestFailed
	}
	return a.charge(c.read)
}

// add puts take(v) at path, once it is clear that it fits there.
func (a *application) add(path Pointer, v value, height int, take func(value) value) Code {
	a.at, a.keepsText = path, true
	if path.text == "" {
		return a.addRoot(v, height, take)
	}
	parent, token := path.last()
	at, code := a.find(parent)
	if code != "" {
		return code
	}
	in, depth := a.open(&at), path.depth()+height
	switch {
	case in == nil:
		return NotAContainer
	case in.fields == nil:
		return a.addElement(in, token, v, depth, take)
	}
	return a.addMember(in, token, v, depth, take)
}

func (a *application) addRoot(v value, height int, take func(value) value) Code {
	if code := a.fits(v.size()-a.Size(), height); code != "" {
		return code
	}
	a.set(location{}, take(v))
	return ""
}

func (a *application) addElement(in *container, token string, v value, depth int, take func(value) value) Code {
	i, ok := len(in.values), true
	if token != "-" {
		i, ok = parseIndex(token)
	}
	switch {
	case !ok:
		return InvalidIndex
	case i > len(in.values):
		return IndexOutOfRange
	}
	if code := a.fits(v.size()+in.overhead("", len(in.values) == 0), depth); code != "" {
		return code
	}
	if code := a.charge(len(in.values) - i); code != "" {
		return code
	}
	in.insert(i, take(v))
	a.edits = append(a.edits, edit{kind: editInsert, in: in, slot: i})
	return ""
}

func (a *application) addMember(in *container, key string, v value, depth int, take func(value) value) Code {
	if i := in.find(key); i >= 0 {
		at := location{in: in, slot: i, value: in.values[i]}
		if code := a.fits(v.size()-at.value.size(), depth); code != "" {
			return code
		}
		a.set(at, take(v))
		return ""
	}
	n := name{key: key, literal: quoteKey(key)}
	if code := a.fits(v.size()+in.overhead(n.literal, in.len() == 0), depth); code != "" {
		return code
	}
	in.add(n, take(v))
	a.edits = append(a.edits, edit{kind: editInsert, in: in, slot: len(in.values) - 1})
	return ""
}

func quoteKey(key string) string {
	var buf [64]byte
	return string(AppendQuote(buf[:0], key))
}

// set replaces an existing value or the root.
func (a *application) set(at location, v value) {
	e := edit{kind: editSet, in: at.in, slot: at.slot}
	if at.in == nil {
		e.old = a.setRoot(v)
	} else {
		e.old = at.in.set(at.slot, v)
	}
	a.edits = append(a.edits, e)
}

// cut removes an existing value that is not the root.
func (a *application) cut(at location) Code {
	if at.in.fields == nil {
		if code := a.charge(len(at.in.values) - at.slot); code != "" {
			return code
		}
	}
	old := at.in.remove(at.slot)
	a.edits = append(a.edits, edit{kind: editRemove, in: at.in, slot: at.slot, old: old})
	return ""
}

// fits checks a change against the limits: how much longer the document gets, and how deep it then nests there.
func (a *application) fits(growth, depth int) Code {
	switch {
	case growth > max(0, a.lim.Size-a.Size()): // a document above its limit may shrink
		return LimitSize
	case depth > a.lim.Depth:
		return LimitDepth
	}
	return ""
}

// charge takes n from what is left of Limits.Work.
func (a *application) charge(n int) Code {
	if n > a.work {
		return LimitWork
	}
	a.work -= n
	return ""
}
