package yardstick_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
	"github.com/threadsvc/threadsvc/store/yardstick"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// open returns a DB on a database of the test's own, and the database's URL.
func open(t *testing.T) (*yardstick.DB, string) {
	t.Helper()
	url := storetest.Database(t)
	db, err := yardstick.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return db, url
}

// threads returns n threads with batches of size events each.
func threads(n, batches, size int) []yardstick.Thread {
	all := make([]yardstick.Thread, n)
	for i := range all {
		all[i].ID = fmt.Sprint("thread-", i)
		for b := range batches {
			batch := yardstick.Batch{Offset: uint64(b * size)}
			for e := range size {
				batch.Events = append(batch.Events, fmt.Appendf(nil,
					`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"word %d of thread %d"}`, b*size+e, i))
			}
			all[i].Batches = append(all[i].Batches, batch)
		}
	}
	return all
}

func count(t *testing.T, url, sql string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func wantResult(t *testing.T, r yardstick.Result, err error, events, batches int) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if r.Events != events || r.Batches != batches || len(r.Latencies) != batches || r.Elapsed <= 0 || r.JSON < int64(50*events) {
		t.Errorf("%d events, %d batches, %d latencies, %d bytes in %v; want %d events in %d batches",
			r.Events, r.Batches, len(r.Latencies), r.JSON, r.Elapsed, events, batches)
	}
}

func TestEveryYardstickCommitsEverything(t *testing.T) {
	t.Parallel()
	const segments = `SELECT count(*) FROM threadsvc_bench.segments`
	t.Run("floor", func(t *testing.T) {
		t.Parallel()
		db, url := open(t)
		r, err := db.Floor(t.Context(), threads(130, 3, 2), time.Minute)
		wantResult(t, r, err, 780, 390)
		if n := count(t, url, segments); n != 390 {
			t.Errorf("%d segments, want 390", n)
		}
	})
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		db, url := open(t)
		r, err := db.Alone(t.Context(), threads(5, 4, 1), 3, time.Minute)
		wantResult(t, r, err, 20, 20)
		if n := count(t, url, segments); n != 20 {
			t.Errorf("%d segments, want 20", n)
		}
	})
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		db, _ := open(t)
		r, err := db.Single(t.Context(), threads(1, 10, 1)[0], 7)
		wantResult(t, r, err, 7, 7)
	})
	t.Run("naive", func(t *testing.T) {
		t.Parallel()
		db, url := open(t)
		states := [][]byte{[]byte(`{"n":0}`), []byte(`{"n":1}`)}
		r, err := db.Naive(t.Context(), threads(5, 2, 3), states, 3, time.Minute)
		wantResult(t, r, err, 30, 30)
		if n := count(t, url, `SELECT count(*) FROM threadsvc_bench.naive_events`); n != 30 {
			t.Errorf("%d events, want 30", n)
		}
		if n := count(t, url, `SELECT count(*) FROM threadsvc_bench.naive_threads WHERE seq = 6 AND state = '{"n":0}'`); n != 5 {
			t.Errorf("%d threads hold the last state, want 5", n)
		}
	})
}

func TestTimeIsBounded(t *testing.T) {
	t.Parallel()
	db, _ := open(t)
	if _, err := db.Floor(t.Context(), threads(1, 1, 1), 0); !errors.Is(err, yardstick.ErrNothingDone) {
		t.Errorf("floor without time: %v, want ErrNothingDone", err)
	}
	if _, err := db.Naive(t.Context(), threads(1, 1, 1), [][]byte{[]byte(`{}`)}, 1, 0); !errors.Is(err, yardstick.ErrNothingDone) {
		t.Errorf("naive without time: %v, want ErrNothingDone", err)
	}
}

func TestFailureEndsIt(t *testing.T) {
	t.Parallel()
	db, _ := open(t)
	same := threads(1, 1, 1)
	if _, err := db.Floor(t.Context(), append(same, same...), time.Minute); err == nil {
		t.Error("the same segment twice was taken")
	}
}

