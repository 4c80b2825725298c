package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
)

func testAppend(t *testing.T, s store.Store) {
	w := newWriter("acme", "t")
	must(t, s, w.create(`{"state":{}}`))
	must(t, s, w.commit(`{"a":1}`, `{"b":2}`))
	result := must(t, s, w.commit(`{"c":3}`))[0]

	segments := logOf(t, s, w.key, 0, 1<<20)
	want := []string{`{"state":{}}`, `{"a":1}`, `{"b":2}`, `{"c":3}`}
	if got := payloads(t, segments); !slices.Equal(got, want) {
		t.Errorf("log is %q, want %q", got, want)
	}
	if last := segments[len(segments)-1]; !last.CommittedAt.Equal(result.CommittedAt) || result.CommittedAt.IsZero() {
		t.Errorf("segment is of %v, its commit of %v", last.CommittedAt, result.CommittedAt)
	}
	loaded := load(t, s, w.key)
	if got := payloads(t, loaded.Tail); !slices.Equal(got, want) {
		t.Errorf("tail is %q, want %q", got, want)
	}
	if loaded.Fold.Version != 0 || loaded.Fold.State != nil || len(loaded.Fold.Messages) != 0 || loaded.LastRun != nil {
		t.Errorf("a fold or run that nobody wrote: %+v", loaded)
	}
}

func testHead(t *testing.T, s store.Store) {
	w := newWriter("acme", "t")
	created := must(t, s, w.create())[0]
	started := must(t, s, w.start("r1", `{}`))[0]
	must(t, s, w.commit(`{}`))
	got := ok[store.Head](t)(s.Head(t.Context(), w.key))
	want := store.Head{
		Key: w.key, Tenant: "acme", ThreadID: "t", Version: 2, Hash: w.hash, Fence: 1, StreamID: "r1", NextOffset: 1,
		ActiveRun: "r1", LeaseTTL: leaseTTL, LeaseExpiresAt: started.LeaseExpiresAt, Runs: 1,
		Metadata: store.Metadata{Labels: []string{}}, CreatedAt: created.CommittedAt, LastRunAt: started.CommittedAt,
	}
	equal(t, got, want)
	equal(t, load(t, s, w.key).Head, want)
}

func testNotFound(t *testing.T, s store.Store) {
	w := newWriter("acme", "none")
	_, headErr := s.Head(t.Context(), w.key)
	_, loadErr := s.Load(t.Context(), w.key)
	_, runErr := s.Run(t.Context(), w.key, "r")
	_, deleteErr := s.Delete(t.Context(), w.key)
	_, metadataErr := s.UpdateMetadata(t.Context(), w.key, func(m store.Metadata) (store.Metadata, error) { return m, nil })
	for i, err := range []error{headErr, loadErr, runErr, deleteErr, metadataErr} {
		if !errors.Is(err, store.ErrNotFound) {
			t.Errorf("call %d: %v, want ErrNotFound", i, err)
		}
	}
	runs := ok[[]store.Run](t)(s.Runs(t.Context(), w.key, 0, 10))
	warnings := ok[[]store.Warning](t)(s.Warnings(t.Context(), w.key, store.WarningPlace{}, 10))
	segments := ok[[]store.Segment](t)(s.Stream(t.Context(), w.key, "r", 0, 10))
	if n := len(runs) + len(warnings) + len(segments) + len(logOf(t, s, w.key, 0, 1)); n != 0 {
		t.Errorf("%d rows of a thread that is not there", n)
	}
	if r := s.Commit(t.Context(), []*store.Commit{w.commit(`{}`)}); !errors.Is(r[0].Err, store.ErrConflict) {
		t.Errorf("append to no thread: %v, want ErrConflict", r[0].Err)
	}
}

func testConflicts(t *testing.T, s store.Store) {
	w := newWriter("acme", "t")
	must(t, s, w.create(`{}`), newWriter("acme", "other").create())
	stale := *w
	must(t, s, w.start("r1", `{}`))
	staleFence := *w
	staleFence.fence = 0

	again := newWriter("acme", "t")
	old, behind := stale, staleFence
	for name, c := range map[string]*store.Commit{
		"version":         old.commit(`{}`),
		"fence":           behind.commit(`{}`),
		"start":           stale.start("r2", `{}`),
		"create existing": again.create(),
	} {
		if r := s.Commit(t.Context(), []*store.Commit{c}); !errors.Is(r[0].Err, store.ErrConflict) {
			t.Errorf("%s: %v, want ErrConflict", name, r[0].Err)
		}
	}
	if got := len(logOf(t, s, w.key, 0, 1<<20)); got != 2 {
		t.Errorf("%d segments, want 2", got)
	}
	if runs := ok[[]store.Run](t)(s.Runs(t.Context(), w.key, 0, 10)); len(runs) != 1 {
		t.Errorf("%d runs, want 1", len(runs))
	}
}

