package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// sqlVersionAt finds the last segment that began at or before a time, by bisection over the primary key: versions and
// times grow together. A segment that was merged of several has their times.
const sqlVersionAt = `
WITH RECURSIVE head AS (
    SELECT t.version FROM threads t WHERE t.thread_key = $1
), bisection AS (
    SELECT 0::bigint AS low, h.version + 1 AS high FROM head h
    UNION ALL
    SELECT CASE WHEN n.committed_at <= $2 THEN n.first_version ELSE b.low END,
           CASE WHEN n.committed_at <= $2 THEN b.high ELSE b.low + (b.high - b.low) / 2 END
    FROM bisection b LEFT JOIN LATERAL (
        SELECT s.first_version, s.committed_at FROM log_segments s
        WHERE s.thread_key = $1 AND s.first_version >= b.low + (b.high - b.low) / 2 AND s.first_version < b.high
        ORDER BY s.first_version LIMIT 1) n ON true
    WHERE b.high - b.low > 1
)
SELECT s.first_version, s.last_version, s.committed_at, s.times, t.first_version, coalesce(t.first_at <= $2, true)
FROM (SELECT max(low) AS version FROM bisection) f
JOIN threads t ON t.thread_key = $1
LEFT JOIN log_segments s ON s.thread_key = $1 AND s.first_version = f.version
WHERE f.version IS NOT NULL`

// VersionAt implements Store.
func (p *Postgres) VersionAt(ctx context.Context, key Key, at time.Time) (uint64, error) {
	return queryOne(ctx, p, func(row pgx.CollectableRow) (uint64, error) {
		var first, last *uint64
		var committed *time.Time
		var times []byte
		var kept, version uint64
		var reached bool // the time is not before that of the first version kept
		err := row.Scan(&first, &last, &committed, &times, &kept, &reached)
		switch {
		case err != nil:
			return 0, err
		case !reached:
			return 0, &PrunedError{FirstVersion: kept}
		case first != nil:
			s := Segment{FirstVersion: *first, LastVersion: *last, CommittedAt: *committed}
			s.Times = decodeTimes(times, *first, *committed)
			version = s.versionAt(at)
		}
		return max(version, kept), nil
	}, sqlVersionAt, uuid(key), at)
}

// versionAt is the last of the segment's versions that was committed at or before a time; the segment began before it.
func (s *Segment) versionAt(at time.Time) uint64 {
	if s.Times == nil {
		return s.LastVersion
	}
	version := s.FirstVersion - 1
	for _, span := range s.Times {
		if !span.CommittedAt.After(at) {
			version = span.LastVersion
		}
	}
	return version
}