// TestSegmentsAreTheStores commits a batch through the store and by Floor: the rows must be the same, so that the yardstick
// keeps measuring what the store writes.
func TestSegmentsAreTheStores(t *testing.T) {
	t.Parallel()
	db, url := open(t)
	all := threads(2, 1, 40)
	all[1].Batches[0].Events = [][]byte{[]byte(`{"type":"X"}`)} // too short to compress
	pg, err := store.Open(t.Context(), store.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer pg.Close()
	for i := range all {
		if r := pg.Commit(t.Context(), []*store.Commit{commitOf(&all[i])})[0]; r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	if _, err := db.Floor(t.Context(), all, time.Minute); err != nil {
		t.Fatal(err)
	}
	same := count(t, url, `
		SELECT count(*) FROM log_segments a JOIN threadsvc_bench.segments b
		USING (thread_key, first_version, last_version, run_id, stream_id, first_offset, next_offset, codec, entries)`)
	if same != 2 {
		t.Errorf("%d of 2 segments are the same", same)
	}
}

func commitOf(t *yardstick.Thread) *store.Commit {
	b := t.Batches[0]
	n := uint64(len(b.Events))
	var entries []byte
	for i, event := range b.Events {
		entry := agui.Entry{Kind: agui.KindEvent, Offset: uint64(i), Payload: event}
		entries = entry.Append(entries)
	}
	return &store.Commit{
		Key: store.KeyOf("bench", t.ID), Create: &store.NewThread{Tenant: "bench", ThreadID: t.ID}, Version: n, NextOffset: n,
		Segments: []store.Segment{{FirstVersion: 1, LastVersion: n, RunID: t.ID, StreamID: t.ID, NextOffset: n, Entries: entries}},
	}
}

func TestReaderReadsTextsAndRows(t *testing.T) {
	t.Parallel()
	db, url := open(t)
	r, err := db.Reader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for id, text := range [][]byte{[]byte("a"), make([]byte, 100_000)} {
		if err := r.Put(t.Context(), id, text); err != nil {
			t.Fatal(err)
		}
		if took, err := r.Text(t.Context(), id, len(text)); err != nil || took <= 0 {
			t.Errorf("text %d took %v, %v", id, took, err)
		}
	}
	if _, err := r.Text(t.Context(), 0, 2); err == nil {
		t.Error("a text of another length is no error")
	}
	pg, err := store.Open(t.Context(), store.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer pg.Close()
	c := commitOf(&yardstick.Thread{ID: "t", Batches: []yardstick.Batch{{Events: [][]byte{[]byte("{}")}}}})
	c.Fold = &agui.Changes{Version: c.Version, State: agui.StateChange{Replaced: agui.Value("{}")}}
	if result := pg.Commit(t.Context(), []*store.Commit{c}); result[0].Err != nil {
		t.Fatal(result[0].Err)
	}
	if took, err := r.Rows(t.Context(), c.Key); err != nil || took <= 0 {
		t.Errorf("the rows took %v, %v", took, err)
	}
}

func TestSizesGrowWithWhatIsStored(t *testing.T) {
	t.Parallel()
	db, url := open(t)
	pg, err := store.Open(t.Context(), store.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer pg.Close()
	read := func(f func() (int64, error)) int64 {
		t.Helper()
		n, err := f()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	all := []func() (int64, error){
		func() (int64, error) { return db.WAL(t.Context()) },
		func() (int64, error) { return db.TableBytes(t.Context()) },
		func() (int64, error) { return db.RowBytes(t.Context()) },
	}
	var before [3]int64
	for i, f := range all {
		before[i] = read(f)
	}
	batch := threads(1, 1, 500)
	if r := pg.Commit(t.Context(), []*store.Commit{commitOf(&batch[0])})[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	for i, f := range all {
		if after := read(f); after <= before[i] {
			t.Errorf("measure %d went from %d to %d", i, before[i], after)
		}
	}
}

func TestServerAndClose(t *testing.T) {
	t.Parallel()
	db, url := open(t)
	s, err := db.Server(t.Context())
	if err != nil || s.Fsync != "off" || s.MaxConnections != 300 || s.BackendPID == 0 || s.Version == "" {
		t.Errorf("server %+v, %v", s, err)
	}
	if err := db.Checkpoint(t.Context()); err != nil {
		t.Error(err)
	}
	if err := db.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := count(t, url, `SELECT count(*) FROM pg_namespace WHERE nspname = 'threadsvc_bench'`); n != 0 {
		t.Error("the schema is still there")
	}
	if _, err := yardstick.Open(t.Context(), "postgres://%%"); err == nil {
		t.Error("a URL that is none was taken")
	}
}
