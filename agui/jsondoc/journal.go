package jsondoc

import "strconv"

// Journal applies patches to a document and remembers each of their operations, so that they can be taken back one by
// one, newest first. It knows no limits. It is not safe for concurrent use.
type Journal struct {
	doc   *Doc
	steps []Step
	marks []int // for each step, the number of edits before it
}

// Step is what one operation did to a document.
type Step struct {
	// Index is the operation's place in its patch.
	Index int
	// Op is the operation; "replace" with an empty Path for a whole document that was given.
	Op string
	// Path is where the value is that the operation added, replaced, moved or copied, or was that it removed, by the
	// document after it (before it, for one removed). An index is a number.
	Path Pointer
	// From is where the value was that was moved or copied, by the document before.
	From Pointer
	// Shifts is true if Path is an element that was inserted into or removed from an array, so that those behind it moved;
	// FromShifts if From is one that was taken out of an array.
	Shifts, FromShifts bool
}

// NewJournal begins with a document, which the journal takes over.
func NewJournal(doc *Doc) *Journal {
	doc.SetLimits(unlimited)
	return &Journal{doc: doc}
}

var unlimited = Limits{Depth: maxDepth, Ops: maxInt, Size: maxInt, Work: maxInt}

const maxInt = int(^uint(0) >> 1)

// Doc is the document as it is now. The caller must not change it.
func (j *Journal) Doc() *Doc { return j.doc }

// Len is the number of steps that have not been taken back.
func (j *Journal) Len() int { return len(j.steps) }

// Apply carries out a patch as Doc.Apply does, an operation a step; a "test" is none. After an error nothing has changed.
func (j *Journal) Apply(p *Patch) error {
	before := len(j.steps)
	run := application{Doc: j.doc, work: maxInt}
	for i := range p.ops {
		o := &p.ops[i]
		mark := len(j.doc.edits)
		if code := run.do(o); code != "" {
			j.rollBack(mark)
			for len(j.steps) > before {
				j.Undo()
			}
			return &ApplyError{Op: o.index, Pointer: run.at, Code: code}
		}
		if o.op != "test" {
			j.note(stepOf(o, j.doc.edits[mark:]), mark)
		}
	}
	return nil
}

// Replace puts another document in the place of the present one, which is one step.
func (j *Journal) Replace(doc *Doc) {
	mark := len(j.doc.edits)
	j.doc.edits = append(j.doc.edits, edit{kind: editSet, old: j.doc.setRoot(doc.root)})
	j.note(Step{Op: "replace"}, mark)
}

func (j *Journal) note(s Step, mark int) {
	j.steps, j.marks = append(j.steps, s), append(j.marks, mark)
}

// Undo takes the last step back and returns it. There must be one.
func (j *Journal) Undo() Step {
	last := len(j.steps) - 1
	s := j.steps[last]
	j.rollBack(j.marks[last])
	j.steps, j.marks = j.steps[:last], j.marks[:last]
	return s
}

// Last is the last step. There must be one.
func (j *Journal) Last() Step { return j.steps[len(j.steps)-1] }

func (j *Journal) rollBack(mark int) {
	d := j.doc
	for i := len(d.edits) - 1; i >= mark; i-- {
		d.undo(d.edits[i])
		d.edits[i] = edit{}
	}
	d.edits = d.edits[:mark]
}

// stepOf describes an operation by its edits: the last one is at Path, and that of a move before it at From.
func stepOf(o *operation, edits []edit) Step {
	s := Step{Index: o.index, Op: o.op, Path: o.path, From: o.from}
	if len(edits) == 0 { // a value that was moved to where it is
		s.Path = o.from
		return s
	}
	last := &edits[len(edits)-1]
	if last.in != nil && last.in.fields == nil && last.kind != editSet {
		parent, _ := o.path.last()
		s.Path, s.Shifts = parent.Index(last.slot), true
	}
	if first := &edits[0]; o.op == "move" && first.in.fields == nil {
		s.FromShifts = true
	}
	return s
}

// Index is the place of an element of the array at p.
func (p Pointer) Index(i int) Pointer { return Pointer{text: p.text + "/" + strconv.Itoa(i)} }
