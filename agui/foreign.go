package agui

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/threadsvc/threadsvc/agui/jsondoc"
)

// maxPosition bounds the positions of messages in a fold that somebody else wrote, so that there is room behind them.
const maxPosition = 1 << 61

// RestoreForeign is Restore for a fold that comes from outside, between two runs: everything in it is read and must be as a
// Thread would have written it, within the limits. The error is ErrFoldCorrupt.
func RestoreForeign(id string, fold Fold, hash [32]byte, lim Limits) (*Thread, error) {
	if err := checkForeign(&fold, lim); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFoldCorrupt, err)
	}
	t, err := Restore(id, fold, hash, lim)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFoldCorrupt, err)
	}
	t.msgs.indexCalls() // reads the calls, which Restore leaves as text
	again := t.Fold()
	if !bytes.Equal(again.Append(nil), fold.Append(nil)) {
		return nil, fmt.Errorf("%w: it is not in its own form", ErrFoldCorrupt)
	}
	return t, nil
}

func checkForeign(fold *Fold, lim Limits) error {
	if fold.Version == 0 || fold.Input != nil {
		return errors.New("it is not between two runs")
	}
	if fold.State != nil {
		t := NewThread("", lim)
		if _, err := jsondoc.Parse(fold.State, t.docLimits()); err != nil {
			return fmt.Errorf("the state: %w", err)
		}
	}
	seen, before := set[string]{}, int64(0)
	for i := range fold.Messages {
		stored := &fold.Messages[i]
		if err := CheckJSON(stored.Body, lim.Depth); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		m := parseMessage(append(Value{}, stored.Body...))
		switch {
		case m.ID != stored.ID || m.Role != stored.Role || m.ID == "" || seen.has(m.ID):
			return fmt.Errorf("message %d is another one", i)
		case stored.Position <= before || stored.Position > maxPosition:
			return fmt.Errorf("message %d is out of place", i)
		}
		seen.add(m.ID)
		before = stored.Position
	}
	return checkForeignTracking(fold.Tracking)
}

// checkForeignTracking makes sure that no run is open, and that nothing is remembered of one but what the end of a run leaves.
func checkForeignTracking(text []byte) error {
	track, err := decodeTracking(text)
	if err != nil {
		return err
	}
	switch track.Phase {
	case phaseFinished, phaseFailed, phaseClosed:
	default:
		return errors.New("it is not between two runs")
	}
	for _, interrupt := range slices.Concat(track.Interrupts, track.Resumed) {
		if err := CheckJSON(interrupt, maxInputDepth); err != nil {
			return fmt.Errorf("an interrupt: %w", err)
		}
	}
	left := track
	version, touched := track.ProtocolVersion, track.TouchedState
	left.resetRun()
	left.ProtocolVersion, left.TouchedState = version, touched
	if !bytes.Equal(left.encode(), text) {
		return errors.New("the tracking remembers more than the end of a run leaves")
	}
	return nil
}
