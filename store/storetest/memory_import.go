package storetest

import (
	"bytes"
	"context"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
)

// Import implements store.Store.
func (m *Memory) Import(_ context.Context, head store.Head, replaceDeleted bool, feed func(store.Importer) error) error {
	if err := m.conflict(head.Key, replaceDeleted); err != nil {
		return err
	}
	t := &thread{head: head}
	t.head.Metadata = cloneMetadata(head.Metadata)
	if err := feed(memoryImport{t}); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.refuse(head.Key, replaceDeleted); err != nil {
		return err
	}
	if head.ActiveRun != "" {
		t.head.LeaseExpiresAt = m.now().Add(head.LeaseTTL)
	}
	m.threads[head.Key] = t
	delete(m.deleted, head.Key)
	return nil
}

func (m *Memory) conflict(key store.Key, replaceDeleted bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.refuse(key, replaceDeleted)
}

// refuse says why a thread cannot be imported. The lock must be held.
func (m *Memory) refuse(key store.Key, replaceDeleted bool) error {
	if m.threads[key] != nil {
		return store.ErrConflict
	}
	if at, ok := m.deleted[key]; ok && !replaceDeleted {
		return &store.DeletedError{DeletedAt: at}
	}
	return nil
}

// memoryImport takes the parts of a thread.
type memoryImport struct{ *thread }

func (i memoryImport) Cut(c store.Checkpoint) error {
	i.putCut(c)
	return nil
}

func (i memoryImport) Segment(s *store.Segment) error {
	kept := *s
	kept.Entries = bytes.Clone(s.Entries)
	i.segments = append(i.segments, kept)
	return nil
}

func (i memoryImport) Run(r *store.Run) error {
	i.runs = append(i.runs, *r)
	return nil
}

func (i memoryImport) Warning(w *store.Warning) error {
	kept := *w
	kept.Removed = bytes.Clone(store.CutRemoved(w.Removed))
	i.warnings = append(i.warnings, kept)
	return nil
}

func (i memoryImport) Fold(c *agui.Changes) error {
	i.writeFold(c)
	return nil
}
