package service_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/klauspost/compress/zstd"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// verify verifies a thread past gRPC.
func verify(t testing.TB, st store.Store, key store.Key) []service.Finding {
	t.Helper()
	var findings []service.Finding
	reached := uint64(0)
	head, err := service.Verify(t.Context(), st, key, service.Verification{
		Found:    func(f service.Finding) { findings = append(findings, f) },
		Progress: func(version, last uint64) { reached = version },
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(findings) == 0 && reached < head.Version {
		t.Errorf("verified up to version %d of %d", reached, head.Version)
	}
	for _, f := range findings {
		if f.FirstVersion > f.LastVersion || f.Kind == "" || f.Detail == "" {
			t.Errorf("finding %+v", f)
		}
	}
	return findings
}

// evidence is a database with threads of every kind: all that can be stored of one is there.
func evidence(t *testing.T) *historian {
	t.Helper()
	h := newHistorian(t, service.Config{CheckpointBytes: 2 << 10})
	h.converseAtLength()
	h.thread = "t2"
	for i := range 12 {
		run := fmt.Sprint("r", i)
		h.record(run, append(text("m"+run, "some ", "words ", storetest.Noise(i, 300)),
			stateDelta(fmt.Sprintf(`[{"op":"add","path":"/k%d","value":{"v":%d,"pad":%q}}]`, i%4, i, storetest.Noise(i%4, 200))))...)
	}
	h.record("restates", stateSnapshot(`{"big":"`+storetest.Noise(1, 30_000)+`"}`), messagesSnapshot(userMessage("u", storetest.Noise(2, 9000))))
	h.record("patches", stateDelta(`[{"op":"add","path":"/small","value":1}]`), stateDelta(`[{"op":"add","path":"/small","value":2}]`))
	h.thread = "t3"
	must(h.client.CreateThread(t.Context(), &threadsvcv1.CreateThreadRequest{Thread: threadName("t3"), Metadata: []byte(`{"user":"u1","n":1}`), State: []byte(`{"a":1}`)}))(t)
	h.open("active", stateDelta(`[{"op":"add","path":"/b","value":1}]`))
	h.settle()
	h.waitFor("checkpoints", `SELECT count(DISTINCT thread_key) >= 2 FROM checkpoints`)
	for _, table := range []string{"log_segments", "contents", "states", "state_patches", "message_blocks", "folds", "checkpoints", "runs"} {
		if h.number(`SELECT count(*) FROM `+table) == 0 {
			t.Fatalf("there are no rows in %s", table)
		}
	}
	return h
}

// flips are columns whose every bit counts: bytes and numbers.
var flips = []struct {
	table, column string
	bits          int // of a number; 0 for bytes
}{
	{"log_segments", "entries", 0}, {"log_segments", "entries", 0}, {"contents", "body", 0}, {"contents", "hash", 0},
	{"states", "doc", 0}, {"state_patches", "patch", 0}, {"message_blocks", "body", 0}, {"message_blocks", "body", 0}, {"folds", "tracking", 0},
	{"threads", "log_hash", 0}, {"threads", "metadata", 0}, {"threads", "version", 40}, {"threads", "runs", 40}, {"threads", "next_offset", 40},
	{"checkpoints", "fold", 0}, {"checkpoints", "hash", 0}, {"checkpoints", "log_hash", 0}, {"checkpoints", "version", 40},
	{"log_segments", "first_version", 40}, {"log_segments", "last_version", 40}, {"log_segments", "codec", 4}, {"folds", "version", 40},
	{"message_blocks", "first_position", 60}, {"states", "version", 40}, {"state_patches", "version", 40}, {"message_blocks", "codec", 1}, {"folds", "codec", 1},
}

// Of random single bits in what is stored, every one that was changed is found, in the thread that it belongs to, unless
// what is stored still reads the same; and nothing is found where nothing was changed.
func TestEveryFlippedBitIsFound(t *testing.T) {
	t.Parallel()
	h := evidence(t)
	db := openStore(t, h.url)
	t.Cleanup(db.Close)
	for _, id := range []string{"t1", "t2", "t3"} {
		if findings := verify(t, db, store.KeyOf("test", id)); len(findings) > 0 {
			t.Fatalf("nothing was changed of %s: %v", id, findings)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	count, refused, same := 1000, 0, 0
	if testing.Short() {
		count = 150
	}
	for i := range count {
		f := &flips[i%len(flips)]
		row := h.pickRow(random, f.table, f.column)
		bit := random.IntN(max(1, f.bits))
		if f.bits == 0 {
			bit = random.IntN(8 * len(row.bytes))
		}
		if !h.flip(f.table, f.column, row, bit, f.bits == 0) {
			refused++
			continue
		}
		findings := verify(t, db, row.key)
		// The codec says that there may be references, of which there are none; or the state was the same at the other version.
		alsoTrue := f.column == "codec" && bit == 1 || f.table == "states" && f.column == "version"
		if len(findings) == 0 && (alsoTrue || row.readsTheSame(bit)) {
			same++
		} else if len(findings) == 0 {
			t.Errorf("bit %d of %s.%s (%d bytes, codec %d) is not found", bit, f.table, f.column, len(row.bytes), row.codec)
		}
		if !h.flip(f.table, f.column, row, bit, f.bits == 0) {
			t.Fatal("the bit cannot be flipped back")
		}
	}
	t.Logf("of %d bits the schema refused %d, and %d left what is read as it was", count, refused, same)
	for _, id := range []string{"t1", "t2", "t3"} {
		if findings := verify(t, db, store.KeyOf("test", id)); len(findings) > 0 {
			t.Fatalf("nothing is changed any more of %s: %v", id, findings)
		}
	}
}

// flipRow is a row in which a bit is flipped.
type flipRow struct {
	place string // its ctid
	key   store.Key
	bytes []byte
	codec int
}

func (h *historian) pickRow(random *rand.Rand, table, column string) *flipRow {
	h.t.Helper()
	codec := "0"
	switch table {
	case "threads":
	case "contents", "log_segments", "states", "state_patches", "message_blocks", "folds", "checkpoints":
		codec = "codec::int"
	}
	value := column
	if table == "threads" && column == "version" || strings.HasSuffix(column, "version") || strings.HasSuffix(column, "offset") ||
		column == "runs" || column == "codec" || column == "first_position" {
		value = "NULL::bytea"
	}
	sql := fmt.Sprintf(`SELECT ctid::text, thread_key, %s, %s FROM %s WHERE %s IS NOT NULL AND (%s IS NULL OR octet_length(%s) > 0) ORDER BY ctid`,
		value, codec, table, column, value, value)
	rows, err := h.db.Query(h.t.Context(), sql)
	if err != nil {
		h.t.Fatal(sql, err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*flipRow, error) {
		r := &flipRow{}
		var key pgtype.UUID
		err := row.Scan(&r.place, &key, &r.bytes, &r.codec)
		r.key = key.Bytes
		return r, err
	})
	if err != nil || len(all) == 0 {
		h.t.Fatal(sql, len(all), err)
	}
	return all[random.IntN(len(all))]
}

// flip flips one bit, and reports whether the schema lets it.
func (h *historian) flip(table, column string, row *flipRow, bit int, bytes bool) bool {
	h.t.Helper()
	set := fmt.Sprintf(`%s = set_bit(%s, $2, 1 - get_bit(%s, $2))`, column, column, column)
	arg := any(int64(bit))
	if !bytes {
		set, arg = fmt.Sprintf(`%s = %s # $2`, column, column), int64(1)<<bit
	}
	if column == "codec" {
		set = `codec = (codec # $2::smallint)`
	}
	sql := fmt.Sprintf(`UPDATE %s SET %s WHERE ctid = $1::tid RETURNING ctid::text`, table, set)
	err := h.db.QueryRow(h.t.Context(), sql, row.place, arg).Scan(&row.place)
	if pgErr := new(pgconn.PgError); errors.As(err, &pgErr) && pgErr.ConstraintName != "" {
		return false
	}
	if err != nil {
		h.t.Fatal(sql, err)
	}
	return true
}

var unzip, _ = zstd.NewReader(nil)

// readsTheSame reports whether a compressed payload still decompresses to what it did.
func (r *flipRow) readsTheSame(bit int) bool {
	const zstdCodecs = 1 | 8 // alone, and of columns
	if r.codec&zstdCodecs == 0 || r.bytes == nil {
		return false
	}
	flipped := bytes.Clone(r.bytes)
	flipped[bit/8] ^= 1 << (bit % 8)
	before, err1 := unzip.DecodeAll(r.bytes, nil)
	after, err2 := unzip.DecodeAll(flipped, nil)
	return err1 == nil && err2 == nil && bytes.Equal(before, after)
}

// verifyThread verifies a thread through gRPC.
func (h *historian) verifyThread(ctx context.Context) (*threadsvcv1.VerifyResult, []*threadsvcv1.Finding, error) {
	stream, err := h.history.VerifyThread(ctx, &threadsvcv1.VerifyThreadRequest{Thread: threadName(h.thread)})
	if err != nil {
		return nil, nil, err
	}
	var findings []*threadsvcv1.Finding
	var result *threadsvcv1.VerifyResult
	for {
		msg, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return result, findings, nil
		}
		if err != nil {
			return nil, nil, err
		}
		if f := msg.GetFinding(); f != nil {
			findings = append(findings, f)
		}
		if r := msg.GetResult(); r != nil {
			result = r
		}
	}
}

// keptTables are those that tests alter.
var keptTables = []string{"threads", "runs", "log_segments", "contents", "states", "state_patches", "message_blocks", "folds", "checkpoints"}

// keep keeps what is stored, for restore.
func (h *historian) keep() {
	for _, table := range keptTables {
		execSQL(h.t, h.db, `CREATE TABLE kept_`+table+` AS TABLE `+table)
	}
}

// restore brings back what was kept.
func (h *historian) restore() {
	for _, table := range keptTables {
		execSQL(h.t, h.db, `DELETE FROM `+table)
		execSQL(h.t, h.db, `INSERT INTO `+table+` SELECT * FROM kept_`+table)
	}
}

func keyOf(thread string) pgtype.UUID {
	return pgtype.UUID{Bytes: store.KeyOf("test", thread), Valid: true}
}

// alteration is something done to thread t2, and what must be found of it.
type alteration struct {
	name, sql   string
	kind        string
	first, last uint64
}

// alterations are some, for a thread with a fold and a checkpoint at versions.
func alterations(fold, cut, last uint64) []alteration {
	return []alteration{
		{"a message", `UPDATE message_blocks SET body = '\x00016102757302'::bytea || convert_to('{}', 'UTF8'), codec = 0`, "MESSAGES", fold, fold},
		{"a message gone", `DELETE FROM message_blocks`, "MESSAGES", fold, fold},
		{"the state", `UPDATE states SET doc = '{"big":1}', codec = 0`, "STATE", 0, last},
		{"a patch gone", `DELETE FROM state_patches WHERE version = (SELECT max(version) FROM state_patches WHERE thread_key = $1)`, "STATE", fold, fold},
		{"a patch", `UPDATE state_patches SET patch = convert_to('[{"op":"add","path":"/small","value":2}]', 'UTF8'), codec = 0`, "STATE", 0, last},
		{"a patch too late", `UPDATE state_patches SET version = version + 1`, "STATE", 0, last},
		{"the tracking", `UPDATE folds SET tracking = '{}', codec = 0`, "TRACKING", fold, fold},
		{"a checkpoint", `UPDATE checkpoints SET fold = '\x00', codec = 0`, "CHECKPOINT", cut, cut},
		{"metadata", `UPDATE threads SET metadata = '{"a":1}'`, "HEAD", last, last},
		{"a label", `UPDATE threads SET labels = '{x}'`, "HEAD", last, last},
		{"its name", `UPDATE threads SET tenant = 'other'`, "HEAD", last, last},
		{"a run's result", `UPDATE runs SET result = '1', codec = 0 WHERE run_id = 'r4'`, "RUN", 0, last},
		{"a run's status", `UPDATE runs SET status = 5 WHERE run_id = 'r4'`, "RUN", 0, last},
		{"a segment gone", `DELETE FROM log_segments WHERE first_version = (SELECT max(first_version) FROM log_segments WHERE thread_key = $1)`, "LOG", 0, last},
		{"the number of runs", `UPDATE threads SET runs = runs + 1`, "HEAD", last, last},
		{"the hash", `UPDATE threads SET log_hash = decode(repeat('00', 32), 'hex')`, "LOG_HASH", 0, last},
	}
}

// What was done to a thread is said with its kind and its versions.
func TestFindingsSayWhatAndWhere(t *testing.T) {
	t.Parallel()
	h := evidence(t)
	h.thread = "t2"
	log := h.log()
	last := uint64(len(log))
	fold := uint64(h.number(`SELECT version FROM folds WHERE thread_key = $1`, keyOf("t2")))
	cut := uint64(h.number(`SELECT min(version) FROM checkpoints WHERE thread_key = $1`, keyOf("t2")))
	if result, findings, err := h.verifyThread(t.Context()); err != nil || len(findings) > 0 || result.GetVersion() != last || result.GetFindings() != 0 || len(result.GetLogHash()) != 32 {
		t.Fatalf("%v %v %v", result, findings, err)
	}
	h.keep()
	for _, tc := range alterations(fold, cut, last) {
		t.Run(tc.name, func(t *testing.T) {
			sql := tc.sql + ` WHERE thread_key = $1`
			if strings.Contains(tc.sql, "WHERE") {
				sql = tc.sql + ` AND thread_key = $1`
			}
			execSQL(t, h.db, sql, keyOf("t2"))
			_, findings, err := h.verifyThread(t.Context())
			h.restore()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range findings {
				if f.GetKind().String() == "FINDING_KIND_"+tc.kind && f.GetFirstVersion() >= tc.first && f.GetLastVersion() <= tc.last {
					return
				}
			}
			t.Errorf("found %v, want %s in %d to %d", findings, tc.kind, tc.first, tc.last)
		})
	}
	if _, findings, err := h.verifyThread(t.Context()); err != nil || len(findings) > 0 {
		t.Errorf("restored: %v %v", findings, err)
	}
}

// Of a thread whose log was cut, on a document older than the cut, an altered patch is found as of any other.
func TestPatchesAfterACut(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{PruneInterval: -1})
	h.record("r1", stateSnapshot(`{"pad":"`+storetest.Noise(1, 6000)+`"}`))
	h.record("r2", text("m2", "x")...)
	h.record("r3", text("m3", "x")...)
	h.prune(h.runEnd("r2"))
	h.record("r4", append(text("m4", "y"), stateDelta(`[{"op":"add","path":"/n","value":3},{"op":"replace","path":"/n","value":4}]`),
		stateDelta(`[{"op":"add","path":"/o","value":5}]`))...)
	db := openStore(t, h.url)
	t.Cleanup(db.Close)
	key := store.KeyOf("test", h.thread)
	if n := h.number(`SELECT count(*) FROM states s JOIN threads t USING (thread_key) JOIN state_patches p USING (thread_key) WHERE s.version < t.first_version`); n == 0 {
		t.Fatal("there is no patch on a document older than the cut")
	}
	if findings := verify(t, db, key); len(findings) > 0 {
		t.Fatalf("nothing was changed: %v", findings)
	}
	h.keep()
	for _, sql := range []string{
		`UPDATE state_patches SET version = version + 1`,
		`UPDATE state_patches SET version = version - 1`,
		`UPDATE state_patches SET patch = convert_to('[{"op":"add","path":"/n","value":4},{"op":"add","path":"/o","value":5}]', 'UTF8'), codec = 0`,
	} {
		execSQL(t, h.db, sql)
		if findings := verify(t, db, key); len(findings) == 0 {
			t.Errorf("nothing is found of %s", sql)
		}
		h.restore()
	}
}
