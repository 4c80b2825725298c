package storetest

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/threadsvc/threadsvc/store"
)

func testDelete(t *testing.T, s store.Store) {
	w, other := newWriter("acme", "t"), newWriter("acme", "other")
	must(t, s, w.create(`{}`), other.create(`{}`))
	started := must(t, s, w.start("r1", `{}`), other.commit(`{}`))[0]
	before := ok[store.Head](t)(s.Head(t.Context(), w.key))
	gone := ok[store.Erasure](t)(s.Delete(t.Context(), w.key))
	equal(t, gone.Head, before)
	if gone.DeletedAt.Before(started.CommittedAt) || gone.DeletedAt.Location() != time.UTC {
		t.Errorf("deleted at %v, after %v", gone.DeletedAt, started.CommittedAt)
	}
	if gone.Rows["threads"] != 1 || gone.Rows["runs"] != 1 || gone.Rows["log_segments"] != 2 {
		t.Errorf("the receipt has %v", gone.Rows)
	}
	if r := s.Commit(t.Context(), []*store.Commit{w.commit(`{}`)}); !errors.Is(r[0].Err, store.ErrConflict) {
		t.Errorf("a late append: %v, want ErrConflict", r[0].Err)
	}
	if _, err := s.Delete(t.Context(), w.key); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("deleted twice: %v", err)
	}
	if n := len(logOf(t, s, w.key, 0, 1)); n != 0 {
		t.Errorf("%d segments are left", n)
	}
	if n := len(logOf(t, s, other.key, 0, 1)); n != 2 {
		t.Errorf("another thread has %d segments, want 2", n)
	}
}

// testTombstone: a thread that was deleted is only made again by explicit wish, which keeps none of the same group from
// being made.
func testTombstone(t *testing.T, s store.Store) {
	w, other := newWriter("acme", "t"), newWriter("acme", "other")
	must(t, s, w.create(`{}`))
	gone := ok[store.Erasure](t)(s.Delete(t.Context(), w.key))
	wantDeleted := func(err error) {
		t.Helper()
		if deleted, ok := errors.AsType[*store.DeletedError](err); !ok || !deleted.DeletedAt.Equal(gone.DeletedAt) || !errors.Is(err, store.ErrDeleted) {
			t.Errorf("%v, want that it was deleted at %v", err, gone.DeletedAt)
		}
	}
	results := s.Commit(t.Context(), []*store.Commit{newWriter("acme", "t").create(`{}`), other.create(`{}`)})
	wantDeleted(results[0].Err)
	if results[1].Err != nil {
		t.Errorf("another thread of the group: %v", results[1].Err)
	}
	wantDeleted(s.Import(t.Context(), store.Head{Key: w.key, Tenant: "acme", ThreadID: "t"}, false, func(store.Importer) error { return nil }))
	if _, err := s.Head(t.Context(), w.key); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the head of a thread that was refused: %v", err)
	}
	must(t, s, newWriter("acme", "t").recreate(`{}`))
	if got := load(t, s, w.key); got.Head.Version != 1 || got.LastRun != nil || len(got.Tail) != 1 {
		t.Errorf("the thread made anew is %+v", got)
	}
	for _, c := range []*store.Commit{newWriter("acme", "t").create(), newWriter("acme", "t").recreate()} {
		if r := s.Commit(t.Context(), []*store.Commit{c}); !errors.Is(r[0].Err, store.ErrConflict) {
			t.Errorf("made twice: %v", r[0].Err)
		}
	}
	gone = ok[store.Erasure](t)(s.Delete(t.Context(), w.key))
	wantDeleted(s.Commit(t.Context(), []*store.Commit{newWriter("acme", "t").create()})[0].Err)
}

// testCreateDuringDelete: a create that meets an erasure is refused, because the thread is there still or because it was
// deleted; it never makes the thread again.
func testCreateDuringDelete(t *testing.T, s store.Store) {
	for range 30 {
		must(t, s, newWriter("acme", "t").recreate(`{}`))
		var writers sync.WaitGroup
		for range 4 {
			writers.Go(func() {
				for {
					err := s.Commit(t.Context(), []*store.Commit{newWriter("acme", "t").create(`{}`)})[0].Err
					if errors.Is(err, store.ErrConflict) {
						continue
					}
					if !errors.Is(err, store.ErrDeleted) {
						t.Errorf("created during a deletion: %v", err)
					}
					return
				}
			})
		}
		_, err := s.Delete(t.Context(), store.KeyOf("acme", "t"))
		writers.Wait()
		if _, head := s.Head(t.Context(), store.KeyOf("acme", "t")); err != nil || !errors.Is(head, store.ErrNotFound) {
			t.Fatalf("deleted: %v; the head: %v", err, head)
		}
	}
}
