package store

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
)

const sqlInsertSegments = `
INSERT INTO log_segments (thread_key, first_version, last_version, run_id, stream_id,
                          first_offset, next_offset, codec, entries, size, restated)
SELECT thread_key, first_version, last_version, run_id, stream_id, first_offset, next_offset, codec, entries, size,
       nullif(restated, 0)
FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[], $5::text[],
            $6::bigint[], $7::bigint[], $8::smallint[], $9::bigint[], $10::bigint[], $11::bytea[])
    AS s (thread_key, first_version, last_version, run_id, stream_id, first_offset, next_offset, codec, size, restated,
          entries)`

func queueSegments(batch *pgx.Batch, commits []*Commit, held map[chunkName]bool) {
	for _, c := range commits {
		c.findRestated(held)
	}
	batch.Queue(sqlInsertSegments, segmentArgs(commits)...)
}

func segmentArgs(commits []*Commit) []any {
	rows := rowsOf(commits, func(c *Commit) []packedSegment { return c.packed })
	return []any{
		keys(rows),
		column(rows, func(s of[packedSegment]) int64 { return bigint(s.row.FirstVersion) }),
		column(rows, func(s of[packedSegment]) int64 { return bigint(s.row.LastVersion) }),
		column(rows, func(s of[packedSegment]) string { return s.row.RunID }),
		column(rows, func(s of[packedSegment]) string { return s.row.StreamID }),
		column(rows, func(s of[packedSegment]) int64 { return bigint(s.row.FirstOffset) }),
		column(rows, func(s of[packedSegment]) int64 { return bigint(s.row.NextOffset) }),
		column(rows, func(s of[packedSegment]) int16 { return s.row.codec }),
		column(rows, func(s of[packedSegment]) int64 { return int64(len(s.row.Entries)) }),
		column(rows, func(s of[packedSegment]) int64 { return s.row.restated }),
		column(rows, func(s of[packedSegment]) []byte { return s.row.packed }), // last: what comes after it would move it
	}
}

const sqlLogColumns = `
SELECT s.first_version, s.last_version, s.run_id, s.stream_id, s.first_offset, s.next_offset, s.codec, s.entries,
       s.committed_at, s.times, coalesce(s.restated, 0)
FROM log_segments s`

// scanSegment reads a segment. One that does not decode has its Err set and is no error: the others can be read.
func scanSegment(row pgx.CollectableRow) (s Segment, err error) {
	var codec int16
	var stored, times []byte
	err = row.Scan(&s.FirstVersion, &s.LastVersion, &s.RunID, &s.StreamID, &s.FirstOffset, &s.NextOffset, &codec, &stored,
		&s.CommittedAt, &times, &s.restated)
	s.CommittedAt = s.CommittedAt.UTC()
	s.Times = decodeTimes(times, s.FirstVersion, s.CommittedAt)
	s.outlined = codec&codecOutlined != 0
	s.Entries, s.Err = unpack(codec&^codecOutlined, stored)
	return s, err
}

// sqlLog walks from segment to segment, so that it reads no further than the size asks for.
const sqlLog = `
WITH RECURSIVE walk AS (
    (SELECT s.first_version, s.last_version, s.size
     FROM log_segments s
     WHERE s.thread_key = $1 AND s.last_version >= $2
       AND s.first_version >= coalesce((SELECT max(b.first_version) FROM log_segments b
                                        WHERE b.thread_key = $1 AND b.first_version <= $2), 0)
     ORDER BY s.first_version LIMIT 1)
    UNION ALL
    SELECT n.first_version, n.last_version, w.size + n.size
    FROM walk w CROSS JOIN LATERAL (
        SELECT s.first_version, s.last_version, s.size
        FROM log_segments s
        WHERE s.thread_key = $1 AND s.first_version > w.last_version
        ORDER BY s.first_version LIMIT 1) n
    WHERE w.size <= $3
)` + sqlLogColumns + `
JOIN walk w ON w.first_version = s.first_version
WHERE s.thread_key = $1
ORDER BY s.first_version`

// Log implements Store.
func (p *Postgres) Log(ctx context.Context, key Key, from uint64, maxBytes int) ([]Segment, error) {
	segments, err := p.segments(ctx, key, sqlLog, uuid(key), bigint(from), int64(maxBytes))
	if err == nil && !readable(segments, from) {
		err = p.checkKept(ctx, key, from)
	}
	return segments, err
}