// One member fails, whatever its kind and place; the others are written.
func testConflictIsolation(t *testing.T, s store.Store) {
	for _, kind := range []string{"plain", "run", "create"} {
		var group []*store.Commit
		for i := range 5 {
			w := newWriter("acme", fmt.Sprint(kind, i))
			if kind == "create" && i != 2 {
				group = append(group, w.create(`{}`))
				continue
			}
			must(t, s, w.create())
			switch {
			case i == 2:
				w.version = 7
				group = append(group, w.commit(`{}`))
			case kind == "run":
				group = append(group, w.start("r", `{}`))
			default:
				group = append(group, w.commit(`{}`))
			}
		}
		for i, r := range s.Commit(t.Context(), group) {
			segments := logOf(t, s, group[i].Key, 0, 1)
			if i == 2 && (!errors.Is(r.Err, store.ErrConflict) || len(segments) != 0) {
				t.Errorf("%s: the bad member has %v and %d segments", kind, r.Err, len(segments))
			}
			if i != 2 && (r.Err != nil || len(segments) != 1) {
				t.Errorf("%s: member %d has %v and %d segments", kind, i, r.Err, len(segments))
			}
		}
	}
}

func testDuplicateRun(t *testing.T, s store.Store) {
	good, bad := newWriter("acme", "good"), newWriter("acme", "bad")
	must(t, s, good.create(), bad.create())
	must(t, s, bad.start("r1", `{}`), newWriter("acme", "third").create())
	must(t, s, bad.finish(`{}`))

	results := s.Commit(t.Context(), []*store.Commit{good.start("r1", `{}`), bad.start("r1", `{}`)})
	if results[0].Err != nil {
		t.Errorf("the other thread's run of that name: %v", results[0].Err)
	}
	if !errors.Is(results[1].Err, store.ErrDuplicate) {
		t.Errorf("the second run of that name: %v, want ErrDuplicate", results[1].Err)
	}
	head := ok[store.Head](t)(s.Head(t.Context(), bad.key))
	if head.Version != 2 || head.Runs != 1 || head.ActiveRun != "" || len(logOf(t, s, bad.key, 0, 1)) != 2 {
		t.Errorf("the refused run left %+v", head)
	}
}

func testInvalid(t *testing.T, s store.Store) {
	w := newWriter("acme", "t")
	must(t, s, w.create(`{}`))
	gap, short, wrongFold, noRun := *w, *w, *w, *w
	commits := map[string]*store.Commit{
		"gap": gap.commit(`{}`), "short": short.commit(`{}`), "fold": wrongFold.commit(`{}`), "run": noRun.commit(`{}`),
	}
	commits["gap"].Segments[0].FirstVersion++
	commits["short"].Version++
	commits["fold"].Fold = &agui.Changes{Version: 1}
	commits["run"].Updated = []store.Run{{RunID: "nobody", Status: store.RunFinished}}
	for name, c := range commits {
		other := newWriter("acme", "with "+name)
		results := s.Commit(t.Context(), []*store.Commit{other.create(), c})
		if results[0].Err != nil || !errors.Is(results[1].Err, store.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid for the second", name, results)
		}
	}
	first, second := *w, *w
	results := s.Commit(t.Context(), []*store.Commit{first.commit(`{}`), second.commit(`{}`)})
	if results[0].Err != nil || !errors.Is(results[1].Err, store.ErrInvalid) {
		t.Errorf("two commits of one thread in a call: %v", results)
	}
}

func testConcurrentCreates(t *testing.T, s store.Store) {
	var made atomic.Int64
	parallel(24, func(i int) {
		c := newWriter("acme", "t").create(fmt.Sprint(i))
		switch r := s.Commit(t.Context(), []*store.Commit{c}); {
		case r[0].Err == nil:
			made.Add(1)
		case !errors.Is(r[0].Err, store.ErrConflict):
			t.Errorf("create: %v, want ErrConflict", r[0].Err)
		}
	})
	heads := ok[[]store.Head](t)(s.Threads(t.Context(), store.ThreadQuery{Tenant: "acme", Limit: 100}))
	if made.Load() != 1 || len(heads) != 1 || len(logOf(t, s, heads[0].Key, 0, 1)) != 1 {
		t.Errorf("%d creates succeeded and made %d threads", made.Load(), len(heads))
	}
}

