package storetest

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
)

// A commit that keeps the lease leaves its end where it was, however little is left, and also when it has passed; the next
// that does not renews it.
func testKeepLease(t *testing.T, s store.Store) {
	w := newWriter("acme", "t")
	must(t, s, w.create())
	startBriefly(t, s, w, "r1")
	end := ok[store.Head](t)(s.Head(t.Context(), w.key)).LeaseExpiresAt
	keep := func(c *store.Commit) store.Result {
		c.KeepLease = true
		return must(t, s, c)[0]
	}
	if r := keep(w.commit(`{}`)); !r.LeaseExpiresAt.Equal(end) {
		t.Errorf("the lease ends at %v, and ended at %v", r.LeaseExpiresAt, end)
	}
	warned := w.commit(`{}`)
	warned.Warnings = []store.Warning{{Version: w.version, Warning: agui.Warning{Code: "C"}}}
	if r := keep(warned); !r.LeaseExpiresAt.Equal(end) { // a commit of more than segments
		t.Errorf("with a warning the lease ends at %v, and ended at %v", r.LeaseExpiresAt, end)
	}
	if head := ok[store.Head](t)(s.Head(t.Context(), w.key)); !head.LeaseExpired || head.ActiveRun != "r1" {
		t.Errorf("head %+v", head)
	}
	if r := must(t, s, w.commit(`{}`))[0]; !r.LeaseExpiresAt.After(end.Add(leaseTTL / 2)) {
		t.Errorf("the lease was not renewed: %v after %v", r.LeaseExpiresAt, end)
	}
	must(t, s, w.finish(`{}`))
	if r := keep(w.start("r2", `{}`)); r.LeaseExpiresAt.IsZero() {
		t.Error("a run that is started has no lease")
	}
	must(t, s, w.finish(`{}`))
	if r := keep(w.commit(`{}`)); !r.LeaseExpiresAt.IsZero() {
		t.Errorf("without a run there is a lease until %v", r.LeaseExpiresAt)
	}
}

// Who holds the head learns of all that others wrote before, and comes before all that they write afterwards.
func testCommitHeld(t *testing.T, s store.Store) {
	w := newWriter("acme", "t")
	must(t, s, w.create(`{"n":0}`))
	must(t, s, w.start("r1", `{}`))
	read := w.version
	large := strings.Repeat("x", 300_000)
	must(t, s, w.commit(`{"large":"`+large+`"}`), newWriter("acme", "other").create())
	must(t, s, w.commit(`1`, `2`))

	var news *store.Loaded
	late := w.commit(`"late"`) // as a writer would that has not heard of what comes before it
	*w = writer{tenant: w.tenant, id: w.id, key: w.key, version: w.version - 1, hash: w.hash, fence: w.fence, stream: w.stream, next: w.next - 1, active: w.active, runs: w.runs}
	result := s.CommitHeld(t.Context(), w.key, read, 1<<20, func(l *store.Loaded) (*store.Commit, error) {
		news = l
		w.hash = l.Head.Hash
		return w.commit(`"held"`), nil
	})
	if result.Err != nil || result.CommittedAt.IsZero() || result.LeaseExpiresAt.IsZero() {
		t.Fatalf("%+v", result)
	}
	if got := payloads(t, news.Tail); len(got) != 3 || got[0] != `{"large":"`+large+`"}` || got[2] != `2` {
		t.Errorf("%d entries had come", len(got))
	}
	if news.Head.Version != read+3 || news.LastRun == nil || news.LastRun.RunID != "r1" {
		t.Errorf("head %+v, last run %+v", news.Head, news.LastRun)
	}
	if r := s.Commit(t.Context(), []*store.Commit{late})[0]; !errors.Is(r.Err, store.ErrConflict) {
		t.Errorf("a commit that does not know of it: %v", r.Err)
	}
	if got := payloads(t, logOf(t, s, w.key, 1, 1<<20)); got[len(got)-1] != `"held"` || len(got) != int(read)+4 {
		t.Errorf("the log ends with %.100s", got[len(got)-1])
	}
}

func testCommitHeldRefused(t *testing.T, s store.Store) {
	w := newWriter("acme", "t")
	must(t, s, w.create(`{}`))
	before := ok[store.Head](t)(s.Head(t.Context(), w.key))
	mine := errors.New("mine")
	for name, c := range map[string]struct {
		key    store.Key
		change func(*store.Loaded) (*store.Commit, error)
		want   error
	}{
		"no thread":       {store.KeyOf("acme", "absent"), func(*store.Loaded) (*store.Commit, error) { panic("called") }, store.ErrNotFound},
		"an error":        {w.key, func(*store.Loaded) (*store.Commit, error) { return nil, mine }, mine},
		"another version": {w.key, func(*store.Loaded) (*store.Commit, error) { v := *w; v.version += 5; return v.commit(`1`), nil }, store.ErrConflict},
		"contradiction":   {w.key, func(*store.Loaded) (*store.Commit, error) { v := *w; c := v.commit(`1`); c.Version++; return c, nil }, store.ErrInvalid},
	} {
		if r := s.CommitHeld(t.Context(), c.key, 0, 1<<20, c.change); !errors.Is(r.Err, c.want) {
			t.Errorf("%s: %v, want %v", name, r.Err, c.want)
		}
	}
	if after := ok[store.Head](t)(s.Head(t.Context(), w.key)); after.Version != before.Version || after.Hash != before.Hash {
		t.Errorf("head %+v, and was %+v", after, before)
	}
}

// However much others write, who holds the head gets through each time, and nothing is lost.
func testCommitHeldAmongWriters(t *testing.T, s store.Store) {
	w := newWriter("acme", "t")
	must(t, s, w.create())
	append := func(payload string) func(*store.Loaded) (*store.Commit, error) {
		return func(l *store.Loaded) (*store.Commit, error) {
			v := *w
			v.version, v.hash = l.Head.Version, l.Head.Hash
			return v.commit(payload), nil
		}
	}
	const writers, commits = 4, 25
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range commits {
				r := s.CommitHeld(t.Context(), w.key, 0, 1, append(`1`))
				for errors.Is(r.Err, store.ErrLocked) { // a slow machine
					r = s.CommitHeld(t.Context(), w.key, 0, 1, append(`1`))
				}
				if r.Err != nil {
					t.Error(r.Err)
				}
			}
		})
	}
	all.Wait()
	if got := payloads(t, logOf(t, s, w.key, 1, 1<<20)); len(got) != writers*commits {
		t.Errorf("%d entries, want %d", len(got), writers*commits)
	}
	if head := ok[store.Head](t)(s.Head(t.Context(), w.key)); head.Version != writers*commits || time.Since(head.CreatedAt) < 0 {
		t.Errorf("head %+v", head)
	}
}
