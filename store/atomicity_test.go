package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// base is a group that makes a thread with something in every table; full is one that changes every table, for that
// thread and for a new one.
func base() []*store.Commit {
	return []*store.Commit{{
		Key: store.KeyOf("acme", "old"), Create: &store.NewThread{Tenant: "acme", ThreadID: "old", ReplaceDeleted: true},
		Version: 1, Fence: 1, StreamID: "r1", NextOffset: 1, ActiveRun: "r1", LeaseTTL: 1e9, Runs: 1,
		Segments: []store.Segment{{FirstVersion: 1, LastVersion: 1, StreamID: "r1", NextOffset: 1, Entries: entry()}},
		Opened:   []store.Run{{RunID: "r1", Ordinal: 1, StreamID: "r1", FirstVersion: 1, Status: store.RunActive}},
		Fold: &agui.Changes{
			Version:  1,
			Upserts:  []agui.StoredMessage{{Position: 1, ID: "m1", Role: agui.RoleUser, Body: agui.Value(`{}`)}},
			State:    agui.StateChange{Replaced: agui.Value(`{"a":1}`)},
			Tracking: []byte("tracking"),
		},
	}}
}

func full() []*store.Commit {
	change := func(c *store.Commit) *store.Commit {
		v := c.ExpectVersion + 1
		c.Version = v
		c.Segments = []store.Segment{{FirstVersion: v, LastVersion: v, Entries: largeEntry()}}
		c.Opened = []store.Run{{RunID: "r2", Ordinal: 2, StreamID: "r2", FirstVersion: v, Status: store.RunActive}}
		c.Warnings = []store.Warning{{Version: v, Warning: agui.Warning{Code: agui.EventUnknown}}}
		c.Fold = &agui.Changes{
			Version: v,
			Upserts: []agui.StoredMessage{{Position: 2, ID: "m2", Role: agui.RoleUser, Body: agui.Value(`{}`)}},
			Deletes: []int64{1},
			Stored:  1,
		}
		return c
	}
	old := change(&store.Commit{Key: store.KeyOf("acme", "old"), ExpectVersion: 1, ExpectFence: 1})
	long := fmt.Sprintf(`[{"op":"add","path":"/b","value":%q}]`, strings.Repeat("x", 600)) // makes a new base
	old.Fold.State.Patches = []agui.StatePatch{{Version: 2, Patch: agui.Value(long)}}
	old.Updated = []store.Run{{RunID: "r1", Status: store.RunFinished, LastVersion: 1}}
	fresh := change(&store.Commit{
		Key: store.KeyOf("acme", "new"), Create: &store.NewThread{Tenant: "acme", ThreadID: "new", ReplaceDeleted: true},
	})
	fresh.Fold.State.Patches = []agui.StatePatch{
		{Version: 1, Patch: agui.Value(`[{"op":"add","path":"/c","value":1}]`)}, // stays a patch
	}
	return []*store.Commit{old, fresh}
}

func entry() []byte {
	e := agui.Entry{Kind: agui.KindEvent, Payload: []byte(`{}`)}
	return e.Append(nil)
}

// largeEntry is kept by content.
func largeEntry() []byte {
	e := agui.Entry{Kind: agui.KindEvent, Payload: []byte(storetest.Noise(1, 5000))}
	return e.Append(nil)
}

