package store_test

import (
	"bytes"
	"fmt"
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
	if err != nil || len(places) != 1 || places[0] != (store.RunPlace{Key: key, Ordinal: 1}) {
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
