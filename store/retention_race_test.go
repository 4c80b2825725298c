package store_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// interposer does something once, right before a statement is sent.
type interposer struct {
	sql   string
	do    func()
	armed atomic.Bool
}

func (i *interposer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if data.SQL == i.sql && i.armed.CompareAndSwap(true, false) {
		i.do()
	}
	return ctx
}

func (*interposer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// twoRuns is a thread of two ended runs, of three and two versions, so that it can be cut at version 3.
func twoRuns(id string) []*store.Commit {
	first := ended(id, `{"n":1}`, `{"n":2}`, `{"n":3}`)
	second := ended(id, `{"n":4}`, `{"n":5}`)
	second.Create, second.ExpectVersion, second.Version, second.Runs = nil, 3, 5, 2
	second.StreamID, second.NextOffset, second.Fold = "s", 2, &agui.Changes{Version: 5}
	run := &second.Opened[0]
	run.RunID, run.StreamID, run.Ordinal, run.FirstVersion, run.LastVersion = "s", "s", 2, 4, 5
	for i := range second.Segments {
		s := &second.Segments[i]
		s.FirstVersion, s.LastVersion, s.RunID, s.StreamID = s.FirstVersion+3, s.LastVersion+3, "s", "s"
	}
	return []*store.Commit{first, second}
}

// folded is a checkpoint with a state that is large enough to be kept in chunks.
func folded(version uint64, state string) store.Checkpoint {
	return store.Checkpoint{Fold: agui.Fold{Version: version, State: agui.Value(`"` + state + `"`)}}
}

// race is a thread that is cut and swept.
type race struct {
	*store.Postgres
	key   store.Key
	admin *pgx.Conn
}

func (r *race) chunks(t *testing.T) (n int) {
	t.Helper()
	if err := r.admin.QueryRow(t.Context(), `SELECT count(*) FROM contents`).Scan(&n); err != nil {
		t.Error(err)
	}
	return n
}

// sweptWhile cuts a thread at version 3, where later checkpoints lie as well, and sweeps it; meanwhile happens when the
// sweep has marked what is referred to and has removed nothing yet. What only the checkpoint of version 2 refers to, which
// has the state "gone", is garbage then.
func sweptWhile(t *testing.T, gone string, later []store.Checkpoint, meanwhile func(*race)) *race {
	t.Helper()
	r, url := cut(t, gone, later)
	between := &interposer{sql: store.SQLLockUnchanged, do: func() { meanwhile(r) }}
	between.armed.Store(true)
	sweeping := open(t, store.Traced(store.Options{URL: url}, between))
	for more := true; more; {
		var err error
		if more, err = sweeping.Sweep(t.Context(), r.key, 1000); err != nil && !errors.Is(err, store.ErrLocked) {
			t.Fatal(err)
		}
		more = more || err != nil
	}
	if between.armed.Load() {
		t.Fatal("the sweep removed no contents")
	}
	return r
}

// cut cuts a thread for sweptWhile, and returns its database as well.
func cut(t *testing.T, gone string, later []store.Checkpoint) (_ *race, url string) {
	t.Helper()
	url = storetest.Database(t)
	db := open(t, store.Options{URL: url})
	commits := twoRuns("race")
	key := commits[0].Key
	r := &race{db, key, connect(t, url)}
	for _, c := range commits {
		commit(t, db, []*store.Commit{c})
	}
	for _, c := range append([]store.Checkpoint{folded(2, gone), folded(3, storetest.Noise(3, 9000))}, later...) {
		if err := db.PutCut(t.Context(), key, c); err != nil {
			t.Fatal(err)
		}
	}
	plan, err := db.PlanCut(t.Context(), key, store.Keep{MaxRuns: 1})
	if err != nil || plan.Cut.Version != 3 {
		t.Fatalf("plan %+v, %v", plan, err)
	}
	if err := db.Cut(t.Context(), key, plan.Cut, [32]byte{}); err != nil {
		t.Fatal(err)
	}
	return r, url
}

// A cut's checkpoint may be laid below checkpoints that a sweep has marked, or over one of them, and need chunks that are
// garbage to the sweep. They are kept then.
func TestSweepSeesTheCheckpointOfACut(t *testing.T) {
	t.Parallel()
	gone, other := storetest.Noise(1, 60_000), storetest.Noise(2, 9000)
	for name, c := range map[string]struct {
		later []store.Checkpoint
		put   store.Checkpoint
	}{
		"above all":              {nil, folded(5, gone)},
		"below a marked one":     {[]store.Checkpoint{folded(5, other)}, folded(4, gone)},
		"in place of a whole":    {[]store.Checkpoint{folded(4, "small"), folded(5, other)}, folded(4, gone)},
		"in place of an outline": {[]store.Checkpoint{folded(4, other), folded(5, other)}, folded(4, gone)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := sweptWhile(t, gone, c.later, func(db *race) {
				if err := db.PutCut(t.Context(), db.key, c.put); err != nil {
					t.Errorf("the cut meanwhile: %v", err)
				}
			})
			got, err := db.CheckpointAt(t.Context(), db.key, c.put.Fold.Version)
			if err != nil {
				t.Fatal(err)
			}
			if want := c.put.Fold.State; string(got.Fold.State) != string(want) {
				t.Errorf("a state of %d bytes, want the %d that were put", len(got.Fold.State), len(want))
			}
		})
	}
}

