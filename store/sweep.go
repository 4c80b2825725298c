package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

const sqlUnswept = `
SELECT thread_key FROM prunings
ORDER BY began_at LIMIT $1`

// Unswept implements Store.
func (p *Postgres) Unswept(ctx context.Context, limit int) ([]Key, error) {
	return query(ctx, p, func(row pgx.CollectableRow) (key Key, err error) {
		var id pgtype.UUID
		err = row.Scan(&id)
		return id.Bytes, err
	}, sqlUnswept, int64(limit))
}

// sqlLockPruning takes a thread's garbage in hand; nothing if somebody else has it. The lock of the head keeps out a Delete
// and a cut; appends go on.
const sqlLockPruning = `
SELECT t.first_version, t.pruned_runs FROM prunings p JOIN threads t ON t.thread_key = p.thread_key
WHERE p.thread_key = $1
FOR UPDATE OF p SKIP LOCKED FOR KEY SHARE OF t SKIP LOCKED`

// garbage are the tables with rows before the first version. Each statement removes at most $3 of them.
var garbage = []struct {
	sql    string
	byRuns bool // $2 is the number of runs before, not the version
}{
	{sql: `
DELETE FROM log_segments WHERE thread_key = $1 AND first_version IN (
    SELECT first_version FROM log_segments WHERE thread_key = $1 AND first_version <= $2 ORDER BY first_version LIMIT $3)`},
	{sql: `
DELETE FROM warnings WHERE thread_key = $1 AND (version, ordinal) IN (
    SELECT version, ordinal FROM warnings WHERE thread_key = $1 AND version <= $2 ORDER BY version, ordinal LIMIT $3)`},
	{sql: `
DELETE FROM runs WHERE thread_key = $1 AND ordinal IN (
    SELECT ordinal FROM runs WHERE thread_key = $1 AND ordinal <= $2 ORDER BY ordinal LIMIT $3)`, byRuns: true},
	{sql: `
DELETE FROM checkpoints WHERE thread_key = $1 AND version IN (
    SELECT version FROM checkpoints WHERE thread_key = $1 AND version < $2 ORDER BY version LIMIT $3)`},
}

// pruning is a thread whose garbage is in hand.
type pruning struct {
	key     Key
	version uint64
	runs    int64
}

// Sweep implements Store. Rows go first, each call removing a limited number; then the state is stored without what was
// before the cut, and then the contents go that nothing refers to any more.
func (p *Postgres) Sweep(ctx context.Context, key Key, limit int) (more bool, err error) {
	at := pruning{key: key}
	var held bool
	var left int
	err = p.write(ctx, func(tx pgx.Tx) (err error) {
		left = limit
		if held, err = at.lock(ctx, tx); err != nil || !held {
			return err
		}
		for i := range garbage {
			if left, err = at.remove(ctx, tx, i, left); err != nil || left == 0 {
				return err
			}
		}
		return nil
	})
	if err != nil || !held || left == 0 {
		return err == nil && held, classify(err)
	}
	if err := p.rebaseState(ctx, &at); err != nil {
		return false, err
	}
	if err := p.sweepContents(ctx, &at, limit); err != nil {
		return false, err
	}
	return false, p.endSweep(ctx, &at)
}

func (at *pruning) lock(ctx context.Context, tx pgx.Tx) (held bool, err error) {
	err = tx.QueryRow(ctx, sqlLockPruning, uuid(at.key)).Scan(&at.version, &at.runs)
	return err == nil, noRows(err)
}

// remove removes rows of one of the tables with garbage, at most limit, and returns how many more may be removed.
func (at *pruning) remove(ctx context.Context, tx pgx.Tx, table, limit int) (left int, err error) {
	place := bigint(at.version)
	if garbage[table].byRuns {
		place = at.runs
	}
	var tag pgconn.CommandTag
	tag, err = tx.Exec(ctx, garbage[table].sql, uuid(at.key), place, int64(limit))
	return limit - int(tag.RowsAffected()), err
}

