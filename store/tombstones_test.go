package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// A create or an import that has begun, and waits for an erasure to be committed, finds the tombstone all the same. One that
// replaces what is deleted goes on, and removes it.
func TestWriterThatWaitedForAnErasure(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		write func(ctx context.Context, db *store.Postgres) error
		want  error
	}{
		"create": {func(ctx context.Context, db *store.Postgres) error {
			c := base()[0]
			c.Create.ReplaceDeleted = false
			return db.Commit(ctx, []*store.Commit{c})[0].Err
		}, store.ErrDeleted},
		"create anew": {func(ctx context.Context, db *store.Postgres) error {
			return db.Commit(ctx, base())[0].Err
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := storetest.Database(t)
			db, admin, eraser := open(t, store.Options{URL: url}), connect(t, url), connect(t, url)
			commit(t, db, base())
			erase := begin(t, eraser)
			for _, table := range tables(t, admin) {
				if _, err := erase.Exec(t.Context(), `DELETE FROM `+table); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := erase.Exec(t.Context(), `INSERT INTO tombstones (thread_key, version, log_hash) VALUES ($1, 1, sha256(''))`,
				[16]byte(store.KeyOf("acme", "old"))); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- test.write(t.Context(), db) }()
			waitUntilBlocked(t, admin)
			if err := erase.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-done; !errors.Is(err, test.want) {
				t.Errorf("%v, want %v", err, test.want)
			}
			var threads, tombstones, segments int
			row := admin.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM threads), (SELECT count(*) FROM tombstones), (SELECT count(*) FROM log_segments)`)
			if err := row.Scan(&threads, &tombstones, &segments); err != nil || threads+tombstones != 1 || threads != segments || (tombstones == 1) != (test.want != nil) {
				t.Errorf("%d threads, %d tombstones, %d segments, %v", threads, tombstones, segments, err)
			}
		})
	}
}

// An import during which a thread of the same name is made and erased is refused, as a whole.
func TestImportDuringAnErasure(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	db, admin := open(t, store.Options{URL: url}), connect(t, url)
	key := store.KeyOf("acme", "old")
	err := db.Import(t.Context(), store.Head{Key: key, Tenant: "acme", ThreadID: "old", Version: 1}, false, func(to store.Importer) error {
		commit(t, db, base())
		if _, err := db.Delete(t.Context(), key); err != nil {
			return err
		}
		return to.Segment(&store.Segment{FirstVersion: 1, LastVersion: 1, Entries: entry()})
	})
	if !errors.Is(err, store.ErrDeleted) {
		t.Errorf("%v, want that it was deleted", err)
	}
	for _, table := range tables(t, admin) {
		var rows int
		if err := admin.QueryRow(t.Context(), `SELECT count(*) FROM `+table).Scan(&rows); err != nil || rows != 0 {
			t.Errorf("%d rows are left in %s, %v", rows, table, err)
		}
	}
}

func begin(t *testing.T, conn *pgx.Conn) pgx.Tx {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

// waitUntilBlocked waits until a statement of this database waits for another transaction.
func waitUntilBlocked(t *testing.T, admin *pgx.Conn) {
	t.Helper()
	for blocked := false; !blocked; time.Sleep(time.Millisecond) {
		err := admin.QueryRow(t.Context(), `SELECT EXISTS (SELECT 1 FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&blocked)
		if err != nil {
			t.Fatal(err)
		}
	}
}
