package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// sqlPlanCut decides where a thread is to be cut: at the end of a run, after which a run begins that began a producer
// stream of its own. The last run is kept, and the last with an ordinary end (2 finished, 3 interrupted, 4 cancelled), from
// whose state others may start. Its cost is that of the runs and the segments that are kept.
const sqlPlanCut = `
WITH head AS (
    SELECT runs, pruned_runs FROM threads
    WHERE thread_key = $1
), wanted AS (
    SELECT greatest(
        CASE WHEN $2::bigint > 0 THEN (SELECT runs FROM head) - $2 END,
        CASE WHEN $3::bigint > 0 THEN (SELECT max(ordinal) FROM runs
            WHERE thread_key = $1 AND ended_at < now() - $3 * interval '1 microsecond') END,
        CASE WHEN $4::bigint > 0 THEN (SELECT max(ordinal) FROM runs
            WHERE thread_key = $1 AND first_version <= (
                SELECT max(s.first_version) FROM (
                    SELECT first_version, sum(size) OVER (ORDER BY first_version DESC) AS total FROM log_segments
                    WHERE thread_key = $1) s
                WHERE s.total > $4)) END,
        CASE WHEN $5::bigint > 0 THEN (SELECT max(ordinal) FROM runs
            WHERE thread_key = $1 AND status <> 1 AND last_version <= $5) END) AS ordinal
), allowed AS (
    SELECT least((SELECT ordinal FROM wanted), (SELECT runs FROM head) - 1,
        (SELECT coalesce(max(ordinal), 0) - 1 FROM runs WHERE thread_key = $1 AND status IN (2, 3, 4)),
        CASE WHEN $6::bigint > 0 THEN (SELECT coalesce(max(ordinal), 0) FROM runs
            WHERE thread_key = $1 AND ended_at < now() - $6 * interval '1 microsecond') END) AS ordinal
), cut AS (
    SELECT r.ordinal, greatest(r.last_version, s.last_version) AS version, s.first_version, s.last_version, s.committed_at, s.times
    FROM runs r
    JOIN runs n ON n.thread_key = r.thread_key AND n.ordinal = r.ordinal + 1 AND n.stream_id = n.run_id
    CROSS JOIN LATERAL (
        SELECT g.first_version, g.last_version, g.committed_at, g.times FROM log_segments g
        WHERE g.thread_key = r.thread_key AND g.first_version <= r.last_version
        ORDER BY g.first_version DESC LIMIT 1) s
    WHERE r.thread_key = $1 AND r.ordinal <= (SELECT ordinal FROM allowed)
      AND (SELECT ordinal FROM wanted) IS NOT NULL AND r.ordinal > (SELECT pruned_runs FROM head) AND r.status <> 1
      AND greatest(r.last_version, s.last_version) < n.first_version
      AND ($5 = 0 OR greatest(r.last_version, s.last_version) <= $5)
    ORDER BY r.ordinal DESC LIMIT 1
)
SELECT coalesce(c.ordinal, 0), coalesce(c.version, 0), coalesce(c.first_version, 0), c.committed_at, c.times,
       least(CASE WHEN $3 > 0 THEN (SELECT min(ended_at) FROM runs
                 WHERE thread_key = $1 AND ended_at >= now() - $3 * interval '1 microsecond') + $3 * interval '1 microsecond' END,
             CASE WHEN $6 > 0 AND (SELECT ordinal FROM wanted) > (SELECT ordinal FROM allowed) THEN (SELECT min(ended_at) FROM runs
                 WHERE thread_key = $1 AND ended_at >= now() - $6 * interval '1 microsecond') + $6 * interval '1 microsecond' END)
FROM head h LEFT JOIN cut c ON true`

// PlanCut implements Store.
func (p *Postgres) PlanCut(ctx context.Context, key Key, keep Keep) (Plan, error) {
	var heads []Head
	var plans []Plan
	err := retry(ctx, safeRead, func() error {
		heads, plans = nil, nil
		return p.snapshot(ctx, func(batch *pgx.Batch) {
			batch.Queue(sqlHead, uuid(key)).Query(collect(&heads, scanHead))
			batch.Queue(sqlPlanCut, uuid(key), keep.MaxRuns, keep.MaxAge.Microseconds(), keep.MaxBytes, bigint(keep.Before),
				keep.Grace.Microseconds()).Query(collect(&plans, scanPlan))
		})
	})
	if err != nil {
		return Plan{}, classify(err)
	}
	if len(heads) == 0 || len(plans) == 0 {
		return Plan{}, ErrNotFound
	}
	plans[0].Head = heads[0]
	return plans[0], nil
}

