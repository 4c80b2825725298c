package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// WarningSummary counts warnings.
type WarningSummary struct {
	// Groups, the largest first, at most MaxWarningGroups; More if there are others.
	Groups []WarningGroup
	More   bool
	// Since is how far back the warnings were counted if there are MaxWarningsCounted or more; zero if all were.
	Since time.Time
}

// WarningGroup counts the warnings of one code on the threads with one value of a label.
type WarningGroup struct {
	Code, Value    string
	Count, Threads int64
	First, Last    time.Time
}

// A label is its name, NUL, and its value. What is counted is bounded before threads are looked up, and found along an index.
const (
	sqlSummaryStart = `
WITH counted AS MATERIALIZED (
    SELECT thread_key, code, raised_at FROM warnings
    WHERE tenant = $1 AND raised_at >= coalesce($2::timestamptz, coalesce($3::timestamptz, now()) - interval '7 days')
      AND raised_at < coalesce($3::timestamptz, 'infinity')`
	sqlSummaryEnd = `
    ORDER BY raised_at DESC LIMIT $4
), threads_with AS (
    SELECT t.thread_key, coalesce((SELECT substring(l FROM octet_length($6::bytea) + 1) FROM unnest(t.labels) l
                                   WHERE substring(l FROM 1 FOR octet_length($6::bytea)) = $6::bytea LIMIT 1), '') AS value
    FROM threads t
    WHERE t.thread_key IN (SELECT DISTINCT thread_key FROM counted) AND t.tenant = $1 AND t.labels @> $7
), groups AS (
    SELECT c.code, t.value, count(*) AS n, count(DISTINCT c.thread_key) AS threads, min(c.raised_at) AS first, max(c.raised_at) AS last
    FROM counted c JOIN threads_with t USING (thread_key)
    GROUP BY c.code, t.value
    ORDER BY n DESC, c.code, t.value LIMIT $5
)
SELECT s.n, s.since, coalesce(g.code, ''), g.value, coalesce(g.n, 0), coalesce(g.threads, 0), g.first, g.last
FROM (SELECT count(*) AS n, min(raised_at) AS since FROM counted) s LEFT JOIN groups g ON true
ORDER BY g.n DESC, g.code, g.value`
	sqlSummary       = sqlSummaryStart + sqlSummaryEnd
	sqlSummaryOfCode = sqlSummaryStart + ` AND code = $8` + sqlSummaryEnd
)

// summaryRow is a group, and what is known of all.
type summaryRow struct {
	WarningGroup
	counted int64
	since   time.Time
}

func scanSummaryRow(row pgx.CollectableRow) (r summaryRow, err error) {
	var value []byte
	var since, first, last *time.Time
	err = row.Scan(&r.counted, &since, &r.Code, &value, &r.Count, &r.Threads, &first, &last)
	r.Value, r.since, r.First, r.Last = string(value), timeOrZero(since), timeOrZero(first), timeOrZero(last)
	return r, err
}

// SummarizeWarnings implements Store. Without a From the range begins 7 days before its end, which is now if there is no To.
func (p *Postgres) SummarizeWarnings(ctx context.Context, q WarningQuery, label string) (s WarningSummary, err error) {
	sql, args := summaryStatement(&q, label)
	rows, err := query(ctx, p, scanSummaryRow, sql, args...)
	if err != nil {
		return s, err
	}
	for _, row := range rows {
		if row.counted == MaxWarningsCounted {
			s.Since = row.since
		}
		if s.More = len(s.Groups) == MaxWarningGroups; !s.More && row.Count > 0 {
			s.Groups = append(s.Groups, row.WarningGroup)
		}
	}
	return s, nil
}

func summaryStatement(q *WarningQuery, label string) (string, []any) {
	args := []any{
		q.Tenant, timeOrNull(q.From), timeOrNull(q.To), int64(MaxWarningsCounted), int64(MaxWarningGroups + 1),
		labelStart(label), labelBytes(q.Labels),
	}
	if q.Code == "" {
		return sqlSummary, args
	}
	return sqlSummaryOfCode, append(args, q.Code)
}

// labelStart is how the labels of a name begin; none does for no name.
func labelStart(name string) []byte {
	if name == "" {
		return nil
	}
	return []byte(name + "\x00")
}

func timeOrNull(t time.Time) pgtype.Timestamptz {
	return pgtype.Timestamptz{Time: t, Valid: !t.IsZero()}
}
