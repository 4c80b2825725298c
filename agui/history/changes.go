package history

import (
	"bytes"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/agui/jsondoc"
)

// Change is one change of a value: of itself, of its place, or of whether there is one.
type Change struct {
	Source
	// Place is where the log stands before the change.
	Place Place
	// Op is the operation that changed it, and Index its place in its patch.
	Op    string
	Index int
	// Path is where the value is after the change, and Before where it was before.
	Path, Before jsondoc.Pointer
	// New and Old are its texts after and before; nil if there was no value.
	New, Old agui.Value
}

// Changes goes back from where the window stands, follows the value at a place, and yields what changed it, newest first,
// until yield says that it has enough or the window's beginning is reached. It returns where the value was then; more is
// false if there is nothing before, since the value was inserted into an array.
func (w *Window) Changes(at jsondoc.Pointer, yield func(*Change) bool) (_ jsondoc.Pointer, more bool) {
	f := follower{window: w, at: at}
	for w.journal.Len() > 0 {
		change, begun := f.back()
		if begun {
			if change.New != nil {
				yield(change)
			}
			return f.at, false
		}
		if change != nil && !yield(change) {
			break
		}
	}
	return f.at, true
}

// follower follows one value back.
type follower struct {
	window *Window
	at     jsondoc.Pointer
	text   agui.Value // of the value, if it is known
	known  bool
}

// value is the text of the value where the window stands, nil if there is none.
func (f *follower) value() agui.Value {
	if !f.known {
		f.text, f.known = valueAt(f.window.journal.Doc(), f.at), true
	}
	return f.text
}

func valueAt(doc *jsondoc.Doc, at jsondoc.Pointer) agui.Value {
	if text, found := doc.Find(at); found {
		return text
	}
	return nil
}

// back takes a step back and returns what it had changed, nil if nothing. begun says that there is nothing before.
func (f *follower) back() (change *Change, begun bool) {
	step := f.window.journal.Last()
	p := before(&step, f.at)
	if !p.hit {
		f.window.journal.Undo()
		f.at = p.at
		return nil, false
	}
	c := &Change{Source: f.window.source(), Place: f.window.last(), Op: step.Op, Index: step.Index, Path: f.at, Before: p.at, New: f.value()}
	f.window.journal.Undo()
	if p.begun {
		return c, true
	}
	_, direct := f.at.Within(step.Path)
	moved := direct && (step.Op == "move" || step.Op == "copy") && p.at != f.at
	f.at, f.known = p.at, false
	c.Old = f.value()
	if !moved && (c.Old == nil) == (c.New == nil) && bytes.Equal(c.Old, c.New) || c.Old == nil && c.New == nil {
		return nil, false
	}
	return c, false
}
