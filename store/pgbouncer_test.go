package store_test

import (
	"testing"

	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// The whole suite passes through a real PgBouncer in transaction mode.
func TestPostgresBehindPgBouncer(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a while")
	}
	t.Parallel()
	storetest.Run(t, func(t *testing.T) store.Store {
		db, err := store.Open(t.Context(), store.Options{URL: storetest.Pooler(t, storetest.Database(t)), MaxConns: 8})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(db.Close)
		return db
	})
}
