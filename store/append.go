package store

import (
	"context"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// sqlAppend is the whole of a group of commits that bring entries of the runs under way and nothing else: one statement, one
// round trip. Of the head only what such a commit changes is sent; the rest of the segment's row is the head's. Heads are locked
// and compared, and leases written anew, as by sqlUpdateHeads.
const sqlAppend = `
WITH input AS (
    SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[], $6::text[], $7::bigint[],
                         $8::bigint[], $9::boolean[], $10::bigint[], $11::smallint[], $12::bytea[], $13::bigint[])
        AS i (thread_key, expect_version, expect_fence, version, log_hash, stream_id, next_offset,
              lease_ttl_ms, keep_lease, first_offset, codec, entries, size)
), locked AS MATERIALIZED (
    SELECT i.* FROM input i JOIN threads t ON t.thread_key = i.thread_key
    FOR NO KEY UPDATE OF t SKIP LOCKED
), heads AS (
    UPDATE threads t
    SET version = i.version, log_hash = i.log_hash, stream_id = i.stream_id, next_offset = i.next_offset,
        lease_ttl_ms = i.lease_ttl_ms,
        lease_expires_at = CASE
            WHEN NOT i.keep_lease AND t.lease_expires_at < now() + i.lease_ttl_ms * interval '0.5 milliseconds'
            THEN now() + i.lease_ttl_ms * interval '1 millisecond'
            ELSE t.lease_expires_at
        END
    FROM locked i
    WHERE t.thread_key = i.thread_key AND t.version = i.expect_version AND t.fence = i.expect_fence
    RETURNING t.thread_key, t.lease_expires_at, i.expect_version, t.version, t.active_run, t.stream_id,
              i.first_offset, t.next_offset, i.codec, i.entries, i.size
), segments AS (
    INSERT INTO log_segments (thread_key, first_version, last_version, run_id, stream_id,
                              first_offset, next_offset, codec, entries, size)
    SELECT thread_key, expect_version + 1, version, coalesce(active_run, ''), stream_id,
           first_offset, next_offset, codec, entries, size
    FROM heads WHERE version > expect_version
)
SELECT thread_key, lease_expires_at, now() FROM heads`

// onlyAppends reports whether commits can be written by sqlAppend.
func onlyAppends(commits []*Commit) bool {
	for _, c := range commits {
		if !c.onlyAppends() {
			return false
		}
	}
	return true
}

// onlyAppends reports whether the commit only adds entries of the run under way, or renews its lease.
func (c *Commit) onlyAppends() bool {
	if c.Create != nil || c.Fold != nil || c.Fence != c.ExpectFence || c.ExpectExpired || c.RunStarted ||
		len(c.Opened)+len(c.Updated)+len(c.Warnings)+len(c.chunks) > 0 || len(c.Segments) > 1 {
		return false
	}
	for i := range c.Segments {
		s := &c.Segments[i]
		if s.RunID != c.ActiveRun || s.StreamID != c.StreamID || s.NextOffset != c.NextOffset {
			return false
		}
	}
	return true
}

// appendEntries writes commits that only append and returns the heads that matched.
func appendEntries(ctx context.Context, db *pgxpool.Pool, commits []*Commit) (heads []written, err error) {
	rows, err := db.Query(ctx, sqlAppend, appendArgs(commits)...)
	if err != nil {
		return nil, err
	}
	err = collectWritten(&heads)(rows)
	return heads, err
}

func appendArgs(commits []*Commit) []any {
	segments := column(commits, func(c *Commit) packedSegment {
		if len(c.packed) == 0 {
			return packedSegment{}
		}
		return c.packed[0]
	})
	return []any{
		column(commits, func(c *Commit) pgtype.UUID { return uuid(c.Key) }),
		column(commits, func(c *Commit) int64 { return bigint(c.ExpectVersion) }),
		column(commits, func(c *Commit) int64 { return bigint(c.ExpectFence) }),
		column(commits, func(c *Commit) int64 { return bigint(c.Version) }),
		column(commits, func(c *Commit) []byte { return c.Hash[:] }),
		column(commits, func(c *Commit) string { return c.StreamID }),
		column(commits, func(c *Commit) int64 { return bigint(c.NextOffset) }),
		column(commits, func(c *Commit) int64 { return c.LeaseTTL.Milliseconds() }),
		column(commits, func(c *Commit) bool { return c.KeepLease }),
		column(segments, func(s packedSegment) int64 { return bigint(s.FirstOffset) }),
		column(segments, func(s packedSegment) int16 { return s.codec }),
		column(segments, func(s packedSegment) []byte { return s.packed }),
		column(segments, func(s packedSegment) int64 { return int64(len(s.Entries)) }),
	}
}
