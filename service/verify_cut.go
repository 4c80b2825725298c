package service

import (
	"context"
	"errors"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
)

// begin takes up the fold at the first version of a log that was cut, and passes over what belongs to versions before and
// is only left because it was not removed yet. What cannot be compared without the fold is not.
func (r *verifier) begin(ctx context.Context) error {
	first, e := r.head.FirstVersion, r.evidence
	r.run.ordinal = r.head.PrunedRuns
	if first == 0 {
		return nil
	}
	for r.cuts < len(e.Checkpoints) && e.Checkpoints[r.cuts] < first {
		r.cuts++
	}
	r.patches.beginAt(first)
	r.confirmed = first
	readCtx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	c, err := r.st.CheckpointAt(readCtx, r.key, first)
	var thread *agui.Thread
	switch {
	case err == nil && c.Fold.Version == first:
		thread, err = agui.Restore(r.head.ThreadID, c.Fold, r.head.FirstHash, agui.DefaultLimits())
	case err == nil || errors.Is(err, store.ErrNotFound):
		err = errors.New("it is missing")
	case !errors.Is(err, store.ErrCorrupt):
		return err
	}
	if err != nil {
		r.found(FindingCheckpoint, first, first, "the fold that the log begins with cannot be read: %v", err)
		r.thread.Seal(first, r.head.FirstHash)
		r.unfolded, r.blind = true, true
		if r.cuts < len(e.Checkpoints) && e.Checkpoints[r.cuts] == first {
			r.cuts++
		}
		return nil
	}
	r.thread = thread
	return nil
}

// tell tells of what was found, unless the thread was pruned since: then it may be nothing but what is not there any more.
func (r *verifier) tell(ctx context.Context) error {
	if len(r.findings) == 0 {
		return nil
	}
	if err := r.stillKept(ctx); err != nil {
		return err
	}
	for _, f := range r.findings {
		r.Found(f)
	}
	r.told += len(r.findings)
	r.findings = r.findings[:0]
	return nil
}

// stillKept returns a PrunedError if the thread was pruned since its evidence was read.
func (r *verifier) stillKept(ctx context.Context) error {
	readCtx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	head, err := r.st.Head(readCtx, r.key)
	if errors.Is(err, store.ErrNotFound) { // deleted: what was found stays so
		return nil
	}
	if err == nil && head.FirstVersion != r.head.FirstVersion {
		return &store.PrunedError{FirstVersion: head.FirstVersion, Version: r.head.FirstVersion}
	}
	return err
}