// Writers that reload after a conflict lose no append, and the log has each once.
func testConcurrentAppends(t *testing.T, s store.Store) {
	const writers, appends = 8, 10
	must(t, s, newWriter("acme", "t").create())
	parallel(writers, func(i int) {
		for n := range appends {
			for {
				w := newWriter("acme", "t")
				head, err := s.Head(t.Context(), w.key)
				if err != nil {
					t.Error(err)
					return
				}
				w.version, w.hash, w.next = head.Version, head.Hash, head.NextOffset
				r := s.Commit(t.Context(), []*store.Commit{w.commit(fmt.Sprintf("%d.%d", i, n))})
				if r[0].Err == nil {
					break
				}
				if !errors.Is(r[0].Err, store.ErrConflict) {
					t.Error(r[0].Err)
					return
				}
			}
		}
	})
	got := payloads(t, logOf(t, s, store.KeyOf("acme", "t"), 0, 1<<20))
	slices.Sort(got)
	if n := len(slices.Compact(slices.Clone(got))); len(got) != writers*appends || n != len(got) {
		t.Errorf("%d entries, %d of them different, want %d", len(got), n, writers*appends)
	}
}

// Groups that name the same threads in opposite order must not wait for each other.
func testOppositeGroups(t *testing.T, s store.Store) {
	var creates []*store.Commit
	for i := range 16 {
		creates = append(creates, newWriter("acme", fmt.Sprint(i)).create())
	}
	must(t, s, creates...)
	var wins atomic.Int64
	parallel(4, func(i int) {
		for round := range 10 {
			group := make([]*store.Commit, 16)
			for j := range group {
				w := newWriter("acme", fmt.Sprint(j))
				w.version = uint64(round)
				group[j] = w.commit(`{}`)
			}
			if i%2 == 1 {
				slices.Reverse(group)
			}
			for _, r := range s.Commit(t.Context(), group) {
				if r.Err == nil {
					wins.Add(1)
				} else if !errors.Is(r.Err, store.ErrConflict) {
					t.Error(r.Err)
				}
			}
		}
	})
	var versions int64
	for _, h := range ok[[]store.Head](t)(s.Threads(t.Context(), store.ThreadQuery{Tenant: "acme", Limit: 100})) {
		versions += int64(h.Version)
	}
	if versions != wins.Load() {
		t.Errorf("%d commits succeeded, the heads count %d", wins.Load(), versions)
	}
}

func testLease(t *testing.T, s store.Store) {
	w := newWriter("acme", "t")
	must(t, s, w.create())
	if h := ok[store.Head](t)(s.Head(t.Context(), w.key)); h.LeaseExpired || !h.LeaseExpiresAt.IsZero() {
		t.Errorf("no run, but a lease: %+v", h)
	}
	granted := must(t, s, w.start("r1", `{}`))[0]
	if got := granted.LeaseExpiresAt.Sub(granted.CommittedAt); got != leaseTTL {
		t.Errorf("the lease lasts %v, want %v", got, leaseTTL)
	}
	kept := must(t, s, w.commit(`{}`))[0]
	if !kept.LeaseExpiresAt.Equal(granted.LeaseExpiresAt) {
		t.Error("the lease was rewritten although most of it is left")
	}
	longer := w.commit(`{}`)
	longer.LeaseTTL = 4 * leaseTTL
	renewed := must(t, s, longer)[0]
	if got := renewed.LeaseExpiresAt.Sub(renewed.CommittedAt); got != 4*leaseTTL {
		t.Errorf("a lease with less than half left was set to %v, want %v", got, 4*leaseTTL)
	}
	w.fence++
	c := w.commit(`{}`)
	c.ExpectFence--
	if r := must(t, s, c)[0]; r.LeaseExpiresAt.Sub(r.CommittedAt) != leaseTTL {
		t.Error("another fence did not renew the lease")
	}
	if r := must(t, s, w.finish(`{}`))[0]; !r.LeaseExpiresAt.IsZero() {
		t.Errorf("the run is over, but its lease lasts until %v", r.LeaseExpiresAt)
	}
	short := w.start("r2", `{}`)
	short.LeaseTTL = time.Millisecond
	must(t, s, short)
	for !ok[store.Head](t)(s.Head(t.Context(), w.key)).LeaseExpired {
		time.Sleep(time.Millisecond)
	}
}

func testEndedContext(t *testing.T, s store.Store) {
	w := newWriter("acme", "t")
	must(t, s, w.create())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := s.Commit(ctx, []*store.Commit{w.commit(`{}`)}); !errors.Is(r[0].Err, store.ErrUnavailable) {
		t.Errorf("commit with an ended context: %v, want ErrUnavailable", r[0].Err)
	}
	if h := ok[store.Head](t)(s.Head(t.Context(), w.key)); h.Version != 0 {
		t.Errorf("it was written: version %d", h.Version)
	}
}

func parallel(n int, f func(int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}
