package storetest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
)

// Commit implements store.Store.
func (m *Memory) Commit(ctx context.Context, commits []*store.Commit) []store.Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	results := make([]store.Result, len(commits))
	seen := map[store.Key]bool{}
	now := m.now()
	for i, c := range commits {
		if err := ctx.Err(); err != nil {
			results[i].Err = fmt.Errorf("%w: %w", store.ErrUnavailable, err)
			continue
		}
		if seen[c.Key] {
			results[i].Err = store.ErrInvalid
			continue
		}
		seen[c.Key] = true
		results[i] = m.commit(c, now)
	}
	return results
}

func (m *Memory) commit(c *store.Commit, now time.Time) store.Result {
	t := m.threads[c.Key]
	if err := m.check(t, c, now); err != nil {
		return store.Result{Err: err}
	}
	if c.Create != nil {
		delete(m.deleted, c.Key)
		t = &thread{head: store.Head{
			Key: c.Key, Tenant: c.Create.Tenant, ThreadID: c.Create.ThreadID,
			Metadata: cloneMetadata(c.Create.Metadata), CreatedAt: now, LastRunAt: now,
		}}
		m.threads[c.Key] = t
	}
	t.writeHead(c, now)
	t.writeLog(c, now)
	t.writeRuns(c, now)
	if c.Fold != nil {
		t.writeFold(c.Fold)
	}
	return store.Result{CommittedAt: now, LeaseExpiresAt: t.head.LeaseExpiresAt}
}

// check finds what keeps a commit from being written, so that writing it cannot fail halfway.
func (m *Memory) check(t *thread, c *store.Commit, now time.Time) error {
	if err := c.Check(); err != nil {
		return err
	}
	if (c.Create != nil) != (t == nil) {
		return store.ErrConflict
	}
	if at, ok := m.deleted[c.Key]; ok && c.Create != nil && !c.Create.ReplaceDeleted {
		return &store.DeletedError{DeletedAt: at}
	}
	taken := map[string]bool{}
	if t != nil {
		if t.head.Version != c.ExpectVersion || t.head.Fence != c.ExpectFence {
			return store.ErrConflict
		}
		if c.ExpectExpired && !t.headAt(now).LeaseExpired {
			return store.ErrConflict
		}
		if rows := len(c.Opened) + len(c.Updated); rows == 0 && (t.head.ActiveRun != c.ActiveRun || t.head.Runs != c.Runs) {
			return store.ErrInvalid // Postgres may take both from the head
		}
		for _, r := range t.runs {
			taken[r.RunID] = true
		}
	}
	for _, r := range c.Opened {
		if taken[r.RunID] {
			return store.ErrDuplicate
		}
		taken[r.RunID] = true
	}
	for _, r := range c.Updated {
		if !taken[r.RunID] {
			return store.ErrInvalid
		}
	}
	return nil
}

func (t *thread) writeHead(c *store.Commit, now time.Time) {
	h := &t.head
	ttl := c.LeaseTTL.Truncate(time.Millisecond)
	switch {
	case c.ActiveRun == "":
		h.LeaseExpiresAt = time.Time{}
	case h.ActiveRun == "" || h.Fence != c.Fence || !c.KeepLease && h.LeaseExpiresAt.Before(now.Add(ttl/2)):
		h.LeaseExpiresAt = now.Add(ttl)
	}
	if c.RunStarted {
		h.LastRunAt = now
	}
	h.Version, h.Hash, h.Fence, h.StreamID, h.NextOffset = c.Version, c.Hash, c.Fence, c.StreamID, c.NextOffset
	h.ActiveRun, h.LeaseTTL, h.Runs = c.ActiveRun, ttl, c.Runs
}

