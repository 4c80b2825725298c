package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// Merging the segments of a run that is over changes neither the log nor its times, and leaves other runs alone.
func TestMergeKeepsTheLog(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	key := store.KeyOf("acme", "merging")
	version := uint64(0)
	add := func(run string, status store.RunStatus, payload string) {
		e := agui.Entry{Kind: agui.KindEvent, Offset: version, Payload: []byte(payload)}
		c := &store.Commit{Key: key, ExpectVersion: version, Version: version + 1, StreamID: run, NextOffset: version + 1}
		if version == 0 {
			c.Create = &store.NewThread{Tenant: "acme", ThreadID: "merging"}
		}
		c.Segments = []store.Segment{{FirstVersion: version + 1, LastVersion: version + 1, RunID: run, StreamID: run, FirstOffset: version, NextOffset: version + 1, Entries: e.Append(nil)}}
		switch row := (store.Run{RunID: run, StreamID: run, Ordinal: int64(len(run)), FirstVersion: version + 1, Status: status}); {
		case status == store.RunActive:
			c.Opened = []store.Run{row}
		case status != 0:
			row.LastVersion = version + 1
			c.Updated = []store.Run{row}
			c.Fold = &agui.Changes{Version: version + 1}
		}
		commit(t, db, []*store.Commit{c})
		version++
	}
	add("r", store.RunActive, `{"n":0}`)
	for n := range 20 {
		add("r", 0, fmt.Sprintf(`{"n":%d}`, n))
	}
	add("r", 0, storetest.Noise(3, 9000))
	add("r", store.RunFinished, `{}`)
	add("rr", store.RunActive, `{"second":true}`)
	before, err := db.Log(t.Context(), key, 1, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	places, err := db.Unmerged(t.Context(), 10)
	if err != nil || len(places) != 1 || places[0] != (store.RunPlace{Key: key, Ordinal: 1, LastVersion: 23}) {
		t.Fatalf("unmerged %v, %v: want the finished run", places, err)
	}
	merged, err := db.Merge(t.Context(), places[0])
	if err != nil || merged == 0 {
		t.Fatalf("merged %d bytes, %v", merged, err)
	}
	after, err := db.Log(t.Context(), key, 1, 1<<30)
	if err != nil || len(after) != 2 {
		t.Fatalf("%d segments after, %v: want 2", len(after), err)
	}
	if !bytes.Equal(joined(t, before), joined(t, after)) {
		t.Error("the log changed")
	}
	for _, s := range before {
		if at := after[0].CommitTime(s.FirstVersion); s.RunID == "r" && !at.Equal(s.CommittedAt) {
			t.Errorf("version %d was committed at %v, now at %v", s.FirstVersion, s.CommittedAt, at)
		}
	}
	if again, err := db.Merge(t.Context(), places[0]); err != nil || again != 0 {
		t.Errorf("merged again: %d bytes, %v", again, err)
	}
	found, err := db.Stream(t.Context(), key, "r", 5, 6)
	if err != nil || len(found) != 1 {
		t.Errorf("stream: %d segments, %v", len(found), err)
	}
}

// ended is a commit that makes a thread of one run that is over, with a segment for each payload.
func ended(id string, payloads ...string) *store.Commit {
	version := uint64(len(payloads))
	c := &store.Commit{
		Key: store.KeyOf("acme", id), Create: &store.NewThread{Tenant: "acme", ThreadID: id}, Version: version,
		StreamID: "r", NextOffset: version, Runs: 1, Fold: &agui.Changes{Version: version},
		Opened: []store.Run{{RunID: "r", StreamID: "r", Ordinal: 1, FirstVersion: 1, LastVersion: version, NextOffset: version, Status: store.RunFinished}},
	}
	for i, payload := range payloads {
		offset := uint64(i)
		e := agui.Entry{Kind: agui.KindEvent, Offset: offset, Payload: []byte(payload)}
		c.Segments = append(c.Segments, store.Segment{
			FirstVersion: offset + 1, LastVersion: offset + 1, RunID: "r", StreamID: "r", FirstOffset: offset, NextOffset: offset + 1,
			Entries: e.Append(nil),
		})
	}
	return c
}

// untilUnlocked makes a write again while another, slow one holds the lock that it needs.
func untilUnlocked(write func() error) error {
	err := write()
	for errors.Is(err, store.ErrLocked) {
		err = write()
	}
	return err
}

// A thread that is deleted while its segments are merged leaves nothing behind, and neither call fails.
func TestMergeAndDelete(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	db, admin := open(t, store.Options{URL: url}), connect(t, url)
	for n := range 200 {
		c := ended(fmt.Sprint(n), "1", "2", "3", storetest.Noise(n, 5000))
		commit(t, db, []*store.Commit{c})
		var mergeErr, deleteErr error
		var both sync.WaitGroup
		both.Go(func() {
			mergeErr = untilUnlocked(func() error { _, err := db.Merge(t.Context(), store.RunPlace{Key: c.Key, Ordinal: 1}); return err })
		})
		both.Go(func() {
			deleteErr = untilUnlocked(func() error { _, err := db.Delete(t.Context(), c.Key); return err })
		})
		both.Wait()
		if mergeErr != nil || deleteErr != nil {
			t.Fatalf("round %d: merge %v, delete %v", n, mergeErr, deleteErr)
		}
	}
	for _, table := range tables(t, admin) {
		var rows int
		if err := admin.QueryRow(t.Context(), `SELECT count(*) FROM `+table).Scan(&rows); err != nil || rows != 0 {
			t.Errorf("%d rows are left in %s, %v", rows, table, err)
		}
	}
}

// While a head is locked as by a delete, a merge does nothing; while it is locked as by an append, it goes on.
func TestMergeHeedsTheHead(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	db, admin := open(t, store.Options{URL: url}), connect(t, url)
	c := ended("locked", "1", "2")
	commit(t, db, []*store.Commit{c})
	for _, test := range []struct {
		lock   string
		merges bool
	}{{"FOR UPDATE", false}, {"FOR NO KEY UPDATE", true}} {
		exec(t, admin, `BEGIN`)
		exec(t, admin, `SELECT 1 FROM threads `+test.lock)
		merged, err := db.Merge(t.Context(), store.RunPlace{Key: c.Key, Ordinal: 1})
		if err != nil || (merged > 0) != test.merges {
			t.Errorf("%s: merged %d bytes, %v", test.lock, merged, err)
		}
		exec(t, admin, `ROLLBACK`)
	}
}

// A segment that cannot be read is not merged, so that it makes no other unreadable; short ones are stored without a checksum that
// would tell.
func TestMergeLeavesWhatIsDamaged(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]string{
		"cut":      `substr(entries, 1, octet_length(entries) - 1)`,
		"one more": `entries || entries`,
		"a length": `set_byte(entries, 3, 200)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := storetest.Database(t)
			db, admin := open(t, store.Options{URL: url}), connect(t, url)
			c := ended("damaged", `"1"`, `"2"`, `"3"`, `"4"`, `"5"`)
			commit(t, db, []*store.Commit{c})
			exec(t, admin, `UPDATE log_segments SET entries = `+damage+` WHERE first_version = 3`)
			if _, err := db.Merge(t.Context(), store.RunPlace{Key: c.Key, Ordinal: 1}); err != nil {
				t.Fatal(err)
			}
			segments, err := db.Log(t.Context(), c.Key, 1, 1<<30)
			if err != nil || len(segments) != 3 {
				t.Fatalf("%d segments, %v: want the damaged one, and one on each side", len(segments), err)
			}
			for i, payloads := range map[int]string{0: `"1""2"`, 2: `"4""5"`} {
				entries, err := agui.DecodeEntries(segments[i].Entries)
				if err != nil || len(entries) != 2 || string(entries[0].Payload)+string(entries[1].Payload) != payloads {
					t.Errorf("segment %d: %d entries, %v", i, len(entries), err)
				}
			}
		})
	}
}

// A run whose row says that it ended before it began has nothing to merge.
func TestMergeOfARunWithoutVersions(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	db := open(t, store.Options{URL: url})
	c := ended("damaged", `"1"`, `"2"`)
	commit(t, db, []*store.Commit{c})
	exec(t, connect(t, url), `UPDATE runs SET first_version = 9, last_version = 0`)
	if merged, err := db.Merge(t.Context(), store.RunPlace{Key: c.Key, Ordinal: 1}); merged != 0 || err != nil {
		t.Errorf("%d bytes were merged, %v", merged, err)
	}
}

// The bound of a merged segment counts payloads in full, also those that are kept by content.
func TestMergedSizeCountsContents(t *testing.T) {
	t.Parallel()
	const bound = 1 << 20
	db := storetest.Open(t)
	large := strings.Repeat("a", bound*2/5)
	c := ended("large", large, large, large, large, large)
	commit(t, db, []*store.Commit{c})
	if _, err := db.Merge(t.Context(), store.RunPlace{Key: c.Key, Ordinal: 1}); err != nil {
		t.Fatal(err)
	}
	segments, err := db.Log(t.Context(), c.Key, 1, 1<<30)
	if err != nil || len(segments) != 3 {
		t.Fatalf("%d segments, %v: want 3", len(segments), err)
	}
	for _, s := range segments {
		if len(s.Entries) > bound {
			t.Errorf("versions %d to %d were merged into %d bytes", s.FirstVersion, s.LastVersion, len(s.Entries))
		}
	}
}
