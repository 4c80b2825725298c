package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// Updates of heads by appends must stay HOT: while the lease has half of its time left, they touch no index.
func TestHotUpdates(t *testing.T) {
	t.Parallel()
	const appends = 300
	url := storetest.Database(t)
	db, admin := open(t, store.Options{URL: url, MaxConns: 1}), connect(t, url)
	commit(t, db, base())
	for v := range uint64(appends) {
		commit(t, db, []*store.Commit{{
			Key: store.KeyOf("acme", "old"), ExpectVersion: v + 1, ExpectFence: 1, Version: v + 2, Fence: 1,
			StreamID: "r1", ActiveRun: "r1", LeaseTTL: time.Hour, Runs: 1,
			Segments: []store.Segment{{FirstVersion: v + 2, LastVersion: v + 2, Entries: entry()}},
		}})
	}
	db.Close() // its backend reports its counts on the way out
	var updates, hot int64
	for deadline := time.Now().Add(time.Minute); updates < appends && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		row := admin.QueryRow(t.Context(), `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'threads'`)
		if err := row.Scan(&updates, &hot); err != nil {
			t.Fatal(err)
		}
	}
	if updates < appends || hot < updates*95/100 {
		t.Errorf("%d of %d updates are HOT", hot, updates)
	}
}

// A segment that cannot be read is reported and hides no other.
func TestCorruptSegment(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	db, admin := open(t, store.Options{URL: url}), connect(t, url)
	key := store.KeyOf("acme", "t")
	long := agui.Entry{Kind: agui.KindInput, Payload: []byte(strings.Repeat("a", 1000))}
	c := &store.Commit{Key: key, Create: &store.NewThread{Tenant: "acme", ThreadID: "t"}, Version: 3, Runs: 1}
	c.Opened = []store.Run{{RunID: "r", Ordinal: 1, FirstVersion: 2, Status: store.RunActive, InputHash: [32]byte{1}}}
	for v := uint64(1); v <= 3; v++ {
		c.Segments = append(c.Segments, store.Segment{FirstVersion: v, LastVersion: v, Entries: long.Append(nil)})
	}
	commit(t, db, []*store.Commit{c})
	exec(t, admin, `UPDATE log_segments SET entries = substr(entries, 1, 10) WHERE first_version = 2`)

	log, err := db.Log(t.Context(), key, 0, math.MaxInt32)
	if err != nil || len(log) != 3 {
		t.Fatalf("%d segments, %v", len(log), err)
	}
	loaded, err := db.Load(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	for _, segments := range [][]store.Segment{log, loaded.Tail} {
		for i, s := range segments {
			if bad := i == 1; errors.Is(s.Err, store.ErrCorrupt) != bad || (s.Entries == nil) != bad {
				t.Errorf("segment %d: %d bytes and %v", i, len(s.Entries), s.Err)
			}
		}
	}
	commit(t, db, []*store.Commit{{Key: key, ExpectVersion: 3, Version: 3, Runs: 1, Fold: &agui.Changes{Version: 3}}})
	if loaded, err = db.Load(t.Context(), key); err != nil || loaded.Fold.Input != nil {
		t.Errorf("a run whose input is corrupt: %v", err)
	}
}

func TestDeleteLeavesNothing(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	db, admin := open(t, store.Options{URL: url}), connect(t, url)
	empty := contents(t, admin)
	commit(t, db, base())
	commit(t, db, full())
	kept, err := db.PutCheckpoint(t.Context(), store.KeyOf("acme", "old"), store.Checkpoint{Fold: agui.Fold{Version: 2}})
	if err != nil || !kept {
		t.Fatalf("a checkpoint: %v, %v", kept, err)
	}
	if _, err := admin.Exec(t.Context(), `INSERT INTO prunings (thread_key) SELECT thread_key FROM threads`); err != nil {
		t.Fatal(err)
	}
	for _, table := range tables(t, admin) {
		var rows int
		if err := admin.QueryRow(t.Context(), `SELECT count(*) FROM `+table).Scan(&rows); err != nil || rows == 0 {
			t.Fatalf("%s has %d rows before, %v", table, rows, err)
		}
	}
	for _, id := range []string{"old", "new"} {
		if _, err := db.Delete(t.Context(), store.KeyOf("acme", id)); err != nil {
			t.Fatal(err)
		}
	}
	if left := contents(t, admin); left != empty {
		t.Errorf("left behind:\n%s", left)
	}
}

// A commit that waits for a deletion finds no thread, and leaves no rows of one.
func TestAppendDuringDelete(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	db, admin := open(t, store.Options{URL: url}), connect(t, url)
	empty := contents(t, admin)
	for range 20 {
		commit(t, db, base())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for v := uint64(1); ; v++ {
				c := &store.Commit{
					Key: store.KeyOf("acme", "old"), ExpectVersion: v, ExpectFence: 1, Version: v + 1, Fence: 1, Runs: 1,
					Segments: []store.Segment{{FirstVersion: v + 1, LastVersion: v + 1, Entries: entry()}},
				}
				if r := db.Commit(context.Background(), []*store.Commit{c}); r[0].Err != nil {
					if !errors.Is(r[0].Err, store.ErrConflict) {
						t.Error(r[0].Err)
					}
					return
				}
			}
		}()
		if _, err := db.Delete(t.Context(), store.KeyOf("acme", "old")); err != nil {
			t.Error(err)
		}
		<-done
		if left := contents(t, admin); left != empty {
			t.Fatalf("left behind:\n%s", left)
		}
	}
}

