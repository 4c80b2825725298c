package service

import (
	"bytes"
	"context"
	"encoding/json"
	"math"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
)

// runCheck follows the rows of runs along the log.
type runCheck struct {
	ordinal int64      // of the run that is compared next, less one
	next    *store.Run // nil until it is read
	first   string     // the run that the entry at its first version belongs to
	over    bool       // there are no more

	// Of the entry that was replayed last.
	version uint64
	runID   string
	event   agui.Event
	mark    agui.Mark
}

// entry notes an entry that may begin or end a run.
func (c *runCheck) entry(version uint64, runID string, entry *agui.Entry) {
	c.version, c.runID, c.event, c.mark = version, runID, agui.Event{}, agui.Mark{}
	if c.next == nil || c.next.LastVersion != version {
		return
	}
	switch entry.Kind {
	case agui.KindEvent:
		lim := agui.Limits{Event: math.MaxInt, Depth: math.MaxInt16, PatchOps: math.MaxInt, Warnings: 1}
		c.event, _, _ = agui.Decode(entry.Payload, lim)
	case agui.KindMark:
		_ = json.Unmarshal(entry.Payload, &c.mark) // an unreadable one is none of those that end a run
	}
}

// checkRun compares the row of the run whose first or last entry was reached.
func (r *verifier) checkRun(ctx context.Context) error {
	c := &r.run
	if c.next == nil && !c.over {
		run, err := r.runAt(ctx, c.ordinal+1)
		if err != nil {
			return err
		}
		c.next, c.first, c.over = run, "", run == nil
	}
	if c.next == nil || c.version == 0 {
		return nil
	}
	if c.next.FirstVersion == c.version {
		c.first = c.runID
	}
	if c.next.LastVersion == c.version {
		r.compareRun(c.next)
		c.ordinal, c.next = c.ordinal+1, nil
		return r.checkRun(ctx)
	}
	return nil
}

// runAt reads a run by its ordinal, nil if it is not there.
func (r *verifier) runAt(ctx context.Context, ordinal int64) (*store.Run, error) {
	readCtx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	runs, err := r.st.Runs(readCtx, r.key, ordinal+1, 1)
	if err != nil || len(runs) == 0 || runs[0].Ordinal != ordinal {
		return nil, err
	}
	return &runs[0], nil
}

// compareRun compares the row of a run that is over with the entry that ended it.
func (r *verifier) compareRun(run *store.Run) {
	c := &r.run
	if c.runID != run.RunID || c.first != run.RunID {
		r.found(FindingRun, run.FirstVersion, run.LastVersion, "run %d is another one in the log", run.Ordinal)
		return
	}
	if !c.endsAs(run) {
		r.found(FindingRun, run.LastVersion, run.LastVersion, "run %d ended otherwise in the log", run.Ordinal)
	}
}

// endsAs reports whether the last entry says what the row does.
func (c *runCheck) endsAs(run *store.Run) bool {
	switch {
	case c.event.Type == agui.RunFinished:
		ordinary := run.Status == store.RunFinished || run.Status == store.RunInterrupted || run.Status == store.RunCancelled
		return ordinary && bytes.Equal(run.Outcome, c.event.Outcome) && bytes.Equal(run.Result, c.event.Result) &&
			bytes.Equal(run.Usage, c.event.Usage) && run.Error == nil
	case c.event.Type == agui.RunError:
		return run.Status == store.RunFailed && bytes.Equal(run.Usage, c.event.Usage)
	case c.mark.Type == agui.MarkRunFailed:
		return run.Status == store.RunFailed
	case c.mark.Type == agui.MarkRunTruncated:
		return run.Status == store.RunTruncated
	}
	return true // an entry of a kind that this program does not know
}

// finishRuns compares the number of runs, and the one that is active, with the head.
func (r *verifier) finishRuns(ctx context.Context) error {
	h := r.head
	last, err := r.runAt(ctx, h.Runs)
	if err != nil {
		return err
	}
	if h.Runs > 0 && last == nil {
		r.found(FindingHead, h.Version, h.Version, "there is no run %d", h.Runs)
		return nil
	}
	if r.run.ordinal > h.Runs || r.run.ordinal < h.Runs-1 {
		r.found(FindingHead, h.Version, h.Version, "the log has %d runs that are over, the head %d runs", r.run.ordinal, h.Runs)
	}
	if h.ActiveRun != "" && (last == nil || last.RunID != h.ActiveRun) || h.ActiveRun == "" && r.thread.Running() {
		r.found(FindingHead, h.Version, h.Version, "the active run is another one in the log")
	}
	return nil
}
