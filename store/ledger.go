package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

const (
	// MaxWarningsScanned is how many warnings one page of TenantWarnings looks at where it filters by labels.
	MaxWarningsScanned = 5000
	// MaxWarningsCounted is how many warnings SummarizeWarnings counts.
	MaxWarningsCounted = 100_000
	// MaxWarningGroups is how many groups SummarizeWarnings returns.
	MaxWarningGroups = 1000
)

// WarningQuery selects warnings of a tenant's threads.
type WarningQuery struct {
	Tenant string
	// Code is the only one wanted; empty: all.
	Code string
	// Labels must all be among those that the thread has now.
	Labels []string
	// From and To bound the time of the warning: at or after From, before To. Zero is no bound.
	From, To time.Time
	// Before is the place after which the page starts; zero for the first page.
	Before LedgerPlace
	Limit  int
}

// LedgerPlace is a place in a tenant's ledger, which is ordered by time, key and place in the thread's ledger.
type LedgerPlace struct {
	RaisedAt time.Time
	Key      Key
	WarningPlace
}

// ThreadWarning is a warning and whose it is.
type ThreadWarning struct {
	ThreadID string
	Key      Key
	Warning
}

// Place is where the warning stands in its tenant's ledger.
func (w *ThreadWarning) Place() LedgerPlace {
	return LedgerPlace{RaisedAt: w.RaisedAt, Key: w.Key, WarningPlace: WarningPlace{Version: w.Version, Ordinal: w.Ordinal}}
}

// WarningPage is a page of a tenant's ledger.
type WarningPage struct {
	Warnings []ThreadWarning
	// Next is where the page ended; zero if there is nothing after it.
	Next LedgerPlace
}

// The page is found along the index of time, or of code and time, which is in the order of the page; only so many rows are
// looked at. The last of them is returned also if it is not of a thread with the labels, since the next page starts there.
const (
	sqlLedgerStart = `
SELECT t.thread_id, t.labels @> $9, w.n = $7, w.thread_key, w.version, w.ordinal, w.run_id, w."offset", w.code, w.path,
       w.detail, w.fatal, w.codec, CASE WHEN t.labels @> $9 THEN w.removed END, w.removed_size, w.raised_at
FROM (
    SELECT thread_key, version, ordinal, run_id, "offset", code, path, detail, fatal, codec, removed, removed_size, raised_at,
           row_number() OVER (ORDER BY raised_at DESC, thread_key DESC, version DESC, ordinal DESC) AS n
    FROM warnings
    WHERE tenant = $1 AND raised_at >= $2 AND (raised_at, thread_key, version, ordinal) < ($3, $4, $5, $6)`
	sqlLedgerEnd = `
    ORDER BY raised_at DESC, thread_key DESC, version DESC, ordinal DESC LIMIT $7
) w JOIN threads t ON t.thread_key = w.thread_key AND t.tenant = $1
WHERE t.labels @> $9 OR w.n = $7
ORDER BY w.raised_at DESC, w.thread_key DESC, w.version DESC, w.ordinal DESC LIMIT $8`
	sqlLedger       = sqlLedgerStart + sqlLedgerEnd
	sqlLedgerOfCode = sqlLedgerStart + ` AND code = $10` + sqlLedgerEnd
)

// ledgerRow is a row of a page, wanted or not, and whether the search went no further.
type ledgerRow struct {
	ThreadWarning
	wanted, last bool
}

func scanLedgerRow(row pgx.CollectableRow) (w ledgerRow, err error) {
	var key pgtype.UUID
	var codec int16
	var path, detail []byte
	removed := (*[]byte)(&w.Removed)
	err = row.Scan(&w.ThreadID, &w.wanted, &w.last, &key, &w.Version, &w.Ordinal, &w.RunID, &w.Offset, &w.Code, &path, &detail,
		&w.Fatal, &codec, removed, &w.RemovedBytes, &w.RaisedAt)
	w.Key, w.Path, w.Detail, w.RaisedAt = key.Bytes, string(path), string(detail), w.RaisedAt.UTC()
	if !w.wanted {
		return w, err
	}
	return w, errors.Join(err, unpackAll(codec, removed))
}

// TenantWarnings implements Store.
func (p *Postgres) TenantWarnings(ctx context.Context, q WarningQuery) (WarningPage, error) {
	scanned := q.Limit + 1
	if len(q.Labels) > 0 {
		scanned = max(scanned, MaxWarningsScanned)
	}
	sql, args := ledgerStatement(&q, scanned)
	rows, err := query(ctx, p, scanLedgerRow, sql, args...)
	if err != nil {
		return WarningPage{}, err
	}
	return pageOfLedger(rows, q.Limit), nil
}

func ledgerStatement(q *WarningQuery, scanned int) (string, []any) {
	place := q.Before
	before := timeOr(place.RaisedAt, pgtype.Infinity)
	if place.RaisedAt.IsZero() || !q.To.IsZero() && !place.RaisedAt.Before(q.To) {
		place, before = LedgerPlace{}, timeOr(q.To, pgtype.Infinity)
	}
	args := []any{
		q.Tenant, timeOr(q.From, pgtype.NegativeInfinity), before, uuid(place.Key), bigint(place.Version), place.Ordinal,
		int64(scanned), int64(q.Limit + 1), labelBytes(q.Labels),
	}
	if q.Code == "" {
		return sqlLedger, args
	}
	return sqlLedgerOfCode, append(args, q.Code)
}

// pageOfLedger is a page of the rows that were found. It ends before the one beyond the limit, or where the search ended,
// and then the next page starts there.
func pageOfLedger(rows []ledgerRow, limit int) (page WarningPage) {
	for i := range rows {
		if len(page.Warnings) == limit {
			page.Next = page.Warnings[limit-1].Place()
			return page
		}
		if rows[i].wanted {
			page.Warnings = append(page.Warnings, rows[i].ThreadWarning)
		}
		if rows[i].last {
			page.Next = rows[i].Place()
		}
	}
	return page
}

func timeOr(t time.Time, absent pgtype.InfinityModifier) pgtype.Timestamptz {
	if t.IsZero() {
		return pgtype.Timestamptz{InfinityModifier: absent, Valid: true}
	}
	return pgtype.Timestamptz{Time: t, Valid: true}
}
