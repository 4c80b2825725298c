package agui

import "encoding/json"

// Resync says what a state lacks: changes that did not apply since the state was last set as a whole. It follows from the
// log, which marks the entries that did not apply.
type Resync struct {
	// Since is the version of the first of them.
	Since uint64 `json:"since"`
	// Lost is how many there are.
	Lost int64 `json:"lost"`
}

// StateResync returns what the state lacks, nil if nothing. The caller must not change it.
func (t *Thread) StateResync() *Resync { return t.track.Resync }

// noteLoss counts an event that should have changed the state, if it did not: live it raised a warning, in the log it is
// inert.
func (t *Thread) noteLoss(warning *Warning, inert bool) *Warning {
	if warning == nil && !inert {
		return nil
	}
	next := Resync{Since: t.version + 1}
	if t.track.Resync != nil {
		next = *t.track.Resync
	}
	next.Lost++
	t.track.Resync = &next
	return warning
}

// inFork is the same in a fork, whose versions are others: all of it was lost before its first.
func (r *Resync) inFork(version uint64) *Resync {
	if r == nil {
		return nil
	}
	return &Resync{Since: version, Lost: r.Lost}
}

// Text is its JSON, nil for nil: Event.StateLacks of the run that takes up the state.
func (r *Resync) Text() Value {
	if r == nil {
		return nil
	}
	text, _ := json.Marshal(r) // two numbers
	return text
}

// takeUpResync notes what an earlier state, which was just taken up again, lacks, and returns it: nil if nothing.
func (t *Thread) takeUpResync(lacks Value) Value {
	var r Resync
	if lacks == nil || json.Unmarshal(lacks, &r) != nil || r.Lost <= 0 {
		return nil
	}
	t.track.Resync = &r
	return lacks
}
