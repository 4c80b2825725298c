package storetest

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/threadsvc/threadsvc/store"
)

// VersionAt implements store.Store.
func (m *Memory) VersionAt(_ context.Context, key store.Key, at time.Time) (version uint64, err error) {
	err = m.read(key, func(t *thread) error {
		for _, s := range t.segments {
			if !s.CommittedAt.After(at) {
				version = s.LastVersion
			}
		}
		if first := t.head.FirstVersion; first > 0 && at.Before(t.head.FirstAt) {
			version = 0
			return &store.PrunedError{FirstVersion: first}
		}
		version = max(version, t.head.FirstVersion)
		return nil
	})
	return version, err
}

// CheckpointAt implements store.Store.
func (m *Memory) CheckpointAt(_ context.Context, key store.Key, version uint64) (found store.Checkpoint, err error) {
	err = m.read(key, func(t *thread) error {
		for _, c := range t.checkpoints {
			if c.Fold.Version <= version {
				found = c
			}
		}
		if found.Fold.Version == 0 {
			return store.ErrNotFound
		}
		return nil
	})
	return found, err
}

// SinceCheckpoint implements store.Store.
func (m *Memory) SinceCheckpoint(_ context.Context, key store.Key, until uint64) (since store.LogSince, err error) {
	err = m.read(key, func(t *thread) error {
		if n := len(t.checkpoints); n > 0 {
			since.Version, since.Size = t.checkpoints[n-1].Fold.Version, t.checkpoints[n-1].Size
		}
		since.LogSize = t.logSize(since.Version, until)
		since.Grown = since.LogSize // it restates nothing
		since.Room = t.checkpointSize()+since.Size <= 2*t.logSize(0, until)
		return nil
	})
	return since, err
}

// logSize is the size of the segments after one version, up to another.
func (t *thread) logSize(after, until uint64) (size int64) {
	for _, s := range t.segments {
		if s.FirstVersion > after && s.LastVersion <= until {
			size += int64(len(s.Entries))
		}
	}
	return size
}

func (t *thread) checkpointSize() (size int64) {
	for _, c := range t.checkpoints {
		size += c.Size
	}
	return size
}

// PutCheckpoint implements store.Store.
func (m *Memory) PutCheckpoint(_ context.Context, key store.Key, c store.Checkpoint) (kept bool, err error) {
	err = m.read(key, func(t *thread) error {
		if n := len(t.checkpoints); n > 0 && t.checkpoints[n-1].Fold.Version >= c.Fold.Version {
			kept = true
			return nil
		}
		c.Size = int64(len(c.Fold.Append(nil)))
		if kept = t.checkpointSize()+c.Size <= 2*t.logSize(0, c.Fold.Version); kept {
			t.checkpoints = append(t.checkpoints, c)
		}
		return nil
	})
	return kept, err
}

// Evidence implements store.Store. The model keeps no versions of its state's parts, and so gives the state as a whole.
func (m *Memory) Evidence(_ context.Context, key store.Key) (e *store.Evidence, err error) {
	err = m.read(key, func(t *thread) (err error) {
		e = &store.Evidence{
			Head: t.headAt(m.now()), Folded: t.fold.Tracking != nil, FoldVersion: t.fold.Version, Tracking: t.fold.Tracking,
			Messages: slices.Clone(t.fold.Messages),
		}
		for _, c := range t.checkpoints {
			e.Checkpoints = append(e.Checkpoints, c.Fold.Version)
		}
		e.State, err = t.state()
		return err
	})
	return e, err
}

// Names implements store.Store.
func (m *Memory) Names(_ context.Context, after store.Key, limit int) (names []store.Name, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, t := range m.threads {
		if bytes.Compare(key[:], after[:]) > 0 {
			names = append(names, store.Name{Key: key, Tenant: t.head.Tenant, ThreadID: t.head.ThreadID})
		}
	}
	slices.SortFunc(names, func(a, b store.Name) int { return bytes.Compare(a.Key[:], b.Key[:]) })
	return names[:min(len(names), limit)], nil
}
