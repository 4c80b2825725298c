package service_test

import (
	"encoding/hex"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/codes"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
)

// canary is short, so that no part of it is compressed, and in everything that a producer names or says.
const canary = "cAnArY7"

// eraseColumn is a column of a table.
type eraseColumn struct{ Table, Column string }

// columnsOf lists every column of every table there is in the database, those of the system left out.
func columnsOf(t *testing.T, db *pgx.Conn) []eraseColumn {
	t.Helper()
	rows := must(db.Query(t.Context(), `SELECT c.relname::text, a.attname::text FROM pg_class c
		JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
		WHERE c.relkind IN ('r', 'm', 'p') AND a.attnum > 0 AND NOT a.attisdropped
		AND n.nspname NOT LIKE 'pg\_%' AND n.nspname <> 'information_schema' ORDER BY 1, a.attnum`))(t)
	columns := must(pgx.CollectRows(rows, pgx.RowToStructByPos[eraseColumn]))(t)
	if len(columns) < 80 {
		t.Fatalf("%d columns", len(columns))
	}
	return columns
}

// traces names the columns in which a text is found, as text or as the bytes of it.
func traces(t *testing.T, db *pgx.Conn, needle string) (found []string) {
	t.Helper()
	asBytes := hex.EncodeToString([]byte(needle))
	for _, c := range columnsOf(t, db) {
		table, column := pgx.Identifier{c.Table}.Sanitize(), pgx.Identifier{c.Column}.Sanitize()
		sql := fmt.Sprintf(`SELECT count(*) FROM %s WHERE position($1 in %s::text) + position($2 in %s::text) > 0`, table, column, column)
		var n int
		if err := db.QueryRow(t.Context(), sql, needle, asBytes).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			found = append(found, c.Table+"."+c.Column)
		}
	}
	return found
}

// rowsOf counts a thread's rows by table; tables without any are left out.
func rowsOf(t *testing.T, db *pgx.Conn, key store.Key) map[string]int64 {
	t.Helper()
	counts := map[string]int64{}
	for _, c := range columnsOf(t, db) {
		if c.Column != "thread_key" {
			continue
		}
		var n int64
		sql := `SELECT count(*) FROM ` + pgx.Identifier{c.Table}.Sanitize() + ` WHERE thread_key = $1`
		if err := db.QueryRow(t.Context(), sql, [16]byte(key)).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			counts[c.Table] = n
		}
	}
	return counts
}

// tell writes the canary into everything that holds what a producer says.
func tell(c *conversation) {
	c.t.Helper()
	must(c.client.CreateThread(c.t.Context(), &threadsvcv1.CreateThreadRequest{
		Thread: threadName(c.thread), Metadata: []byte(`{"` + canary + `":"` + canary + `"}`),
		State: []byte(`{"` + canary + `":1}`), Messages: [][]byte{[]byte(userMessage("u"+canary, canary))},
	}))(c.t)
	run := "run" + canary
	c.open(run, textStart("m"+canary), textDelta("m"+canary, canary), event("FROM_THE_FUTURE", "value", `"`+canary+`"`),
		callStart("c"+canary), event("TOOL_CALL_ARGS", "toolCallId", `"c`+canary+`"`, "delta", `"{\"a\":\"`+canary+`\"}"`),
		stateSnapshot(`{"b":"`+canary+`"}`))
}

// What was erased is in no column of any table. What is left is one row that names nothing.
func TestErasureLeavesNothing(t *testing.T) {
	t.Parallel()
	c, db := ownDatabase(t, service.Config{})
	c = converse(t, c.client, "thread"+canary)
	tell(c)
	key := store.KeyOf("test", c.thread)
	if found := traces(t, db, canary); !slices.Contains(found, "threads.thread_id") || !slices.Contains(found, "log_segments.entries") ||
		!slices.Contains(found, "runs.run_id") || !slices.Contains(found, "threads.labels") {
		t.Fatalf("the canary is in %q only", found)
	}
	version, before := uint64(len(c.log())), rowsOf(t, db, key)
	gone := must(c.client.DeleteThread(t.Context(), &threadsvcv1.DeleteThreadRequest{Thread: threadName(c.thread)}))(t)
	if found := traces(t, db, canary); len(found) > 0 {
		t.Errorf("the canary is left in %q", found)
	}
	if left := rowsOf(t, db, key); len(left) != 1 || left["tombstones"] != 1 {
		t.Errorf("rows are left: %v", left)
	}
	for table, n := range gone.GetErasedRows() {
		if before[table] != n {
			t.Errorf("%s: the receipt has %d rows of %d", table, n, before[table])
		}
		delete(before, table)
	}
	if len(before) > 0 {
		t.Errorf("the receipt lacks %v", before)
	}
	var at time.Time
	var was uint64
	var hash []byte
	if err := db.QueryRow(t.Context(), `SELECT deleted_at, version, log_hash FROM tombstones`).Scan(&at, &was, &hash); err != nil {
		t.Fatal(err)
	}
	if !gone.GetDeleteTime().AsTime().Equal(at) || gone.GetVersion() != was || was != version || string(gone.GetLogHash()) != string(hash) {
		t.Errorf("the receipt is %v; the tombstone has %v, %d, %x", gone, at, was, hash)
	}
}

