package store_test

import (
	"testing"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// A change of the schema makes the prepared statements of a session useless; a held commit is then made by new ones, and
// asks its caller once.
func TestHeldCommitAfterAChangeOfTheSchema(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	db, admin := open(t, store.Options{URL: url, MaxConns: 1}), connect(t, url)
	key := store.KeyOf("acme", "t")
	commit(t, db, []*store.Commit{{Key: key, Create: &store.NewThread{Tenant: "acme", ThreadID: "t"}}})
	calls := 0
	held := func() store.Result {
		return db.CommitHeld(t.Context(), key, 0, 1<<20, func(l *store.Loaded) (*store.Commit, error) {
			calls++
			v := l.Head.Version + 1
			return &store.Commit{
				Key: key, ExpectVersion: l.Head.Version, Version: v, Hash: l.Head.Hash, Fold: &agui.Changes{Version: v},
				Segments: []store.Segment{{FirstVersion: v, LastVersion: v, Entries: entry()}},
			}, nil
		})
	}
	for range 2 {
		if r := held(); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	if _, err := admin.Exec(t.Context(), `ALTER TABLE runs ALTER COLUMN codec TYPE integer`); err != nil {
		t.Fatal(err)
	}
	if r := held(); r.Err != nil || calls != 3 {
		t.Errorf("%v, after %d calls for 3 commits", r.Err, calls)
	}
	if head, err := db.Head(t.Context(), key); err != nil || head.Version != 3 {
		t.Errorf("version %d, %v", head.Version, err)
	}
}