func (t *thread) writeLog(c *store.Commit, now time.Time) {
	for _, s := range c.Segments {
		s.Entries, s.CommittedAt = bytes.Clone(s.Entries), now
		t.segments = append(t.segments, s)
	}
	for _, w := range c.Warnings {
		w.RemovedBytes, w.RaisedAt = int64(len(w.Removed)), now
		w.Removed = bytes.Clone(store.CutRemoved(w.Removed))
		t.warnings = append(t.warnings, w)
	}
	slices.SortFunc(t.warnings, func(a, b store.Warning) int {
		return compareWarnings(a.Version, a.Ordinal, b.Version, b.Ordinal)
	})
}

func (t *thread) writeRuns(c *store.Commit, now time.Time) {
	for _, r := range c.Opened {
		r.StartedAt, r.EndedAt = now, time.Time{}
		t.runs = append(t.runs, changed(r, r, now))
	}
	for _, r := range c.Updated {
		i := t.runAt(r.RunID)
		t.runs[i] = changed(t.runs[i], r, now)
	}
	slices.SortFunc(t.runs, func(a, b store.Run) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
}

// changed is run with the changeable part of next.
func changed(run, next store.Run, now time.Time) store.Run {
	run.Status, run.LastVersion, run.NextOffset, run.Warnings = next.Status, next.LastVersion, next.NextOffset, next.Warnings
	run.ProtocolVersion, run.Outcome = bytes.Clone(next.ProtocolVersion), bytes.Clone(next.Outcome)
	run.Result, run.Usage, run.Error = bytes.Clone(next.Result), bytes.Clone(next.Usage), bytes.Clone(next.Error)
	switch {
	case run.Status == store.RunActive:
		run.EndedAt = time.Time{}
	case run.EndedAt.IsZero():
		run.EndedAt = now
	}
	return run
}

func (t *thread) writeFold(changes *agui.Changes) {
	t.fold.Version, t.fold.Tracking = changes.Version, bytes.Clone(changes.Tracking)
	gone := func(position int64) func(agui.StoredMessage) bool {
		return func(m agui.StoredMessage) bool { return m.Position == position }
	}
	for _, position := range changes.Deletes {
		t.fold.Messages = slices.DeleteFunc(t.fold.Messages, gone(position))
	}
	for _, m := range changes.Upserts {
		m.Body = bytes.Clone(m.Body)
		t.fold.Messages = append(slices.DeleteFunc(t.fold.Messages, gone(m.Position)), m)
	}
	slices.SortFunc(t.fold.Messages, func(a, b agui.StoredMessage) int { return cmp.Compare(a.Position, b.Position) })
	if changes.State.Replaced != nil {
		t.base, t.patches = bytes.Clone(changes.State.Replaced), nil
	}
	for _, p := range changes.State.Patches {
		t.patches = append(t.patches, bytes.Clone(p.Patch))
	}
}

// UpdateMetadata implements store.Store.
func (m *Memory) UpdateMetadata(_ context.Context, key store.Key,
	change func(store.Metadata) (store.Metadata, error)) (head store.Head, err error) {
	err = m.read(key, func(t *thread) error {
		next, err := change(cloneMetadata(t.head.Metadata))
		if err != nil {
			return err
		}
		t.head.Metadata = cloneMetadata(next)
		head = t.headAt(m.now())
		return nil
	})
	return head, err
}

// Delete implements store.Store.
func (m *Memory) Delete(_ context.Context, key store.Key) (gone store.Erasure, err error) {
	err = m.read(key, func(t *thread) error {
		now := m.now()
		gone = store.Erasure{Head: t.headAt(now), DeletedAt: now, Rows: map[string]int64{
			"threads": 1, "runs": int64(len(t.runs)), "log_segments": int64(len(t.segments)),
			"warnings": int64(len(t.warnings)), "checkpoints": int64(len(t.checkpoints)),
		}}
		delete(m.threads, key)
		m.deleted[key] = now
		return nil
	})
	return gone, err
}

func cloneMetadata(m store.Metadata) store.Metadata {
	return store.Metadata{Text: bytes.Clone(m.Text), Labels: m.KeptLabels()}
}
