package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// tester is a test, or one try of a property.
type tester interface {
	rapid.TB
	Context() context.Context
}

// sharer is a thread whose log grows, is merged and has checkpoints laid in any order.
type sharer struct {
	db      *store.Postgres
	conn    *pgx.Conn
	key     store.Key
	version uint64
	runs    int64
	active  bool
	begun   uint64
}

// add commits one entry as a segment of its own: a run's first, one within, or its last.
func (s *sharer) add(t tester, payload string, last bool) {
	c := &store.Commit{Key: s.key, ExpectVersion: s.version, Version: s.version + 1, NextOffset: s.version + 1}
	if s.version == 0 {
		c.Create = &store.NewThread{Tenant: "acme", ThreadID: "share"}
	}
	s.version++
	if !s.active {
		s.runs, s.begun = s.runs+1, s.version
	}
	run := fmt.Sprint("r", s.runs)
	row := store.Run{RunID: run, StreamID: run, Ordinal: s.runs, FirstVersion: s.begun, Status: store.RunActive}
	c.StreamID = run
	c.Segments = []store.Segment{{FirstVersion: s.version, LastVersion: s.version, RunID: run, StreamID: run,
		FirstOffset: s.version - 1, NextOffset: s.version,
		Entries: (&agui.Entry{Kind: agui.KindEvent, Offset: s.version - 1, Payload: []byte(payload)}).Append(nil)}}
	if !s.active {
		c.Opened = []store.Run{row}
	}
	s.active = !last
	if last {
		ended := row
		ended.Status, ended.LastVersion = store.RunFinished, s.version
		if len(c.Opened) > 0 {
			c.Opened = []store.Run{ended}
		} else {
			c.Updated = []store.Run{ended}
		}
		c.Fold = &agui.Changes{Version: s.version}
	}
	if r := s.db.Commit(t.Context(), []*store.Commit{c})[0]; r.Err != nil {
		t.Fatalf("commit: %v", r.Err)
	}
}

// check reads in one snapshot what is stored, and that each checkpoint can be read.
func (s *sharer) check(t *rapid.T) {
	var over int64
	err := s.conn.QueryRow(t.Context(), `
SELECT (k.stored - 2 * (l.stored + c.stored - k.chunks))::bigint FROM
    (SELECT coalesce(sum(stored_size), 0) AS stored, coalesce(sum(stored_size - octet_length(fold)), 0) AS chunks
     FROM checkpoints WHERE thread_key = $1) k,
    (SELECT coalesce(sum(octet_length(entries)), 0) AS stored FROM log_segments WHERE thread_key = $1) l,
    (SELECT coalesce(sum(octet_length(body)), 0) AS stored FROM contents WHERE thread_key = $1) c`, [16]byte(s.key)).Scan(&over)
	if err != nil || over > 0 {
		t.Fatalf("checkpoints take %d bytes more than twice the log, %v", over, err)
	}
	if _, err := s.db.CheckpointAt(t.Context(), s.key, s.version); err != nil && !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("the last checkpoint: %v", err)
	}
}

// Whatever is appended, merged and laid, and in whatever order, checkpoints take at most twice what the log takes: merging
// makes the log smaller, and so removes those that were laid by what it took before.
func TestCheckpointsNeverTakeMoreThanTheirShare(t *testing.T) {
	t.Parallel()
	db, conn := databaseAndConn(t)
	threads, kept, removed := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		threads++
		s := &sharer{db: db, conn: conn, key: store.KeyOf("acme", fmt.Sprint("share", threads))}
		t.Repeat(map[string]func(*rapid.T){
			"": s.check,
			"append": func(t *rapid.T) {
				for range rapid.IntRange(1, 10).Draw(t, "entries") {
					s.add(t, fmt.Sprintf(`{"n":%d,"text":%q}`, s.version, strings.Repeat("ab ", 60)), false)
				}
			},
			"append much": func(t *rapid.T) {
				s.add(t, storetest.Noise(rapid.IntRange(0, 3).Draw(t, "noise"), 9000), false)
			},
			"end": func(t *rapid.T) { s.add(t, `{"end":true}`, true) },
			"lay": func(t *rapid.T) {
				if s.version == 0 {
					t.Skip("there is no thread")
				}
				at := rapid.Uint64Range(1, s.version).Draw(t, "version")
				state := storetest.Noise(rapid.IntRange(0, 3).Draw(t, "state"), rapid.SampledFrom([]int{40, 900, 9000}).Draw(t, "size"))
				ok, err := s.db.PutCheckpoint(t.Context(), s.key, store.Checkpoint{Fold: agui.Fold{Version: at, State: agui.Value(state)}})
				if err != nil {
					t.Fatal(err)
				}
				if ok {
					kept++
				}
			},
			"merge": func(t *rapid.T) {
				if s.runs == 0 {
					t.Skip("there is no run")
				}
				before := s.checkpoints(t)
				ordinal := rapid.Int64Range(1, s.runs).Draw(t, "run")
				if _, err := s.db.Merge(t.Context(), store.RunPlace{Key: s.key, Ordinal: ordinal}); err != nil {
					t.Fatal(err)
				}
				removed += before - s.checkpoints(t)
			},
		})
	})
	if kept == 0 || removed == 0 {
		t.Errorf("%d checkpoints were kept and %d removed: nothing was tried", kept, removed)
	}
}

