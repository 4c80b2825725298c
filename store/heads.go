package store

import (
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// sqlUpdateHeads is the compare and update of heads. A row that somebody else has locked is left
// out, so that its thread does not hold up the others; see sqlLocked. A row that another writer has changed meanwhile is
// compared again in its new form, which is what READ COMMITTED does.
//
// The lease is written anew when it is granted (no lease yet, or another fence) or half used up; so a head is rewritten
// with the same lease most of the time, and a lease always lasts at least half of its time from now.
const sqlUpdateHeads = `
WITH input AS (
    SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bytea[], $4::bigint[], $5::text[], $6::bigint[], $7::text[],
                         $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::boolean[], $13::boolean[],
                         $14::boolean[])
        AS i (thread_key, version, log_hash, fence, stream_id, next_offset, active_run, lease_ttl_ms,
              runs, expect_version, expect_fence, run_started, expect_expired, keep_lease)
), locked AS MATERIALIZED (
    SELECT i.* FROM input i JOIN threads t ON t.thread_key = i.thread_key
    FOR NO KEY UPDATE OF t SKIP LOCKED
), heads AS (
    UPDATE threads t
    SET version = i.version, log_hash = i.log_hash, fence = i.fence, stream_id = i.stream_id,
        next_offset = i.next_offset, active_run = nullif(i.active_run, ''), lease_ttl_ms = i.lease_ttl_ms,
        lease_expires_at = CASE
            WHEN i.active_run = '' THEN NULL
            WHEN t.lease_expires_at IS NULL OR t.fence <> i.fence
                OR NOT i.keep_lease AND t.lease_expires_at < now() + i.lease_ttl_ms * interval '0.5 milliseconds'
            THEN now() + i.lease_ttl_ms * interval '1 millisecond'
            ELSE t.lease_expires_at
        END,
        last_run_at = CASE WHEN i.run_started THEN now() ELSE t.last_run_at END,
        prune_due = CASE WHEN i.run_started THEN least(t.prune_due, now()) ELSE t.prune_due END,
        runs = i.runs
    FROM locked i
    WHERE t.thread_key = i.thread_key AND t.version = i.expect_version AND t.fence = i.expect_fence
      AND (t.lease_expires_at < now() OR NOT i.expect_expired)
    RETURNING t.thread_key, t.lease_expires_at
)
SELECT thread_key, lease_expires_at, now() FROM heads`

// sqlCreateHeads waits for others who are making or erasing the same threads, and this for not too long, as all that follows
// in its transaction: the other threads of the group stand behind it. Whoever is in the way longer is met again later.
const sqlCreateHeads = `
INSERT INTO threads (thread_key, version, log_hash, fence, stream_id, next_offset, active_run, lease_ttl_ms,
                     lease_expires_at, runs, tenant, thread_id, metadata, metadata_hash, labels)
SELECT i.thread_key, i.version, i.log_hash, i.fence, i.stream_id, i.next_offset, nullif(i.active_run, ''), i.lease_ttl_ms,
       CASE WHEN i.active_run <> '' THEN now() + i.lease_ttl_ms * interval '1 millisecond' END,
       i.runs, i.tenant, i.thread_id, i.metadata, sha256(i.metadata),
       (SELECT coalesce(array_agg(l.label ORDER BY l.place), '{}')
        FROM unnest($13::uuid[], $14::bytea[]) WITH ORDINALITY AS l (thread_key, label, place)
        WHERE l.thread_key = i.thread_key)
FROM unnest($1::uuid[], $2::bigint[], $3::bytea[], $4::bigint[], $5::text[], $6::bigint[], $7::text[],
            $8::bigint[], $9::bigint[], $10::text[], $11::text[], $12::bytea[])
    AS i (thread_key, version, log_hash, fence, stream_id, next_offset, active_run, lease_ttl_ms,
          runs, tenant, thread_id, metadata),
    (SELECT set_config('lock_timeout', '250ms', true)) AS patience
ORDER BY i.thread_key
ON CONFLICT (thread_key) DO NOTHING
RETURNING thread_key, lease_expires_at, now()`

// written is a head that took a commit.
type written struct {
	key            Key
	leaseExpiresAt *time.Time
	now            time.Time
}

func scanWritten(row pgx.CollectableRow) (w written, err error) {
	var key pgtype.UUID
	err = row.Scan(&key, &w.leaseExpiresAt, &w.now)
	w.key = key.Bytes
	return w, err
}

func collectWritten(into *[]written) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		heads, err := pgx.CollectRows(rows, scanWritten)
		*into = append(*into, heads...)
		return err
	}
}

// queueHeads compares and writes the heads of commits; deleted gets those that were not made because they were erased before.
func queueHeads(batch *pgx.Batch, commits []*Commit, heads *[]written, deleted map[Key]time.Time) {
	var creates, updates []*Commit
	for _, c := range commits {
		if c.Create != nil {
			creates = append(creates, c)
		} else {
			updates = append(updates, c)
		}
	}
	if len(creates) > 0 {
		batch.Queue(sqlCreateHeads, createArgs(creates)...).Query(collectWritten(heads))
		queueTombstones(batch, creates, deleted)
	}
	if len(updates) > 0 {
		batch.Queue(sqlUpdateHeads, headArgs(updates)...).Query(collectWritten(heads))
	}
}

// standingArgs are the columns that creating and updating a head begin with.
func standingArgs(commits []*Commit) []any {
	return []any{
		column(commits, func(c *Commit) pgtype.UUID { return uuid(c.Key) }),
		column(commits, func(c *Commit) int64 { return bigint(c.Version) }),
		column(commits, func(c *Commit) []byte { return c.Hash[:] }),
		column(commits, func(c *Commit) int64 { return bigint(c.Fence) }),
		column(commits, func(c *Commit) string { return c.StreamID }),
		column(commits, func(c *Commit) int64 { return bigint(c.NextOffset) }),
		column(commits, func(c *Commit) string { return c.ActiveRun }),
		column(commits, func(c *Commit) int64 { return c.LeaseTTL.Milliseconds() }),
		column(commits, func(c *Commit) int64 { return c.Runs }),
	}
}

func headArgs(commits []*Commit) []any {
	return append(standingArgs(commits),
		column(commits, func(c *Commit) int64 { return bigint(c.ExpectVersion) }),
		column(commits, func(c *Commit) int64 { return bigint(c.ExpectFence) }),
		column(commits, func(c *Commit) bool { return c.RunStarted }),
		column(commits, func(c *Commit) bool { return c.ExpectExpired }),
		column(commits, func(c *Commit) bool { return c.KeepLease }),
	)
}

func createArgs(commits []*Commit) []any {
	labels := rowsOf(commits, func(c *Commit) []string { return c.Create.Metadata.KeptLabels() })
	return append(standingArgs(commits),
		column(commits, func(c *Commit) string { return c.Create.Tenant }),
		column(commits, func(c *Commit) string { return c.Create.ThreadID }),
		column(commits, func(c *Commit) []byte { return c.Create.Metadata.Text }),
		keys(labels),
		column(labels, func(l of[string]) []byte { return []byte(*l.row) }),
	)
}
