package storetest

import (
	"context"
	"slices"
	"time"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
)

// Since implements store.Store.
func (m *Memory) Since(ctx context.Context, key store.Key, version uint64, maxBytes int) (loaded *store.Loaded, err error) {
	err = m.read(key, func(t *thread) (err error) {
		loaded, err = t.since(m.now(), version, maxBytes)
		return err
	})
	return loaded, err
}

func (t *thread) since(now time.Time, version uint64, maxBytes int) (*store.Loaded, error) {
	loaded := &store.Loaded{Head: t.headAt(now), Fold: agui.Fold{Version: t.fold.Version}}
	if n := len(t.runs); n > 0 {
		last := t.runs[n-1]
		loaded.LastRun = &last
	}
	var err error
	loaded.Tail, err = t.log(version+1, maxBytes)
	return loaded, err
}

// CommitHeld implements store.Store.
func (m *Memory) CommitHeld(_ context.Context, key store.Key, version uint64, maxBytes int, change func(*store.Loaded) (*store.Commit, error)) store.Result {
	var result store.Result
	err := m.read(key, func(t *thread) error {
		news, err := t.since(m.now(), version, maxBytes)
		if err != nil {
			return err
		}
		commit, err := change(news)
		if err != nil {
			return err
		}
		result = m.commit(commit, m.now())
		return nil
	})
	if err != nil {
		return store.Result{Err: err}
	}
	return result
}

// Expired implements store.Store.
func (m *Memory) Expired(_ context.Context, after store.ExpiredLease, limit int) ([]store.ExpiredLease, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	var expired []store.ExpiredLease
	for key, t := range m.threads {
		head := t.headAt(now)
		if head.LeaseExpired && comparePlaces(head.LeaseExpiresAt, key, after.ExpiresAt, after.Key) > 0 {
			expired = append(expired, store.ExpiredLease{ExpiresAt: head.LeaseExpiresAt, Key: key, ThreadID: head.ThreadID})
		}
	}
	slices.SortFunc(expired, func(a, b store.ExpiredLease) int {
		return comparePlaces(a.ExpiresAt, a.Key, b.ExpiresAt, b.Key)
	})
	return expired[:min(len(expired), limit)], nil
}

// Fence implements store.Store.
func (m *Memory) Fence(_ context.Context, key store.Key, runID string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.threads[key]; t != nil && t.head.ActiveRun == runID {
		t.head.Fence++
	}
	return nil
}