func scanPlan(row pgx.CollectableRow) (p Plan, err error) {
	s := Segment{}
	var committed, next *time.Time
	var times []byte
	err = row.Scan(&p.Cut.Run, &p.Cut.Version, &s.FirstVersion, &committed, &times, &next)
	s.CommittedAt = timeOrZero(committed)
	s.Times = decodeTimes(times, s.FirstVersion, s.CommittedAt)
	p.Cut.CommittedAt, p.Next = s.CommitTime(p.Cut.Version), timeOrZero(next)
	return p, err
}

const sqlUpsertCut = `
INSERT INTO checkpoints (thread_key, version, codec, fold, hash, log_hash, size, stored_size, log_stored, all_stored, own_chunks)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, $8, $9)
ON CONFLICT (thread_key, version) DO UPDATE
SET codec = excluded.codec, fold = excluded.fold, hash = excluded.hash, log_hash = excluded.log_hash, size = excluded.size`

// queueCut writes the checkpoint of a cut. It stands for the log before it, and so counts as log as well as a checkpoint.
func (f *packedFold) queueCut(batch *pgx.Batch, key Key, chunks int64) {
	batch.Queue(sqlUpsertCut, uuid(key), bigint(f.version), f.codec, f.fold, f.hash, f.logHash, f.size,
		int64(len(f.fold))+chunks, chunks)
}

// sqlLockForCut keeps out a Delete and another cut, beyond which the checkpoint would be garbage that nobody removes.
const sqlLockForCut = `
SELECT first_version < $2 FROM threads
WHERE thread_key = $1
FOR KEY SHARE`

// PutCut implements Store.
func (p *Postgres) PutCut(ctx context.Context, key Key, c Checkpoint) error {
	f := packCheckpoint(&c)
	commit := []*Commit{{Key: key, chunks: f.chunks}}
	opts := pgx.TxOptions{IsoLevel: pgx.ReadCommitted}
	return classify(pgx.BeginTxFunc(ctx, p.pool, opts, func(tx pgx.Tx) error {
		held := map[chunkName]bool{}
		var found, ahead bool
		batch := &pgx.Batch{}
		batch.Queue(sqlLockForCut, uuid(key), bigint(f.version)).QueryRow(func(row pgx.Row) error {
			err := row.Scan(&ahead)
			found = err == nil
			return noRows(err)
		})
		queueHeldContents(batch, commit, held)
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return err
		}
		switch {
		case !found:
			return ErrNotFound
		case !ahead:
			return ErrConflict
		}
		batch = &pgx.Batch{}
		queueContents(batch, commit, held)
		f.queueCut(batch, key, f.newChunks(key, held))
		return tx.SendBatch(ctx, batch).Close()
	}))
}

// sqlCut compares what the cut was planned by, under the lock of the head.
const sqlCut = `
UPDATE threads t SET first_version = $2, first_hash = $4, first_at = $5, pruned_runs = $3
WHERE t.thread_key = $1 AND t.active_run IS NULL AND t.first_version < $2 AND t.pruned_runs < $3 AND t.version >= $2
  AND EXISTS (SELECT 1 FROM checkpoints c WHERE c.thread_key = $1 AND c.version = $2 AND c.log_hash = $4)
  AND EXISTS (SELECT 1 FROM runs r WHERE r.thread_key = $1 AND r.ordinal = $3 AND r.status <> 1 AND r.last_version <= $2)
  AND EXISTS (SELECT 1 FROM runs n WHERE n.thread_key = $1 AND n.ordinal = $3 + 1 AND n.first_version > $2)
  AND EXISTS (SELECT 1 FROM folds f WHERE f.thread_key = $1 AND f.version >= $2)
  AND (SELECT s.last_version FROM log_segments s WHERE s.thread_key = $1 AND s.first_version <= $2
       ORDER BY s.first_version DESC LIMIT 1) = $2`

const sqlBeginSweep = `
INSERT INTO prunings (thread_key) VALUES ($1)
ON CONFLICT (thread_key) DO NOTHING`

// Cut implements Store.
func (p *Postgres) Cut(ctx context.Context, key Key, cut CutPlace, hash [32]byte) error {
	_, err := p.withHead(ctx, key, func(tx pgx.Tx, head *Head) error {
		tag, err := tx.Exec(ctx, sqlCut, uuid(key), bigint(cut.Version), cut.Run, hash[:], cut.CommittedAt)
		if err == nil && tag.RowsAffected() == 0 {
			return ErrConflict
		}
		if err == nil {
			_, err = tx.Exec(ctx, sqlBeginSweep, uuid(key))
		}
		return err
	})
	return classify(err)
}
