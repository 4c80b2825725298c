package store_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// seedWarnings writes warnings of 400 threads of two tenants, a second apart, and lets the planner know of them.
func seedWarnings(t *testing.T, admin *pgx.Conn, each int) {
	t.Helper()
	for _, sql := range []string{
		`INSERT INTO threads (thread_key, tenant, thread_id, version, next_offset, log_hash, fence, stream_id, lease_ttl_ms, runs, labels)
		 SELECT md5(i::text)::uuid, CASE WHEN i % 2 = 0 THEN 'acme' ELSE 'other' END, i, 500, 0, sha256(''), 0, '', 0, 0,
		        ARRAY[convert_to('agent', 'UTF8') || '\x00' || convert_to('a' || i % 7, 'UTF8')]
		 FROM generate_series(1, 400) i`,
		`INSERT INTO warnings (thread_key, version, ordinal, run_id, "offset", code, path, detail, fatal, codec, removed_size, tenant, raised_at)
		 SELECT t.thread_key, v, 0, 'r', 0, 'CODE_' || v % 5, '', '', false, 0, 0, t.tenant, now() - (v * 400 + t.thread_id::int) * interval '1 second'
		 FROM threads t, generate_series(1, ` + strconv.Itoa(each) + `) v`,
		`VACUUM ANALYZE threads`,
		`VACUUM ANALYZE warnings`,
	} {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// plan is how a statement is executed.
func plan(t *testing.T, admin *pgx.Conn, sql string, args []any) string {
	t.Helper()
	rows, err := admin.Query(t.Context(), `EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) `+sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// A page costs what is on it, or what it may look at: that is found along an index, and nothing else is read or sorted.
func TestLedgerPagesFollowAnIndex(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	admin := connect(t, url)
	seedWarnings(t, admin, 50)
	labels := []string{"agent\x00a3"}
	for name, q := range map[string]store.WarningQuery{
		"all": {}, "a code": {Code: "CODE_3"}, "labels": {Labels: labels}, "a code and labels": {Code: "CODE_3", Labels: labels},
		"a range":   {From: time.Now().Add(-20 * time.Hour), To: time.Now().Add(-10 * time.Hour)},
		"far back":  {Before: store.LedgerPlace{RaisedAt: time.Now().Add(-20 * time.Hour)}},
		"no labels": {Labels: []string{"agent\x00none"}},
	} {
		q.Tenant, q.Limit = "acme", 100
		scanned := q.Limit + 1
		if len(q.Labels) > 0 {
			scanned = store.MaxWarningsScanned
		}
		sql, args := store.LedgerStatement(&q, scanned)
		index := "warnings_by_time"
		if q.Code != "" {
			index = "warnings_by_code"
		}
		want := regexp.MustCompile(`Limit [^\n]*\n *->  WindowAgg [^\n]*\n *->  Index Scan using ` + index + ` on warnings \(actual rows=(\d+) `)
		got := plan(t, admin, sql, args)
		found := want.FindStringSubmatch(got)
		if found == nil {
			t.Fatalf("%s:\n%s", name, got)
		}
		if rows, err := strconv.Atoi(found[1]); err != nil || rows > scanned+1 || strings.Count(got, " on warnings") != 1 {
			t.Errorf("%s: for %d rows it does\n%s", name, scanned, got)
		}
	}
}

// A summary reads the range that it counts.
func TestSummariesFollowAnIndex(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	admin := connect(t, url)
	seedWarnings(t, admin, 50)
	for code, index := range map[string]string{"": "warnings_by_time", "CODE_3": "warnings_by_code"} {
		q := store.WarningQuery{Tenant: "acme", Code: code, From: time.Now().Add(-time.Hour)}
		sql, args := store.SummaryStatement(&q, "agent")
		if got := plan(t, admin, sql, args); !strings.Contains(got, " "+index+" ") {
			t.Errorf("of code %q:\n%s", code, got)
		}
	}
	db := open(t, store.Options{URL: url})
	summary, err := db.SummarizeWarnings(t.Context(), store.WarningQuery{Tenant: "acme"}, "agent")
	if err != nil || len(summary.Groups) != 35 || summary.More || !summary.Since.IsZero() {
		t.Fatalf("%+v, %v", summary, err)
	}
	var total int64
	for _, g := range summary.Groups {
		total += g.Count
	}
	if total != 10_000 {
		t.Errorf("%d were counted", total)
	}
}

// What a summary counts and returns is bounded, and it says so.
func TestSummariesAreBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a while")
	}
	t.Parallel()
	url := storetest.Database(t)
	admin := connect(t, url)
	seedWarnings(t, admin, 250)
	exec(t, admin, `UPDATE warnings SET tenant = 'acme', code = 'CODE_' || version % 5 || '_' || md5(thread_key::text)`)
	exec(t, admin, `UPDATE threads SET tenant = 'acme'`)
	db := open(t, store.Options{URL: url})
	summary, err := db.SummarizeWarnings(t.Context(), store.WarningQuery{Tenant: "acme"}, "")
	if err != nil || len(summary.Groups) != store.MaxWarningGroups || !summary.More {
		t.Fatalf("%d groups of 2,000, more %v, %v", len(summary.Groups), summary.More, err)
	}
	var oldest time.Time
	if err := admin.QueryRow(t.Context(), `SELECT min(raised_at) FROM warnings`).Scan(&oldest); err != nil {
		t.Fatal(err)
	}
	if !summary.Since.Equal(oldest) {
		t.Errorf("counted since %v, the oldest of %d is of %v", summary.Since, store.MaxWarningsCounted, oldest)
	}
	exec(t, admin, fmt.Sprintf(`DELETE FROM warnings WHERE raised_at = '%s'`, oldest.Format(time.RFC3339Nano)))
	if summary, err = db.SummarizeWarnings(t.Context(), store.WarningQuery{Tenant: "acme"}, ""); err != nil || !summary.Since.IsZero() {
		t.Errorf("all were counted, but since %v, %v", summary.Since, err)
	}
}