// A state costs its changes to write: its base is rewritten only when the patches have reached a quarter of it.
func TestStateIsRebasedRarely(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	db, admin := open(t, store.Options{URL: url, MaxConns: 1}), connect(t, url)
	key := store.KeyOf("acme", "t")
	state := fmt.Sprintf(`{"n":0,"long":%q}`, strings.Repeat("x", 10_000))
	commit(t, db, []*store.Commit{{
		Key: key, Create: &store.NewThread{Tenant: "acme", ThreadID: "t"},
		Fold: &agui.Changes{State: agui.StateChange{Replaced: agui.Value(state)}},
	}})
	var bases, most int
	last := int64(0)
	for v := uint64(1); v <= 400; v++ {
		c := &store.Commit{Key: key, ExpectVersion: v - 1, Version: v, Fold: &agui.Changes{Version: v}}
		c.Segments = []store.Segment{{FirstVersion: v, LastVersion: v, Entries: entry()}}
		patch := fmt.Sprintf(`[{"op":"replace","path":"/n","value":%d}]`, v)
		c.Fold.State.Patches = []agui.StatePatch{{Version: v, Patch: agui.Value(patch)}}
		commit(t, db, []*store.Commit{c})
		var version int64
		var patches int
		row := admin.QueryRow(t.Context(), `SELECT version, (SELECT count(*) FROM state_patches) FROM states`)
		if err := row.Scan(&version, &patches); err != nil {
			t.Fatal(err)
		}
		if version != last {
			bases, last = bases+1, version
		}
		most = max(most, patches)
	}
	if bases != 6 || most < 50 {
		t.Errorf("%d new bases and up to %d patches in 400 commits of 45 bytes on 10,000", bases, most)
	}
	loaded, err := db.Load(t.Context(), key)
	if want := []byte(strings.Replace(state, `"n":0`, `"n":400`, 1)); err != nil || !bytes.Equal(loaded.Fold.State, want) {
		t.Errorf("the state is not what the patches make of it: %v", err)
	}
}

// However many patches a commit has, they are one row.
func TestPatchesOfACommitAreOneRow(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	db, admin := open(t, store.Options{URL: url, MaxConns: 1}), connect(t, url)
	key := store.KeyOf("acme", "t")
	state := `{"long":"` + strings.Repeat("x", 10_000) + `"}`
	commit(t, db, []*store.Commit{{
		Key: key, Create: &store.NewThread{Tenant: "acme", ThreadID: "t"},
		Fold: &agui.Changes{State: agui.StateChange{Replaced: agui.Value(state)}},
	}})
	c := &store.Commit{Key: key, Version: 4, Fold: &agui.Changes{Version: 4}}
	c.Segments = []store.Segment{{FirstVersion: 1, LastVersion: 4, Entries: bytes.Repeat(entry(), 4)}}
	c.Fold.State.Patches = []agui.StatePatch{
		{Version: 1, Patch: agui.Value(`[{"op":"add","path":"/a","value":[1]}]`)}, {Version: 2, Patch: agui.Value(` [ ] `)},
		{Version: 4, Patch: agui.Value(`[ {"op":"move","from":"/a","path":"/b"}]`)},
	}
	commit(t, db, []*store.Commit{c})
	var rows, version int64
	if err := admin.QueryRow(t.Context(), `SELECT count(*), max(version) FROM state_patches`).Scan(&rows, &version); err != nil || rows != 1 || version != 4 {
		t.Errorf("%d rows up to version %d: %v", rows, version, err)
	}
	loaded, err := db.Load(t.Context(), key)
	if want := strings.TrimSuffix(state, "}") + `,"b":[1]}`; err != nil || string(loaded.Fold.State) != want {
		t.Errorf("the state is not what the patches make of it: %v", err)
	}
}

// Text columns cannot hold NUL: such an identifier fails its own commit and no other.
func TestUnstorableIdentifier(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	create := func(id string) *store.Commit {
		return &store.Commit{Key: store.KeyOf("acme", id), Create: &store.NewThread{Tenant: "acme", ThreadID: id}}
	}
	results := db.Commit(t.Context(), []*store.Commit{create("a"), create("b\x00"), create("c\xff"), create("d")})
	for i, bad := range []bool{false, true, true, false} {
		if got := results[i].Err; (got != nil) != bad || errors.Is(got, store.ErrUnavailable) {
			t.Errorf("member %d: %v", i, got)
		}
	}
}

// A bound on one transaction's size splits a call, and the results stay in order.
func TestManyCommitsInOneCall(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	const n = 1200
	var commits []*store.Commit
	for i := range n {
		id := fmt.Sprint(i % (n - 1)) // the last one repeats the first
		commits = append(commits, &store.Commit{
			Key: store.KeyOf("acme", id), Create: &store.NewThread{Tenant: "acme", ThreadID: id},
		})
	}
	results := db.Commit(t.Context(), commits)
	for i, r := range results {
		if last := i == n-1; errors.Is(r.Err, store.ErrInvalid) != last || (r.Err == nil) == last {
			t.Errorf("commit %d: %v", i, r.Err)
		}
	}
}
