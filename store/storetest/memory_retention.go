package storetest

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/threadsvc/threadsvc/store"
)

// retention is what is kept of policies.
type retention struct {
	policies map[string]store.Policy
}

// Policy implements store.Store.
func (m *Memory) Policy(_ context.Context, tenant string) (store.Policy, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.retention.policies[tenant]
	if !ok {
		return p, store.ErrNotFound
	}
	return p, nil
}

// SetPolicy implements store.Store.
func (m *Memory) SetPolicy(_ context.Context, p store.Policy) (store.Policy, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.retention.policies == nil {
		m.retention.policies = map[string]store.Policy{}
	}
	p.UpdatedAt = m.now()
	m.retention.policies[p.Tenant] = p
	for _, t := range m.threads {
		if t.head.Tenant == p.Tenant {
			t.seen = false
		}
	}
	return p, nil
}

// DeletePolicy implements store.Store.
func (m *Memory) DeletePolicy(_ context.Context, tenant string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.retention.policies[tenant]; !ok {
		return store.ErrNotFound
	}
	delete(m.retention.policies, tenant)
	return nil
}

// SpreadPolicies implements store.Store: SetPolicy has done so.
func (m *Memory) SpreadPolicies(ctx context.Context, _ int) (bool, error) { return false, ctx.Err() }

// Due implements store.Store.
func (m *Memory) Due(_ context.Context, limit int) (due []store.DueThread, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, t := range m.threads {
		p, ok := m.retention.policies[t.head.Tenant]
		looked := t.seen && t.seenRuns == t.head.Runs && (t.due.IsZero() || t.due.After(m.now()))
		if ok && !looked && t.head.ActiveRun == "" && len(due) < limit {
			due = append(due, store.DueThread{Key: key, Policy: p})
		}
	}
	return due, nil
}

// SetDue implements store.Store.
func (m *Memory) SetDue(_ context.Context, due store.DueThread, runs int64, at time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.threads[due.Key]
	if t != nil && t.head.Runs == runs && m.retention.policies[due.Policy.Tenant].UpdatedAt.Equal(due.Policy.UpdatedAt) {
		t.seen, t.seenRuns, t.due = true, runs, at
	}
	return nil
}

// PlanCut implements store.Store.
func (m *Memory) PlanCut(_ context.Context, key store.Key, keep store.Keep) (plan store.Plan, err error) {
	err = m.read(key, func(t *thread) error {
		now := m.now()
		plan.Head = t.headAt(now)
		old := func(r *store.Run, age time.Duration) bool {
			return r.Status != store.RunActive && r.EndedAt.Before(now.Add(-age))
		}
		allowed := min(t.wanted(keep, old), t.head.Runs-1, t.lastOrdinary()-1)
		for i := range t.runs {
			r := &t.runs[i]
			if keep.MaxAge > 0 && !old(r, keep.MaxAge) && r.Status != store.RunActive {
				if next := r.EndedAt.Add(keep.MaxAge); plan.Next.IsZero() || next.Before(plan.Next) {
					plan.Next = next
				}
			}
			if r.Ordinal > allowed || i+1 == len(t.runs) || keep.Grace > 0 && !old(r, keep.Grace) {
				continue
			}
			if cut := t.cutAfter(r, &t.runs[i+1]); cut.Version > 0 && (keep.Before == 0 || cut.Version <= keep.Before) {
				plan.Cut = cut
			}
		}
		return nil
	})
	return plan, err
}

// wanted is the ordinal of the last run that is to go.
func (t *thread) wanted(keep store.Keep, old func(*store.Run, time.Duration) bool) (last int64) {
	size := int64(0)
	over := uint64(0)
	for _, s := range slices.Backward(t.segments) {
		if size += int64(len(s.Entries)); keep.MaxBytes > 0 && size > keep.MaxBytes && over == 0 {
			over = s.FirstVersion
		}
	}
	for i := range t.runs {
		r := &t.runs[i]
		if keep.MaxRuns > 0 && r.Ordinal <= t.head.Runs-keep.MaxRuns || keep.MaxAge > 0 && old(r, keep.MaxAge) ||
			over > 0 && r.FirstVersion <= over || keep.Before > 0 && r.LastVersion > 0 && r.LastVersion <= keep.Before {
			last = r.Ordinal
		}
	}
	return last
}

func (t *thread) lastOrdinary() (last int64) {
	for _, r := range t.runs {
		if r.Status >= store.RunFinished && r.Status <= store.RunCancelled {
			last = r.Ordinal
		}
	}
	return last
}

// cutAfter is the place after a run, if the next one begins a stream of its own.
func (t *thread) cutAfter(r, next *store.Run) (cut store.CutPlace) {
	for _, s := range t.segments {
		if s.FirstVersion <= r.LastVersion && next.StreamID == next.RunID {
			cut = store.CutPlace{Version: max(r.LastVersion, s.LastVersion), Run: r.Ordinal}
			cut.CommittedAt = s.CommitTime(cut.Version)
		}
	}
	return cut
}

// PutCut implements store.Store.
func (m *Memory) PutCut(_ context.Context, key store.Key, c store.Checkpoint) error {
	return m.read(key, func(t *thread) error {
		if t.head.FirstVersion >= c.Fold.Version {
			return store.ErrConflict
		}
		t.putCut(c)
		return nil
	})
}

func (t *thread) putCut(c store.Checkpoint) {
	c.Size = int64(len(c.Fold.Append(nil)))
	t.checkpoints = slices.DeleteFunc(t.checkpoints, func(o store.Checkpoint) bool { return o.Fold.Version == c.Fold.Version })
	t.checkpoints = append(t.checkpoints, c)
	slices.SortFunc(t.checkpoints, func(a, b store.Checkpoint) int { return cmp.Compare(a.Fold.Version, b.Fold.Version) })
}

// Cut implements store.Store.
func (m *Memory) Cut(_ context.Context, key store.Key, cut store.CutPlace, hash [32]byte) error {
	return m.read(key, func(t *thread) error {
		laid := slices.ContainsFunc(t.checkpoints, func(c store.Checkpoint) bool {
			return c.Fold.Version == cut.Version && c.Hash == hash
		})
		if t.head.ActiveRun != "" || t.head.FirstVersion >= cut.Version || t.head.PrunedRuns >= cut.Run || !laid {
			return store.ErrConflict
		}
		t.head.FirstVersion, t.head.FirstHash, t.head.FirstAt = cut.Version, hash, cut.CommittedAt
		t.head.PrunedRuns, t.unswept = cut.Run, true
		return nil
	})
}

// Unswept implements store.Store.
func (m *Memory) Unswept(_ context.Context, limit int) (keys []store.Key, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, t := range m.threads {
		if t.unswept && len(keys) < limit {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// Sweep implements store.Store: it removes everything at once.
func (m *Memory) Sweep(_ context.Context, key store.Key, _ int) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.threads[key]
	if t == nil {
		return false, nil
	}
	first := t.head.FirstVersion
	t.segments = slices.DeleteFunc(t.segments, func(s store.Segment) bool { return s.FirstVersion <= first })
	t.warnings = slices.DeleteFunc(t.warnings, func(w store.Warning) bool { return w.Version <= first })
	t.runs = slices.DeleteFunc(t.runs, func(r store.Run) bool { return r.Ordinal <= t.head.PrunedRuns })
	t.checkpoints = slices.DeleteFunc(t.checkpoints, func(c store.Checkpoint) bool { return c.Fold.Version < first })
	t.unswept = false
	return false, nil
}
