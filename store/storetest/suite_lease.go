package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
)

// startBriefly starts a run with a lease that ends at once, and waits for that.
func startBriefly(t *testing.T, s store.Store, w *writer, run string) {
	t.Helper()
	c := w.start(run, `{}`)
	c.LeaseTTL = time.Millisecond
	must(t, s, c)
	for !ok[store.Head](t)(s.Head(t.Context(), w.key)).LeaseExpired {
		time.Sleep(time.Millisecond)
	}
}

// A commit that expects an expired lease is written if, and only if, nobody has renewed the lease, even when neither the
// version nor the fence tells that somebody has.
func testExpectExpired(t *testing.T, s store.Store) {
	w := newWriter("acme", "t")
	must(t, s, w.create())
	truncate := func() store.Result {
		before := *w
		c := w.finish(`{}`)
		c.ExpectExpired = true
		r := s.Commit(t.Context(), []*store.Commit{c})[0]
		if r.Err != nil {
			*w = before
		}
		return r
	}
	startBriefly(t, s, w, "r1")
	renewal := w.commit()
	must(t, s, renewal)
	if r := truncate(); !errors.Is(r.Err, store.ErrConflict) {
		t.Errorf("the lease was renewed: %v, want a conflict", r.Err)
	}
	must(t, s, w.finish(`{}`))
	startBriefly(t, s, w, "r2")
	if r := truncate(); r.Err != nil {
		t.Errorf("the lease has ended: %v", r.Err)
	}
	c := w.commit(`{}`)
	c.ExpectExpired = true
	if r := s.Commit(t.Context(), []*store.Commit{c})[0]; !errors.Is(r.Err, store.ErrConflict) {
		t.Errorf("there is no lease: %v, want a conflict", r.Err)
	}
}

func testExpired(t *testing.T, s store.Store) {
	expired := func(after store.ExpiredLease, limit int) []store.ExpiredLease {
		t.Helper()
		return ok[[]store.ExpiredLease](t)(s.Expired(t.Context(), after, limit))
	}
	if list := expired(store.ExpiredLease{}, 10); len(list) > 0 {
		t.Errorf("an empty store has %v", list)
	}
	idle, active := newWriter("acme", "idle"), newWriter("acme", "active")
	must(t, s, idle.create(), active.create())
	must(t, s, active.start("r1", `{}`))
	var writers []*writer
	var want []string
	for i := range 5 {
		w := newWriter("acme", fmt.Sprint("t", i))
		must(t, s, w.create())
		startBriefly(t, s, w, "r1")
		writers, want = append(writers, w), append(want, w.id)
	}
	var got []string
	for after := (store.ExpiredLease{}); ; {
		page := expired(after, 2)
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			if e.Key != store.KeyOf("acme", e.ThreadID) || !e.ExpiresAt.After(after.ExpiresAt) {
				t.Errorf("%+v after %+v", e, after)
			}
			got, after = append(got, e.ThreadID), e
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("expired %q, want %q", got, want)
	}
	must(t, s, writers[0].finish(`{}`))
	must(t, s, writers[1].commit(`{}`)) // renews the lease
	if list := expired(store.ExpiredLease{}, 10); len(list) != 3 || list[0].ThreadID != "t2" {
		t.Errorf("expired %v, want t2, t3 and t4", list)
	}
}

func testSince(t *testing.T, s store.Store) {
	w := newWriter("acme", "t")
	if _, err := s.Since(t.Context(), w.key, 0, 1); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("no thread: %v", err)
	}
	must(t, s, w.create(`"created"`))
	since := func(version uint64, maxBytes int) *store.Loaded {
		t.Helper()
		return ok[*store.Loaded](t)(s.Since(t.Context(), w.key, version, maxBytes))
	}
	if got := since(0, 1<<20); got.LastRun != nil || got.Fold.Version != 0 || !slices.Equal(payloads(t, got.Tail), []string{`"created"`}) {
		t.Errorf("a new thread: %+v", got)
	}
	must(t, s, w.start("r1", `"input"`))
	folded := w.commit(`"a"`, `"b"`)
	folded.Fold = &agui.Changes{Version: folded.Version, Tracking: []byte("x"), State: agui.StateChange{Replaced: agui.Value(`{}`)}}
	must(t, s, folded)
	must(t, s, w.commit(`"c"`))
	loaded := load(t, s, w.key)
	for from, want := range [][]string{{`"created"`, `"input"`, `"a"`, `"b"`, `"c"`}, {`"input"`, `"a"`, `"b"`, `"c"`}, {`"a"`, `"b"`, `"c"`},
		{`"a"`, `"b"`, `"c"`}, {`"c"`}, nil, nil} {
		got := since(uint64(from), 1<<20)
		if !slices.Equal(payloads(t, got.Tail), want) {
			t.Errorf("since %d: %q, want %q", from, payloads(t, got.Tail), want)
		}
		equal(t, got.LastRun, loaded.LastRun)
		equal(t, got.Head, loaded.Head)
		equal(t, got.Fold, agui.Fold{Version: 4})
	}
	if got := payloads(t, since(0, 1).Tail); !slices.Equal(got, []string{`"created"`}) {
		t.Errorf("at most one byte: %q", got)
	}
}

func testFence(t *testing.T, s store.Store) {
	w := newWriter("acme", "t")
	must(t, s, w.create())
	must(t, s, w.start("r1", `{}`))
	before := ok[store.Head](t)(s.Head(t.Context(), w.key))
	for _, run := range []string{"r2", "r1"} {
		if err := s.Fence(t.Context(), w.key, run); err != nil {
			t.Fatal(err)
		}
		if err := s.Fence(t.Context(), store.KeyOf("acme", "nobody"), run); err != nil {
			t.Fatal(err)
		}
	}
	want := before
	want.Fence++
	equal(t, ok[store.Head](t)(s.Head(t.Context(), w.key)), want)
	stale := *w
	if r := s.Commit(t.Context(), []*store.Commit{stale.commit(`{}`)})[0]; !errors.Is(r.Err, store.ErrConflict) {
		t.Errorf("with the fence of before: %v, want a conflict", r.Err)
	}
	w.fence++
	must(t, s, w.finish(`{}`))
	if err := s.Fence(t.Context(), w.key, "r1"); err != nil || ok[store.Head](t)(s.Head(t.Context(), w.key)).Fence != w.fence {
		t.Errorf("a run that is over was fenced off: %v", err)
	}
}
