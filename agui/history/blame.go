package history

import (
	"slices"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/agui/jsondoc"
)

// Leaf is a value that holds no others, whose origin is looked for.
type Leaf struct {
	// At is where it is where the window stands; Blame moves it to where it was at the window's beginning.
	At jsondoc.Pointer
	// Found is set, with the step that gave the leaf its value, once it is known.
	Found bool
	Source
	Op    string
	Index int

	text agui.Value
}

// Blame goes back to the window's beginning and finds for leaves, which must be there where the window stands, the step
// that last set them: that gave them the value they have. One that only restates a value, or moves it, did not set it; a
// copy sets what it copies.
func (w *Window) Blame(leaves []*Leaf) {
	open := slices.DeleteFunc(slices.Clone(leaves), func(l *Leaf) bool { return l.Found })
	for _, l := range open {
		l.text = valueAt(w.journal.Doc(), l.At)
	}
	for w.journal.Len() > 0 && len(open) > 0 {
		w.blameLast(open)
		open = slices.DeleteFunc(open, func(l *Leaf) bool { return l.Found })
	}
	for w.journal.Len() > 0 {
		w.journal.Undo()
	}
}

// blameLast takes the last step back and settles the leaves that it set.
func (w *Window) blameLast(open []*Leaf) {
	step, source := w.journal.Last(), w.source()
	w.journal.Undo()
	for _, l := range open {
		p := before(&step, l.At)
		_, direct := l.At.Within(step.Path)
		copied := direct && step.Op == "copy"
		if p.hit && (p.begun || copied || string(valueAt(w.journal.Doc(), p.at)) != string(l.text)) {
			l.Found, l.Source, l.Op, l.Index = true, source, step.Op, step.Index
			continue
		}
		l.At = p.at
	}
}