// tables are all tables with rows of threads that were not deleted.
func tables(t *testing.T, conn *pgx.Conn) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), `SELECT c.relname::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
		WHERE c.relkind = 'r' AND a.attname = 'thread_key' AND c.relname <> 'tombstones' ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(names) < 8 {
		t.Fatalf("tables %q: %v", names, err)
	}
	return names
}

// contents is all that a database holds of threads, as one text.
func contents(t *testing.T, conn *pgx.Conn) string {
	t.Helper()
	var all strings.Builder
	for _, table := range tables(t, conn) {
		var text string
		sql := fmt.Sprintf(`SELECT coalesce(string_agg(r::text, E'\n' ORDER BY r::text), '') FROM %s r`, table)
		if err := conn.QueryRow(t.Context(), sql).Scan(&text); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&all, "%s:\n%s\n", table, text)
	}
	return all.String()
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func open(t testing.TB, opts store.Options) *store.Postgres {
	t.Helper()
	db, err := store.Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

func commit(t testing.TB, db store.Store, commits []*store.Commit) {
	t.Helper()
	for i, r := range db.Commit(t.Context(), commits) {
		if r.Err != nil {
			t.Fatalf("commit %d: %v", i, r.Err)
		}
	}
}

// The backend ends itself before and after every statement on every table. Nothing of the group may be left, and the same
// group must succeed when it is sent again.
func TestKilledWithinStatements(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	admin, db := connect(t, url), open(t, store.Options{URL: url, MaxConns: 1})
	exec(t, admin, `CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$`)
	commit(t, db, base())
	before, killed := contents(t, admin), 0
	for _, table := range tables(t, admin) {
		for _, when := range []string{"BEFORE INSERT", "AFTER INSERT", "BEFORE UPDATE", "AFTER UPDATE", "BEFORE DELETE", "AFTER DELETE"} {
			exec(t, admin, fmt.Sprintf(`CREATE TRIGGER die %s ON %s EXECUTE FUNCTION die()`, when, table))
			results := db.Commit(t.Context(), full())
			exec(t, admin, fmt.Sprintf(`DROP TRIGGER die ON %s`, table))
			if results[0].Err == nil && results[1].Err == nil { // no such statement in the group
				before = startOver(t, db, admin)
				continue
			}
			killed++
			for i, r := range results {
				if !errors.Is(r.Err, store.ErrUnavailable) {
					t.Errorf("%s %s: member %d has %v, want ErrUnavailable", when, table, i, r.Err)
				}
			}
			if after := contents(t, admin); after != before {
				t.Fatalf("killed %s %s, but something was written:\n%s\nbefore:\n%s", when, table, after, before)
			}
		}
	}
	if killed < 16 {
		t.Errorf("killed %d times only", killed)
	}
	commit(t, db, full())
}

// startOver undoes a group that was written, and returns the contents then.
func startOver(t *testing.T, db *store.Postgres, admin *pgx.Conn) string {
	t.Helper()
	for _, id := range []string{"old", "new"} {
		if _, err := db.Delete(t.Context(), store.KeyOf("acme", id)); err != nil {
			t.Fatal(err)
		}
	}
	commit(t, db, base())
	return contents(t, admin)
}

// killer ends the backend before the statement (or pipeline of statements) number at is sent.
type killer struct {
	admin *pgx.Conn
	count atomic.Int64
	at    int64
}

func (k *killer) kill(ctx context.Context, conn *pgx.Conn) {
	if k.count.Add(1) != k.at {
		return
	}
	if _, err := k.admin.Exec(ctx, `SELECT pg_terminate_backend($1, 5000)`, int32(conn.PgConn().PID())); err != nil {
		panic(err)
	}
}

func (k *killer) TraceQueryStart(ctx context.Context, conn *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	k.kill(ctx, conn)
	return ctx
}

func (k *killer) TraceBatchStart(ctx context.Context, conn *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	k.kill(ctx, conn)
	return ctx
}

func (*killer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData)     {}
func (*killer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*killer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// The backend is ended before each round trip of a group, the last time before COMMIT. The group is written once or not at
// all: once if the loss of the connection shows before anything is sent on it, so that trying again is safe.
func TestKilledBetweenRoundTrips(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	admin := connect(t, url)
	k := &killer{admin: connect(t, url)}
	db := open(t, store.Traced(store.Options{URL: url, MaxConns: 1}, k))
	commit(t, db, base())
	before := contents(t, admin)
	const trips = 5 // begin, heads, state, rows, commit
	for at := int64(1); at <= trips; at++ {
		k.count.Store(0)
		k.at = at
		results := db.Commit(t.Context(), full())
		if results[0].Err == nil && results[1].Err == nil { // found out in time to do it all again
			before = startOver(t, db, admin)
			continue
		}
		for i, r := range results {
			if !errors.Is(r.Err, store.ErrUnavailable) {
				t.Errorf("killed before round trip %d: member %d has %v, want ErrUnavailable", at, i, r.Err)
			}
		}
		if after := contents(t, admin); after != before {
			t.Fatalf("killed before round trip %d, but something was written:\n%s", at, after)
		}
	}
	k.count.Store(0)
	k.at = 0
	commit(t, db, full())
	if n := k.count.Load(); n != trips {
		t.Errorf("the group takes %d round trips, want %d", n, trips)
	}
	k.count.Store(0)
	hot := &store.Commit{Key: store.KeyOf("acme", "old"), ExpectVersion: 2, Version: 3, Runs: 2,
		Segments: []store.Segment{{FirstVersion: 3, LastVersion: 3, Entries: entry()}}}
	commit(t, db, []*store.Commit{hot})
	if n := k.count.Load(); n != 1 {
		t.Errorf("a commit of segments alone takes %d round trips, want 1", n)
	}
}

// Reads find another connection when theirs was cut.
func TestPoolHeals(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	admin, db := connect(t, url), open(t, store.Options{URL: url, MaxConns: 2})
	commit(t, db, base())
	for range 3 {
		exec(t, admin, `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		if _, err := db.Load(t.Context(), store.KeyOf("acme", "old")); err != nil {
			t.Errorf("a read after all connections were cut: %v", err)
		}
	}
}

func exec(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
