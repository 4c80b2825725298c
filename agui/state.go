package agui

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"github.com/threadsvc/threadsvc/agui/jsondoc"
)

// emptyState is what a state amounts to before anything has set it.
const emptyState = "{}"

// docLimits are the limits of the state and of the contents of activities. What the log holds was within the limits of
// its time, so replay knows none.
func (t *Thread) docLimits() jsondoc.Limits {
	if t.replaying && !t.strict {
		return jsondoc.Limits{Depth: math.MaxInt, Ops: math.MaxInt, Size: math.MaxInt, Work: math.MaxInt}
	}
	return jsondoc.Limits{Depth: t.lim.Depth, Ops: t.lim.PatchOps, Size: t.lim.State}
}

// stateDoc returns the state as a document.
func (t *Thread) stateDoc() *jsondoc.Doc {
	if t.state == nil {
		doc, err := jsondoc.Parse([]byte(emptyState), t.docLimits())
		if err != nil { // cannot happen
			panic(fmt.Sprintf("agui: parse the empty state: %v", err))
		}
		t.state, t.stateReplaced = doc, true
	}
	return t.state
}

// stateSize is the length of the state's text.
func (t *Thread) stateSize() int {
	if t.state == nil {
		return len(emptyState)
	}
	return t.state.Size()
}

func sameDoc(a, b *jsondoc.Doc) bool {
	return a.Size() == b.Size() && bytes.Equal(a.AppendTo(nil), b.AppendTo(nil))
}

// replaceState is STATE_SNAPSHOT: no merging (protocol page on state).
func (t *Thread) replaceState(snapshot Value, inert bool) *Warning {
	if inert {
		return nil
	}
	doc, err := jsondoc.Parse(snapshot, t.docLimits())
	if err != nil {
		return patchWarning(err, "/snapshot")
	}
	t.track.TouchedState, t.track.Resync = true, nil
	if t.watch != nil {
		t.watch(StateEffect{Replaced: snapshot})
	}
	if t.state != nil && sameDoc(t.state, doc) { // a state that is only restated need not be written
		return nil
	}
	t.state, t.stateReplaced, t.statePatches, t.statePatchBytes = doc, true, nil, 0
	return nil
}

// patchState is STATE_DELTA: atomic, and skipped with a warning when it does not apply (protocol page on state).
func (t *Thread) patchState(text Value, inert bool) *Warning {
	if inert {
		return nil
	}
	ops, err := applyText(t.stateDoc(), text, t.docLimits())
	if err != nil {
		return patchWarning(err, "/delta")
	}
	if t.watch != nil {
		t.watch(StateEffect{Patch: text})
	}
	if ops > 0 {
		t.notePatch(text)
		t.track.TouchedState = true
	}
	return nil
}

// applyText applies the text of a patch to a document under the given limits, and returns its number of operations.
func applyText(doc *jsondoc.Doc, text Value, lim jsondoc.Limits) (ops int, err error) {
	patch, err := jsondoc.ParsePatch(text, lim)
	if err != nil {
		return 0, err
	}
	doc.SetLimits(lim)
	return patch.Len(), doc.Apply(patch)
}

// notePatch remembers an applied patch for the next fold; once the patches are as long as the state, the state itself is
// the shorter thing to write.
func (t *Thread) notePatch(text Value) {
	if t.stateReplaced {
		return
	}
	t.statePatches = append(t.statePatches, StatePatch{Version: t.version + 1, Patch: text})
	t.statePatchBytes += len(text)
	if t.statePatchBytes > max(t.state.Size(), 4096) {
		t.stateReplaced, t.statePatches, t.statePatchBytes = true, nil, 0
	}
}

// patchWarning says why a patch, or a snapshot beyond the limits, was not applied.
func patchWarning(err error, path string) *Warning {
	var apply *jsondoc.ApplyError
	if !errors.As(err, &apply) {
		return &Warning{Code: PatchNotApplied, Path: path, Detail: err.Error()}
	}
	w := &Warning{Code: PatchNotApplied, Path: path, Detail: string(apply.Code)}
	if apply.Op >= 0 {
		w.Path = fmt.Sprintf("%s/%d", path, apply.Op)
	}
	switch apply.Code {
	case jsondoc.LimitSize, jsondoc.LimitDepth, jsondoc.LimitOps, jsondoc.LimitWork:
		w.Code = PatchLimit
	}
	return w
}
