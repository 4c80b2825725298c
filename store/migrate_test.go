package store_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/threadsvc/threadsvc/migrations"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// wantPing checks that Ping fails with want and says text, or succeeds if want is nil.
func wantPing(t *testing.T, db *store.Postgres, want error, text string) {
	t.Helper()
	err := db.Ping(t.Context())
	if !errors.Is(err, want) || (err != nil && !strings.Contains(err.Error(), text)) {
		t.Errorf("Ping: %v, want %v with %q", err, want, text)
	}
}

func TestMigrateDownAndUp(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	db, admin := open(t, store.Options{URL: url}), connect(t, url)
	wantPing(t, db, nil, "")
	want := schema(t, url)

	if err := store.MigrateDown(t.Context(), url, int(migrations.Latest())); err != nil {
		t.Fatal(err)
	}
	wantPing(t, db, store.ErrSchema, "revision")
	revision, dirty, err := store.SchemaVersion(t.Context(), url)
	if revision != 0 || dirty || err != nil {
		t.Errorf("revision %d, dirty %v, %v after going down", revision, dirty, err)
	}
	if left := schema(t, url); strings.Contains(left, "thread") {
		t.Errorf("the way down left:\n%s", left)
	}
	for range 2 { // the second finds nothing to do
		if err := store.Migrate(t.Context(), url); err != nil {
			t.Fatal(err)
		}
	}
	if got := schema(t, url); got != want {
		t.Errorf("down and up made\n%s\nof\n%s", got, want)
	}
	wantPing(t, db, nil, "")

	exec(t, admin, `UPDATE schema_migrations SET version = version + 1`)
	wantPing(t, db, nil, "") // a newer schema works
	exec(t, admin, `UPDATE schema_migrations SET dirty = true`)
	wantPing(t, db, store.ErrSchema, "half done")
	if err := store.Migrate(t.Context(), url); !errors.Is(err, store.ErrSchema) {
		t.Errorf("migrating a dirty schema: %v, want ErrSchema", err)
	}
	if err := store.MigrateDown(t.Context(), url, 0); err == nil {
		t.Error("taking back 0 migrations succeeded")
	}
}

// A database of an earlier revision is brought up to date with what it holds, and goes on.
func TestUpgradeKeepsTheLog(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	db := open(t, store.Options{URL: url})
	commit(t, db, base())
	key := base()[0].Key
	want, err := db.Log(t.Context(), key, 1, 1<<20)
	if err != nil || len(want) != 1 {
		t.Fatalf("%d segments, %v", len(want), err)
	}
	if err := store.MigrateDown(t.Context(), url, int(migrations.Latest())-1); err != nil {
		t.Fatal(err)
	}
	if err := store.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	got, err := db.Log(t.Context(), key, 1, 1<<20)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("the log: %+v, %v", got, err)
	}
	since, err := db.SinceCheckpoint(t.Context(), key, 1)
	if err != nil || since.Grown != since.LogSize || since.Grown == 0 {
		t.Errorf("%+v, %v", since, err)
	}
}

// schema lists all columns, constraints and indexes.
func schema(t *testing.T, url string) string {
	t.Helper()
	var text string
	err := connect(t, url).QueryRow(t.Context(), `SELECT coalesce(string_agg(line, E'\n' ORDER BY line), '') FROM (
		SELECT format('%s.%s %s %s', table_name, column_name, data_type, is_nullable) FROM information_schema.columns
		WHERE table_schema = 'public'
		UNION ALL SELECT format('%s %s', conname, pg_get_constraintdef(oid)) FROM pg_constraint
		WHERE connamespace = 'public'::regnamespace
		UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public') AS x (line)`).Scan(&text)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Replicas that start at once, with a long transaction open: one migrates, all succeed.
func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	if err := store.MigrateDown(t.Context(), url, int(migrations.Latest())); err != nil {
		t.Fatal(err)
	}
	busy := connect(t, url)
	exec(t, busy, `BEGIN`)
	exec(t, busy, `SELECT count(*) FROM pg_class`)
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if err := store.Migrate(t.Context(), url); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	wantPing(t, open(t, store.Options{URL: url}), nil, "")
}

// A migration that cannot get its lock gives up by its deadline.
func TestMigrateGivesUp(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	busy := connect(t, url)
	exec(t, busy, `BEGIN`)
	exec(t, busy, `SELECT count(*) FROM threads`)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := store.MigrateDown(ctx, url, 1); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	url := "postgres://nobody@/none?host=" + t.TempDir()
	db := open(t, store.Options{URL: url})
	wantPing(t, db, store.ErrUnavailable, "")
	if err := store.Migrate(t.Context(), url); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Migrate: %v, want ErrUnavailable", err)
	}
	results := db.Commit(t.Context(), base())
	if !errors.Is(results[0].Err, store.ErrUnavailable) {
		t.Errorf("Commit: %v, want ErrUnavailable", results[0].Err)
	}
	if _, err := db.Head(t.Context(), store.Key{}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Head: %v, want ErrUnavailable", err)
	}
	if _, err := store.Open(t.Context(), store.Options{URL: "postgres://%"}); err == nil {
		t.Error("a URL that is none was taken")
	}
}