// sqlSettleSums makes the last checkpoint add up what is left: the checkpoint of the cut counts as log.
const sqlSettleSums = `
WITH kept AS (
    SELECT max(version) AS last, sum(stored_size) AS all_stored, sum(greatest(stored_size - octet_length(fold), 0)) AS own,
           sum(stored_size) FILTER (WHERE version = $2) AS cut
    FROM checkpoints
    WHERE thread_key = $1
)
UPDATE checkpoints c
SET all_stored = k.all_stored, own_chunks = k.own,
    log_stored = coalesce(k.cut, 0) + (SELECT coalesce(sum(octet_length(s.entries)), 0) FROM log_segments s
                                       WHERE s.thread_key = $1 AND s.first_version > $2 AND s.last_version <= k.last)
FROM kept k
WHERE c.thread_key = $1 AND c.version = k.last`

// sqlEndSweep leaves the garbage of a cut that came meanwhile.
const sqlEndSweep = `
DELETE FROM prunings p USING threads t
WHERE p.thread_key = $1 AND t.thread_key = p.thread_key AND t.first_version = $2`

// endSweep notes that nothing is left to remove.
func (p *Postgres) endSweep(ctx context.Context, at *pruning) error {
	swept := *at
	return classify(p.write(ctx, func(tx pgx.Tx) error {
		held, err := at.lock(ctx, tx)
		if err != nil || !held || at.version != swept.version {
			return err
		}
		batch := &pgx.Batch{}
		batch.Queue(sqlSettleSums, uuid(at.key), bigint(at.version))
		batch.Queue(sqlEndSweep, uuid(at.key), bigint(at.version))
		return tx.SendBatch(ctx, batch).Close()
	}))
}

// sqlStateBefore asks whether there are patches, on a document that is not newer than version $2.
const sqlStateBefore = `
SELECT EXISTS (SELECT 1 FROM state_patches WHERE thread_key = $1)
   AND NOT EXISTS (SELECT 1 FROM states WHERE thread_key = $1 AND version > $2)`

// sqlLockForRebase is a statement of its own, before that which reads the fold's version: one that has waited for a lock reads
// the locked row anew, and all others as they were before it waited.
const sqlLockForRebase = `
SELECT 1 FROM threads
WHERE thread_key = $1
FOR UPDATE`

const sqlRebasedSizes = `
UPDATE folds SET state_size = $2, patches_size = 0
WHERE thread_key = $1`

// rebaseState stores a state as one document if a part of what it is stored as is older than the cut: a document may have
// what patches removed since. It is computed before the head is locked, and only written if the fold is still the same.
func (p *Postgres) rebaseState(ctx context.Context, at *pruning) error {
	old, err := queryOne(ctx, p, pgx.RowTo[bool], sqlStateBefore, uuid(at.key), bigint(at.version))
	if err != nil || !old {
		return err
	}
	var rows foldRows
	if err := p.snapshot(ctx, func(batch *pgx.Batch) {
		batch.Queue(sqlFolded, uuid(at.key), true).Query(rows.read)
	}); err != nil {
		return classify(err)
	}
	folded, err := rows.fold()
	if err != nil || folded.Fold.State == nil {
		return err
	}
	return classify(p.write(ctx, func(tx pgx.Tx) error {
		var version uint64
		err := tx.QueryRow(ctx, sqlLockForRebase, uuid(at.key)).Scan(nil)
		if err == nil {
			err = tx.QueryRow(ctx, sqlFoldVersion, uuid(at.key)).Scan(&version)
		}
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrNotFound
		}
		if err != nil {
			return err
		}
		if version != folded.Fold.Version {
			return errBusy
		}
		write := stateWrite{key: at.key, base: []baseDoc{{version, folded.Fold.State}}}
		batch := &pgx.Batch{}
		queueStates(batch, []stateWrite{write})
		batch.Queue(sqlRebasedSizes, uuid(at.key), int64(len(folded.Fold.State)))
		return tx.SendBatch(ctx, batch).Close()
	}))
}

// errBusy ends a sweep that writers were faster than; it is tried again later.
var errBusy = fmt.Errorf("%w: the sweep gives way", ErrConflict)
