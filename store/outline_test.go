package store_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// Payloads that restate a growing conversation come back byte for byte, from the log and from a load, and cost what is
// new.
func TestRestatedPayloadsAreStoredOnce(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	db, admin := open(t, store.Options{URL: url}), connect(t, url)
	key := store.KeyOf("acme", "restating")
	var want []byte
	conversation := []byte(`{"type":"MESSAGES_SNAPSHOT","messages":[`)
	version := uint64(0)
	stored := func() (size int64) {
		row := admin.QueryRow(t.Context(), `SELECT (SELECT coalesce(sum(length(body)), 0) FROM contents) + (SELECT coalesce(sum(length(entries)), 0) FROM log_segments)`)
		if err := row.Scan(&size); err != nil {
			t.Fatal(err)
		}
		return size
	}
	var early, late int64
	for turn := range 120 {
		conversation = fmt.Appendf(conversation, `{"id":"m%d","role":"user","content":"%s"},`, turn, storetest.Noise(turn, 300))
		e := agui.Entry{Kind: agui.KindEvent, Offset: uint64(turn), Payload: append(bytes.Clone(conversation), `]}`...)}
		entries := e.Append(nil)
		before := stored()
		c := &store.Commit{Key: key, ExpectVersion: version, Version: version + 1}
		if turn == 0 {
			c.Create = &store.NewThread{Tenant: "acme", ThreadID: "restating"}
		}
		c.Segments = []store.Segment{{FirstVersion: version + 1, LastVersion: version + 1, StreamID: "r", FirstOffset: uint64(turn), NextOffset: uint64(turn) + 1, Entries: entries}}
		if err := db.Commit(t.Context(), []*store.Commit{c})[0].Err; err != nil {
			t.Fatal(err)
		}
		version++
		want = append(want, entries...)
		switch {
		case turn >= 20 && turn < 40:
			early += stored() - before
		case turn >= 100:
			late += stored() - before
		}
	}
	segments, err := db.Log(t.Context(), key, 1, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := db.Load(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	for name, read := range map[string][]store.Segment{"log": segments, "tail": loaded.Tail} {
		if got := joined(t, read); !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes came back, want the %d that were written", name, len(got), len(want))
		}
	}
	if late > 2*early {
		t.Errorf("20 restatements cost %d bytes at 20 turns and %d at 100", early, late)
	}
}

func joined(t *testing.T, segments []store.Segment) (all []byte) {
	for _, s := range segments {
		if s.Err != nil {
			t.Fatal(s.Err)
		}
		all = append(all, s.Entries...)
	}
	return all
}

// A chunk that is gone or cannot be unpacked makes its segments unreadable, and nothing else.
func TestDamagedContentIsReported(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]string{
		"missing": `DELETE FROM contents WHERE hash = (SELECT hash FROM contents ORDER BY hash LIMIT 1)`,
		"corrupt": `UPDATE contents SET codec = 1, body = 'not zstd' WHERE hash = (SELECT hash FROM contents ORDER BY hash LIMIT 1)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := storetest.Database(t)
			db, admin := open(t, store.Options{URL: url}), connect(t, url)
			c := ended("damaged", storetest.Noise(1, 20_000), `{}`)
			c.Opened, c.Fold = nil, nil // so that a load reads the log
			commit(t, db, []*store.Commit{c})
			exec(t, admin, damage)
			log, logErr := db.Log(t.Context(), c.Key, 1, 1<<30)
			loaded, loadErr := db.Load(t.Context(), c.Key)
			if logErr != nil || loadErr != nil {
				t.Fatalf("log: %v, load: %v", logErr, loadErr)
			}
			for _, s := range [][]store.Segment{log, loaded.Tail} {
				if len(s) != 2 || s[0].Err == nil || s[0].Entries != nil || s[1].Err != nil {
					t.Errorf("%d segments: the first must be unreadable, the second not", len(s))
				}
			}
		})
	}
}
