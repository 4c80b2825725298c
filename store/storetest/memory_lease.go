package storetest

import (
	"context"
	"slices"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
)

// Since implements store.Store.
func (m *Memory) Since(ctx context.Context, key store.Key, version uint64, maxBytes int) (*store.Loaded, error) {
	var loaded *store.Loaded
	err := m.read(key, func(t *thread) error {
		loaded = &store.Loaded{Head: t.headAt(m.now()), Fold: agui.Fold{Version: t.fold.Version}}
		if n := len(t.runs); n > 0 {
			last := t.runs[n-1]
			loaded.LastRun = &last
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	loaded.Tail, err = m.Log(ctx, key, version+1, maxBytes)
	return loaded, err
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