// The same checkpoint again is nothing new, and what nothing refers to goes.
func TestSweepRemovesWhatNoCheckpointRefersTo(t *testing.T) {
	t.Parallel()
	gone, other := storetest.Noise(1, 60_000), folded(5, storetest.Noise(2, 9000))
	var before int
	db := sweptWhile(t, gone, []store.Checkpoint{other}, func(db *race) {
		before = db.chunks(t)
		if err := db.PutCut(t.Context(), db.key, other); err != nil {
			t.Errorf("the cut meanwhile: %v", err)
		}
	})
	if after := db.chunks(t); after == 0 || after > before/2 {
		t.Errorf("%d chunks before and %d after, of which most were garbage", before, after)
	}
	for _, version := range []uint64{3, 5} {
		if _, err := db.CheckpointAt(t.Context(), db.key, version); err != nil {
			t.Error(err)
		}
	}
}

// Entries that refer to no contents, however many are appended while a thread is swept, do not hold the sweep up: what they take
// is compressed, which is no reference.
func TestSweepGoesOnBesideAppends(t *testing.T) {
	t.Parallel()
	r, url := cut(t, storetest.Noise(1, 60_000), nil)
	version := uint64(5)
	between := &interposer{sql: store.SQLLockUnchanged}
	between.do = func() {
		e := agui.Entry{Kind: agui.KindEvent, Offset: version - 3, Payload: []byte(strings.Repeat("more ", 100))}
		commit(t, r, []*store.Commit{{
			Key: r.key, ExpectVersion: version, Version: version + 1, StreamID: "s", NextOffset: version - 2, Runs: 2,
			Segments: []store.Segment{{
				FirstVersion: version + 1, LastVersion: version + 1, RunID: "s", StreamID: "s", FirstOffset: version - 3,
				NextOffset: version - 2, Entries: e.Append(nil),
			}},
		}})
		version++
		between.armed.Store(true)
	}
	between.armed.Store(true)
	before := r.chunks(t)
	sweeping := open(t, store.Traced(store.Options{URL: url}, between))
	if more, err := sweeping.Sweep(t.Context(), r.key, 1000); more || err != nil {
		t.Errorf("more is left: %v, %v", more, err)
	}
	if after := r.chunks(t); after > before/2 || version == 5 {
		t.Errorf("%d chunks before and %d after, of which most were garbage; %d appends", before, after, version-5)
	}
}

