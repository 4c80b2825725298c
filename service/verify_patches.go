package service

import (
	"bytes"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/agui/jsondoc"
	"github.com/threadsvc/threadsvc/store"
)

// patchCheck compares the stored patches of the state with what entries did to it. Each holds, joined, what the entries did
// after the patch before, or after the stored document, up to its own version.
type patchCheck struct {
	stored []agui.StatePatch // that were not compared yet
	after  uint64            // the version that the first of them begins after
	rest   []byte            // the operations of the first that no entry has had so far
	last   uint64            // the version of the entry that had the last one
	wrong  bool              // the first is another one than that of the entries so far
	begun  bool              // the first may have begun before the log does, and cannot be compared
}

func newPatchCheck(e *store.Evidence) patchCheck {
	c := patchCheck{after: e.Base.Version, stored: e.Patches}
	c.open()
	return c
}

func (c *patchCheck) open() {
	if c.last, c.wrong, c.begun = 0, false, false; len(c.stored) > 0 {
		ops, ok := jsondoc.Operations(c.stored[0].Patch)
		c.rest, c.wrong = ops, !ok
	}
}

func (c *patchCheck) drop() {
	c.after = c.stored[0].Version
	c.stored = c.stored[1:]
	c.open()
}

// beginAt passes over what belongs to versions before that at which a log begins that was cut.
func (c *patchCheck) beginAt(first uint64) {
	for len(c.stored) > 0 && c.stored[0].Version <= first {
		c.drop()
	}
	c.begun = c.after < first
}

// reached takes what the entry of a version did. If a stored patch ends with it, or should have, that is returned, and whether
// it is the right one.
func (c *patchCheck) reached(version uint64, effects []agui.StateEffect) (ended *agui.StatePatch, right bool) {
	if len(c.stored) == 0 || version <= c.after {
		return nil, true
	}
	for _, effect := range effects {
		c.take(version, effect.Patch)
	}
	if c.stored[0].Version > version {
		return nil, true
	}
	ended = &c.stored[0]
	right = c.begun || !c.wrong && len(c.rest) == 0 && c.last == version && ended.Version == version
	c.drop()
	return ended, right
}

// take takes an entry's operations off the rest.
func (c *patchCheck) take(version uint64, patch agui.Value) {
	ops, _ := jsondoc.Operations(patch)
	if len(ops) == 0 {
		return
	}
	rest, ok := bytes.CutPrefix(c.rest, ops)
	if len(rest) > 0 {
		rest, ok = bytes.CutPrefix(rest, []byte{','})
	}
	c.rest, c.last, c.wrong = rest, version, c.wrong || !ok
}
