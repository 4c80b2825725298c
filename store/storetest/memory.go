package storetest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/agui/jsondoc"
	"github.com/threadsvc/threadsvc/store"
)

// Memory is a Store that forgets everything when the process ends: the model that others are compared with, and a
// quick stand-in where tests need no database. Stored sizes are those of the plain entries.
type Memory struct {
	mu      sync.Mutex
	threads map[store.Key]*thread
	deleted map[store.Key]time.Time
	last    time.Time

	retention retention
}

var _ store.Store = (*Memory)(nil)

// thread is all that is kept of one. The slices are in order.
type thread struct {
	head     store.Head
	fold     agui.Fold // without its state and its input
	base     agui.Value
	patches  []agui.Value
	segments []store.Segment
	runs     []store.Run
	warnings []store.Warning

	checkpoints []store.Checkpoint

	// Whether there is garbage, and when it was looked for: at how many runs, and when it is to be looked next.
	unswept, seen bool
	seenRuns      int64
	due           time.Time
}

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{threads: map[store.Key]*thread{}, deleted: map[store.Key]time.Time{}}
}

// Ping implements store.Store: it always succeeds.
func (m *Memory) Ping(ctx context.Context) error { return ctx.Err() }

// Close implements store.Store: it does nothing.
func (m *Memory) Close() {}

// Unmerged implements store.Store: nothing is ever to be merged.
func (m *Memory) Unmerged(ctx context.Context, _ int) ([]store.RunPlace, error) {
	return nil, ctx.Err()
}

// Merge implements store.Store: it does nothing.
func (m *Memory) Merge(ctx context.Context, _ store.RunPlace) (int64, error) { return 0, ctx.Err() }

// Now implements store.Store.
func (m *Memory) Now(ctx context.Context) (time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now(), ctx.Err()
}

// now is a clock as a database's: in microseconds, and never twice the same.
func (m *Memory) now() time.Time {
	now := time.Now().UTC().Truncate(time.Microsecond)
	if !now.After(m.last) {
		now = m.last.Add(time.Microsecond)
	}
	m.last = now
	return now
}

func (t *thread) headAt(now time.Time) store.Head {
	h := t.head
	h.LeaseExpired = h.ActiveRun != "" && h.LeaseExpiresAt.Before(now)
	h.Metadata = cloneMetadata(h.Metadata)
	return h
}

// read runs f with a thread, locked.
func (m *Memory) read(key store.Key, f func(*thread) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.threads[key]
	if t == nil {
		return store.ErrNotFound
	}
	return f(t)
}

// list is read for lists, which are empty if there is no thread.
func list[T any](m *Memory, key store.Key, f func(*thread) []T) ([]T, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.threads[key]; t != nil {
		return slices.Clone(f(t)), nil
	}
	return nil, nil
}

// Head implements store.Store.
func (m *Memory) Head(_ context.Context, key store.Key) (head store.Head, err error) {
	err = m.read(key, func(t *thread) error {
		head = t.headAt(m.now())
		return nil
	})
	return head, err
}

// Positions implements store.Store.
func (m *Memory) Positions(ctx context.Context, keys []store.Key) (map[store.Key]store.Position, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	positions := map[store.Key]store.Position{}
	for _, key := range keys {
		if t := m.threads[key]; t != nil {
			positions[key] = store.Position{Version: t.head.Version, CreatedAt: t.head.CreatedAt}
		}
	}
	return positions, ctx.Err()
}

// Load implements store.Store.
func (m *Memory) Load(_ context.Context, key store.Key) (loaded *store.Loaded, err error) {
	err = m.read(key, func(t *thread) (err error) {
		loaded = &store.Loaded{Head: t.headAt(m.now()), Fold: t.fold}
		loaded.Fold.Messages = slices.Clone(t.fold.Messages)
		for _, s := range t.segments {
			if s.FirstVersion > t.fold.Version {
				loaded.Tail = append(loaded.Tail, s)
			}
		}
		if n := len(t.runs); n > 0 {
			last := t.runs[n-1]
			loaded.LastRun = &last
			loaded.Fold.Input = t.input(&last)
		}
		loaded.Fold.State, err = t.state()
		return err
	})
	return loaded, err
}

// Folded implements store.Store.
func (m *Memory) Folded(_ context.Context, key store.Key, without ...agui.Role) (folded *store.Folded, err error) {
	err = m.read(key, func(t *thread) (err error) {
		folded = &store.Folded{Version: t.head.Version, Hash: t.head.Hash, Fold: agui.Fold{Version: t.fold.Version}}
		if !folded.Current() {
			return nil
		}
		folded.Fold = t.fold
		folded.Fold.Messages = slices.DeleteFunc(slices.Clone(t.fold.Messages), func(m agui.StoredMessage) bool {
			return slices.Contains(without, m.Role)
		})
		folded.Fold.State, err = t.state()
		return err
	})
	return folded, err
}