// A policy that is changed while a thread's next look is being set is spread to that thread too.
func TestSetDueKeepsThePolicy(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	db := open(t, store.Options{URL: url})
	commits := twoRuns("due")
	for _, c := range commits {
		commit(t, db, []*store.Commit{c})
	}
	change := func(runs int64) error {
		_, err := db.SetPolicy(t.Context(), store.Policy{Tenant: "acme", Keep: store.Keep{MaxRuns: runs}})
		return err
	}
	if err := change(7); err != nil {
		t.Fatal(err)
	}
	due := dueNow(t, db)
	if len(due) != 1 {
		t.Fatalf("due: %+v", due)
	}
	var changed error
	between := &interposer{sql: "commit", do: func() {
		changed = change(1)
		dueNow(t, db)
	}}
	setting := open(t, store.Traced(store.Options{URL: url}, between))
	between.armed.Store(true)
	if err := setting.SetDue(t.Context(), due[0], 2, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if between.armed.Load() {
		t.Fatal("nothing happened between")
	}
	if errors.Is(changed, store.ErrLocked) {
		changed = untilUnlocked(func() error { return change(1) })
	}
	if changed != nil {
		t.Fatal(changed)
	}
	if due := dueNow(t, db); len(due) != 1 || due[0].Policy.Keep.MaxRuns != 1 {
		t.Errorf("due by the changed policy: %+v", due)
	}
}

// dueNow spreads the policies and lists what is due.
func dueNow(t *testing.T, db *store.Postgres) []store.DueThread {
	for more := true; more; {
		var err error
		if more, err = db.SpreadPolicies(t.Context(), 9); err != nil {
			t.Error(err)
			return nil
		}
	}
	due, err := db.Due(t.Context(), 9)
	if err != nil {
		t.Error(err)
	}
	return due
}

// A sweep that stores the state anew while a commit holds the thread gives way to it, and keeps what it has brought.
func TestRebaseGivesWayToACommit(t *testing.T) {
	t.Parallel()
	r, url := cut(t, "gone", nil)
	exec := func(tx interface {
		Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
	}, sql string) {
		if _, err := tx.Exec(context.Background(), sql, r.key[:]); err != nil {
			t.Error(err)
		}
	}
	exec(r.admin, `DELETE FROM states WHERE thread_key = $1`)
	exec(r.admin, `INSERT INTO states (thread_key, version, codec, doc) VALUES ($1, 1, 0, '{"a":1}')`)
	exec(r.admin, `INSERT INTO state_patches (thread_key, version, codec, patch) VALUES ($1, 5, 0, '[{"op":"add","path":"/b","value":2}]')`)
	between, done := &interposer{sql: store.SQLLockForRebase}, make(chan struct{})
	between.do = func() {
		tx, err := r.admin.Begin(context.Background())
		if err != nil {
			t.Error(err)
			close(done)
			return
		}
		exec(tx, `UPDATE threads SET version = 6 WHERE thread_key = $1`)
		exec(tx, `UPDATE folds SET version = 6 WHERE thread_key = $1`)
		exec(tx, `INSERT INTO state_patches (thread_key, version, codec, patch) VALUES ($1, 6, 0, '[{"op":"add","path":"/c","value":3}]')`)
		go func() {
			defer close(done)
			time.Sleep(20 * time.Millisecond) // the sweep waits for the lock meanwhile, or gives way anyhow
			if err := tx.Commit(context.Background()); err != nil {
				t.Error(err)
			}
		}()
	}
	between.armed.Store(true)
	if _, err := open(t, store.Traced(store.Options{URL: url}, between)).Sweep(t.Context(), r.key, 1000); !errors.Is(err, store.ErrConflict) {
		t.Errorf("the sweep did not notice the commit: %v", err)
	}
	<-done
	loaded, err := r.Load(t.Context(), r.key)
	if err != nil || string(loaded.Fold.State) != `{"a":1,"b":2,"c":3}` {
		t.Errorf("%v %s", err, loaded.Fold.State)
	}
}