// lateWrites are the calls that would make the thread t1.
var lateWrites = map[string]func(h *historian, file []byte) error{
	"StartRun": func(h *historian, _ []byte) error {
		_, _, err := startRun(h.t.Context(), h.client, h.request("r2"))
		return err
	},
	"a recorded RUN_STARTED": func(h *historian, _ []byte) error {
		_, err := appendBatch(h.t.Context(), h.client, handle("t1", "r2", 0), 0, runStarted("t1", "r2"), textStart("m"))
		return err
	},
	"CreateThread": func(h *historian, _ []byte) error {
		_, err := h.client.CreateThread(h.t.Context(), &threadsvcv1.CreateThreadRequest{Thread: threadName("t1")})
		return err
	},
	"ForkThread": func(h *historian, _ []byte) error {
		_, err := h.history.ForkThread(h.t.Context(), &threadsvcv1.ForkThreadRequest{Source: threadName("t2"), ThreadId: "t1"})
		return err
	},
	"ImportThread": func(h *historian, file []byte) error {
		_, err := importFile(h.t.Context(), h.history, threadName("t1"), file)
		return err
	},
}

// Writes that come late never make a deleted thread again, on whichever server, until somebody wishes it.
func TestDeletedThreadStaysDeleted(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{})
	elsewhere := serveDatabase(t, h.url, service.Config{})
	converse(t, h.client, "t2").record("r1")
	h.record("r1", text("m", "old")...)
	file := export(t, h.history, threadName("t1"))
	h.open("r3", textStart("m3"))
	run, tail := h.run, h.follow(1)
	gone := must(elsewhere.DeleteThread(t.Context(), &threadsvcv1.DeleteThreadRequest{Thread: threadName("t1")}))(t)
	deleted := gone.GetDeleteTime().AsTime().Format(time.RFC3339Nano)
	var err error
	for err == nil {
		err = tail.receive()
	}
	wantReason(t, err, codes.NotFound, "THREAD_NOT_FOUND")
	for range 2 {
		for name, write := range lateWrites {
			if meta := wantReason(t, write(h, file), codes.FailedPrecondition, "THREAD_DELETED"); meta["delete_time"] != deleted {
				t.Errorf("%s: metadata %v, want %s", name, meta, deleted)
			}
		}
		_, err = appendBatch(t.Context(), h.client, run, 2, textDelta("m3", "late"))
		wantReason(t, err, codes.NotFound, "RUN_NOT_FOUND")
		_, err = appendBatch(t.Context(), h.client, handle("t1", "r3", 0), 2, textDelta("m3", "late"))
		wantReason(t, err, codes.NotFound, "THREAD_NOT_FOUND")
		_, err = h.client.DeleteThread(t.Context(), &threadsvcv1.DeleteThreadRequest{Thread: threadName("t1")})
		wantReason(t, err, codes.NotFound, "THREAD_NOT_FOUND")
		wantReason(t, h.follow(1).receive(), codes.NotFound, "THREAD_NOT_FOUND")
	}
	if n := h.number(`SELECT count(*) FROM threads`) + h.number(`SELECT count(*) FROM tombstones`); n != 2 {
		t.Errorf("%d threads and tombstones, want one each", n)
	}
	h.recreate()
	_, err = appendBatch(t.Context(), h.client, run, 2, textDelta("m3", "late"))
	wantReason(t, err, codes.NotFound, "RUN_NOT_FOUND")
	if n := h.number(`SELECT count(*) FROM tombstones`); n != 0 {
		t.Errorf("%d tombstones of a thread that is there", n)
	}
	h.stillWorks()
}