// readable reports whether segments begin at a version and can be read.
func readable(segments []Segment, from uint64) bool {
	return len(segments) > 0 && segments[0].FirstVersion <= from &&
		!slices.ContainsFunc(segments, func(s Segment) bool { return s.Err != nil })
}

const sqlFirstVersion = `
SELECT first_version FROM threads
WHERE thread_key = $1`

// checkKept returns a PrunedError if the entry of a version was pruned.
func (p *Postgres) checkKept(ctx context.Context, key Key, version uint64) error {
	first, err := queryOne(ctx, p, pgx.RowTo[uint64], sqlFirstVersion, uuid(key))
	if err == nil && first > 0 && version <= first {
		return &PrunedError{FirstVersion: first, Version: version}
	}
	if errors.Is(err, ErrNotFound) { // deleted, which its callers find out
		return nil
	}
	return err
}

// segments reads segments with everything they refer to.
func (p *Postgres) segments(ctx context.Context, key Key, sql string, args ...any) ([]Segment, error) {
	segments, err := query(ctx, p, scanSegment, sql, args...)
	if err == nil {
		err = p.inlineAll(ctx, key, segments)
	}
	return segments, err
}

// sqlStream needs no index of its own. A stream is named by its first run, and its runs follow one another; they bound its
// versions: from the first run's start, and what the stream brought just before it, to the start of the run after. Within them versions and offsets grow together, so the last
// segment that begins at or before $3 is found by bisection over the primary key; reading stops at the first segment that
// begins at or after $4.
const sqlStream = `
WITH RECURSIVE started AS (
    SELECT r.ordinal, r.first_version AS version FROM runs r
    WHERE r.thread_key = $1 AND r.run_id = $2
), bounds AS (
    SELECT coalesce((SELECT max(p.first_version) + 1 FROM (
                         SELECT s.first_version, s.stream_id FROM log_segments s
                         WHERE s.thread_key = $1 AND s.first_version < (SELECT version FROM started)
                         ORDER BY s.first_version DESC LIMIT 16) p
                     WHERE p.stream_id <> $2), 0) AS low,
           coalesce((SELECT r.first_version FROM runs r
                     WHERE r.thread_key = $1 AND r.ordinal > (SELECT ordinal FROM started) AND r.stream_id <> $2
                     ORDER BY r.ordinal LIMIT 1),
                    (SELECT t.version + 1 FROM threads t WHERE t.thread_key = $1), 0) AS high
), bisection AS (
    SELECT low, high FROM bounds
    UNION ALL
    SELECT CASE WHEN n.first_offset <= $3 THEN n.first_version ELSE b.low END,
           CASE WHEN n.first_offset <= $3 THEN b.high ELSE b.low + (b.high - b.low) / 2 END
    FROM bisection b LEFT JOIN LATERAL (
        SELECT s.first_version, s.first_offset FROM log_segments s
        WHERE s.thread_key = $1 AND s.first_version >= b.low + (b.high - b.low) / 2 AND s.first_version < b.high
          AND s.stream_id = $2 AND s.next_offset > s.first_offset
        ORDER BY s.first_version LIMIT 1) n ON true
    WHERE b.high - b.low > 1
), first AS (
    SELECT max(low) AS version FROM bisection
), last AS (
    SELECT coalesce((SELECT s.first_version FROM log_segments s
                     WHERE s.thread_key = $1 AND s.first_version >= (SELECT version FROM first)
                       AND s.first_version < (SELECT high FROM bounds) AND s.stream_id = $2 AND s.first_offset >= $4
                     ORDER BY s.first_version LIMIT 1),
                    (SELECT high FROM bounds)) AS version
)` + sqlLogColumns + `
WHERE s.thread_key = $1 AND s.first_version >= (SELECT version FROM first) AND s.first_version < (SELECT version FROM last)
  AND s.stream_id = $2 AND s.first_offset < $4 AND s.next_offset > greatest($3, s.first_offset)
ORDER BY s.first_version`

// Stream implements Store.
func (p *Postgres) Stream(ctx context.Context, key Key, streamID string, from, to uint64) ([]Segment, error) {
	return p.segments(ctx, key, sqlStream, uuid(key), streamID, bigint(from), bigint(to))
}