func (t *thread) state() (agui.Value, error) {
	if len(t.patches) == 0 {
		return t.base, nil
	}
	base := t.base
	if base == nil {
		base = agui.Value("{}")
	}
	doc, err := jsondoc.Parse(base, jsondoc.Limits{})
	for _, text := range t.patches {
		var patch *jsondoc.Patch
		if err == nil {
			patch, _, err = jsondoc.ParseKnownOps(text, jsondoc.Limits{})
		}
		if err == nil {
			err = doc.Apply(patch)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrCorrupt, err)
	}
	return doc.AppendTo(nil), nil
}

// input is the payload of an open run's first entry, if the fold has it and it is an input.
func (t *thread) input(run *store.Run) agui.Value {
	if run.Status != store.RunActive || run.InputHash == ([32]byte{}) || run.FirstVersion > t.fold.Version {
		return nil
	}
	for _, s := range t.segments {
		if run.FirstVersion < s.FirstVersion || run.FirstVersion > s.LastVersion {
			continue
		}
		entries, _ := agui.DecodeEntries(s.Entries)
		at := run.FirstVersion - s.FirstVersion
		if at < uint64(len(entries)) && entries[at].Kind == agui.KindInput {
			return entries[at].Payload
		}
	}
	return nil
}

// Threads implements store.Store.
func (m *Memory) Threads(_ context.Context, q store.ThreadQuery) ([]store.Head, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	var heads []store.Head
	for _, t := range m.threads {
		place := comparePlaces(t.head.LastRunAt, t.head.Key, q.Before, q.BeforeKey)
		if t.head.Tenant == q.Tenant && hasAll(t.head.Metadata.Labels, q.Labels) && (q.Before.IsZero() || place < 0) {
			heads = append(heads, t.headAt(now))
		}
	}
	slices.SortFunc(heads, func(a, b store.Head) int { return comparePlaces(b.LastRunAt, b.Key, a.LastRunAt, a.Key) })
	return heads[:min(len(heads), q.Limit)], nil
}

func comparePlaces(at time.Time, key store.Key, otherAt time.Time, otherKey store.Key) int {
	return cmp.Or(at.Compare(otherAt), bytes.Compare(key[:], otherKey[:]))
}

func hasAll(labels, wanted []string) bool {
	for _, w := range wanted {
		if !slices.Contains(labels, w) {
			return false
		}
	}
	return true
}

// Run implements store.Store.
func (m *Memory) Run(_ context.Context, key store.Key, runID string) (run store.Run, err error) {
	err = m.read(key, func(t *thread) error {
		i := t.runAt(runID)
		if i < 0 {
			return store.ErrNotFound
		}
		run = t.runs[i]
		return nil
	})
	return run, err
}

func (t *thread) runAt(runID string) int {
	return slices.IndexFunc(t.runs, func(r store.Run) bool { return r.RunID == runID })
}

// Runs implements store.Store.
func (m *Memory) Runs(_ context.Context, key store.Key, before int64, limit int) ([]store.Run, error) {
	return list(m, key, func(t *thread) (runs []store.Run) {
		for _, r := range slices.Backward(t.runs) {
			if (before == 0 || r.Ordinal < before) && len(runs) < limit {
				runs = append(runs, r)
			}
		}
		return runs
	})
}

// Warnings implements store.Store.
func (m *Memory) Warnings(_ context.Context, key store.Key, after store.WarningPlace, limit int) ([]store.Warning, error) {
	return list(m, key, func(t *thread) (warnings []store.Warning) {
		for _, w := range t.warnings {
			if compareWarnings(w.Version, w.Ordinal, after.Version, after.Ordinal) > 0 && len(warnings) < limit {
				warnings = append(warnings, w)
			}
		}
		return warnings
	})
}

func compareWarnings(version uint64, ordinal int32, otherVersion uint64, otherOrdinal int32) int {
	return cmp.Or(cmp.Compare(version, otherVersion), cmp.Compare(ordinal, otherOrdinal))
}

// Log implements store.Store.
func (m *Memory) Log(_ context.Context, key store.Key, from uint64, maxBytes int) ([]store.Segment, error) {
	var pruned error
	segments, err := list(m, key, func(t *thread) (segments []store.Segment) {
		size := 0
		for _, s := range t.segments {
			if s.LastVersion >= from && (len(segments) == 0 || size <= maxBytes) {
				segments, size = append(segments, s), size+len(s.Entries)
			}
		}
		if first := t.head.FirstVersion; first > 0 && from <= first && (len(segments) == 0 || segments[0].FirstVersion > from) {
			pruned = &store.PrunedError{FirstVersion: t.head.FirstVersion, Version: from}
		}
		return segments
	})
	return segments, errors.Join(err, pruned)
}

// Stream implements store.Store.
func (m *Memory) Stream(_ context.Context, key store.Key, streamID string, from, to uint64) ([]store.Segment, error) {
	return list(m, key, func(t *thread) (segments []store.Segment) {
		for _, s := range t.segments {
			if s.StreamID == streamID && max(from, s.FirstOffset) < min(to, s.NextOffset) {
				segments = append(segments, s)
			}
		}
		return segments
	})
}
