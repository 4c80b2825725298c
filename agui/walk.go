package agui

import (
	"fmt"

	"github.com/threadsvc/threadsvc/agui/jsondoc"
)

// EachEntry calls yield for each of the concatenated stored forms of entries, in order, with the entry and its stored
// form, which alias data. It stops at the first error of yield, and returns ErrEntryCorrupt where data does not decode.
func EachEntry(data []byte, yield func(entry *Entry, stored []byte) error) error {
	for rest := data; len(rest) > 0; {
		entry, n := decodeEntry(rest)
		if n == 0 {
			return ErrEntryCorrupt
		}
		if err := yield(&entry, rest[:n:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// StateAt returns a copy of the text of the value at a place of the state, and whether there is one.
func (t *Thread) StateAt(pointer jsondoc.Pointer) ([]byte, bool) {
	if t.state == nil {
		return nil, false
	}
	return t.state.Find(pointer)
}

// StateEffect is what an entry did to a state: one of the two is set. The texts are those of the entry.
type StateEffect struct {
	// Replaced is the whole new state.
	Replaced Value
	// Patch is a JSON Patch that was applied.
	Patch Value
}

// WatchState has what later entries do to the state reported, as it is done. An entry may have several effects or none;
// what was not applied is none.
func (t *Thread) WatchState(watch func(StateEffect)) { t.watch = watch }

// ReplayWithinLimits makes replay obey the thread's limits, for logs of an origin that is not trusted: an entry whose patch
// or snapshot does not apply, although it is not marked as inert, is one that cannot be read.
func (t *Thread) ReplayWithinLimits() { t.strict = true }

// insist turns what kept a patch or a snapshot from being applied into an error, if replay is strict.
func (t *Thread) insist(w *Warning) error {
	if !t.strict || w == nil || w.Code != PatchNotApplied && w.Code != PatchLimit {
		return nil
	}
	return fmt.Errorf("%s: %s", w.Code, w.Detail)
}