// Messages that snapshots of the log restate are kept once, for the log and for the checkpoints.
func TestCheckpointsShareTheMessagesOfSnapshots(t *testing.T) {
	t.Parallel()
	db, conn := databaseAndConn(t)
	s := &sharer{db: db, conn: conn, key: store.KeyOf("acme", "restated")}
	fold, bodies := agui.Fold{}, []string{}
	for i := range 200 {
		id := fmt.Sprint("m", i)
		body := fmt.Sprintf(`{"id":%q,"role":"user","content":%q}`, id, storetest.Noise(i, 900))
		bodies = append(bodies, body)
		fold.Messages = append(fold.Messages, agui.StoredMessage{Position: int64(i) << 20, ID: id, Role: "user", Body: agui.Value(body)})
	}
	snapshot := `{"type":"MESSAGES_SNAPSHOT","messages":[` + strings.Join(bodies, ",") + `]}`
	s.add(t, snapshot, false)
	s.add(t, `{"end":true}`, true)
	if _, err := db.Merge(t.Context(), store.RunPlace{Key: s.key, Ordinal: 1}); err != nil {
		t.Fatal(err)
	}
	fold.Version = s.version
	if kept, err := db.PutCheckpoint(t.Context(), s.key, store.Checkpoint{Fold: fold}); err != nil || !kept {
		t.Fatalf("kept %v, %v", kept, err)
	}
	var size, stored int
	err := conn.QueryRow(t.Context(), `SELECT size, stored_size FROM checkpoints WHERE thread_key = $1`, [16]byte(s.key)).Scan(&size, &stored)
	if err != nil || size < 200*900 || stored > size/20 {
		t.Errorf("a checkpoint of %d bytes takes %d of its own, %v", size, stored, err)
	}
	read, err := db.CheckpointAt(t.Context(), s.key, s.version)
	if err != nil || string(read.Fold.Append(nil)) != string(fold.Append(nil)) {
		t.Errorf("it reads as another one, %v", err)
	}
	for _, restate := range []bool{true, false} {
		before, err := db.SinceCheckpoint(t.Context(), s.key, s.version)
		if err != nil {
			t.Fatal(err)
		}
		event := snapshot
		if !restate {
			event = storetest.Noise(1000, len(snapshot))
		}
		s.add(t, event, false)
		s.add(t, `{"end":true}`, true)
		if _, err := db.Merge(t.Context(), store.RunPlace{Key: s.key, Ordinal: s.runs}); err != nil {
			t.Fatal(err)
		}
		since, err := db.SinceCheckpoint(t.Context(), s.key, s.version)
		segments, err2 := db.Log(t.Context(), s.key, s.version, 1<<20)
		if grown := since.Grown - before.Grown; err != nil || err2 != nil || restate != (grown < int64(len(snapshot))/10) || len(segments) != 1 || segments[0].Grown() != grown {
			t.Errorf("the log has grown by %d, %v, %v", grown, err, err2)
		}
	}
}

// databaseAndConn is a store on a database of its own, and a connection to look at it.
func databaseAndConn(t *testing.T) (*store.Postgres, *pgx.Conn) {
	t.Helper()
	url := storetest.Database(t)
	db, err := store.Open(t.Context(), store.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return db, conn
}

func (s *sharer) checkpoints(t *rapid.T) (n int) {
	if err := s.conn.QueryRow(t.Context(), `SELECT count(*) FROM checkpoints WHERE thread_key = $1`, [16]byte(s.key)).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
