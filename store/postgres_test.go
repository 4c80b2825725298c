package store_test

import (
	"testing"

	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

func TestPostgres(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) store.Store { return storetest.Open(t) })
}

// Behind a pooler in transaction mode no prepared statement may be relied on.
func TestPostgresWithoutPreparedStatements(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) store.Store {
		url := storetest.Database(t) + "&default_query_exec_mode=exec"
		db, err := store.Open(t.Context(), store.Options{URL: url, MaxConns: 8})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(db.Close)
		return db
	})
}
