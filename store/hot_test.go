package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// Appends update the head in place, without an entry in any index, as long as the lease need not be written anew: the index
// of leases costs a run two updates, at its start and its end, and not one more for each append.
func TestAppendsUpdateTheHeadInPlace(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	db, err := store.Open(t.Context(), store.Options{URL: url, MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	const appends = 200
	key := store.KeyOf("acme", "t")
	commit := func(c store.Commit) {
		t.Helper()
		c.Key, c.Fence, c.ExpectFence, c.LeaseTTL = key, 1, 1, time.Hour
		if r := db.Commit(t.Context(), []*store.Commit{&c})[0]; r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	commit(store.Commit{Create: &store.NewThread{Tenant: "acme", ThreadID: "t"}})
	commit(store.Commit{ActiveRun: "r1", RunStarted: true})
	for i := range appends {
		commit(store.Commit{ActiveRun: "r1", NextOffset: uint64(i)})
	}
	commit(store.Commit{})
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	db.Close() // a connection hands in its statistics when it ends
	var updates, inPlace int64
	for updates < appends+2 {
		sql := `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'threads'`
		if err := conn.QueryRow(t.Context(), sql).Scan(&updates, &inPlace); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if msg := fmt.Sprintf("%d of %d updates were in place", inPlace, updates); inPlace < appends*95/100 {
		t.Error(msg) // one in many finds no room on its page
	} else {
		t.Log(msg)
	}
}
