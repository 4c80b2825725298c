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
	// older is set if the first may hold operations of entries before those that the log begins with. Then taken are those of
	// the entries, which must be its last ones.
	older bool
	taken []byte
}

func newPatchCheck(e *store.Evidence) patchCheck {
	c := patchCheck{after: e.Base.Version, stored: e.Patches}
	c.open()
	return c
}

func (c *patchCheck) open() {
	if c.last, c.wrong, c.older, c.taken = 0, false, false, nil; len(c.stored) > 0 {
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
	c.older = c.after < first
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
	right = !c.wrong && c.complete() && c.last == version && ended.Version == version
	c.drop()
	return ended, right
}

// complete reports whether entries had all operations of the first stored patch, or its last ones if it may be older.
func (c *patchCheck) complete() bool {
	if !c.older {
		return len(c.rest) == 0
	}
	before, ok := bytes.CutSuffix(c.rest, c.taken)
	return ok && (len(before) == 0 || before[len(before)-1] == ',')
}

// take takes an entry's operations off the rest.
func (c *patchCheck) take(version uint64, patch agui.Value) {
	ops, _ := jsondoc.Operations(patch)
	if len(ops) == 0 || c.wrong {
		return
	}
	c.last = version
	if c.older {
		c.takeLater(ops)
		return
	}
	rest, ok := bytes.CutPrefix(c.rest, ops)
	if ok && len(rest) > 0 {
		rest, ok = bytes.CutPrefix(rest, []byte{','})
	}
	c.rest, c.wrong = rest, !ok
}

// takeLater gathers operations that must be the last ones. It holds no more than the stored patch does.
func (c *patchCheck) takeLater(ops []byte) {
	if c.wrong = len(c.taken)+len(ops) > len(c.rest); c.wrong {
		return
	}
	if len(c.taken) > 0 {
		c.taken = append(c.taken, ',')
	}
	c.taken = append(c.taken, ops...)
}
