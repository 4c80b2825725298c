package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const sqlInsertRuns = `
INSERT INTO runs (thread_key, run_id, status, last_version, next_offset, codec, protocol_version, outcome, result, usage,
                  error, warnings, ordinal, stream_id, parent_run_id, input_hash, fence, first_version, first_offset,
                  merged, ended_at)
SELECT thread_key, run_id, status, last_version, next_offset, codec, protocol_version, outcome, result, usage,
       error, warnings, ordinal, stream_id, nullif(parent_run_id, ''), input_hash, fence, first_version, first_offset,
       merged, CASE WHEN status <> 1 THEN now() END
FROM unnest($1::uuid[], $2::text[], $3::smallint[], $4::bigint[], $5::bigint[], $6::smallint[], $7::bytea[],
            $8::bytea[], $9::bytea[], $10::bytea[], $11::bytea[], $12::bigint[], $13::bigint[], $14::text[],
            $15::text[], $16::bytea[], $17::bigint[], $18::bigint[], $19::bigint[], $20::boolean[])
    AS r (thread_key, run_id, status, last_version, next_offset, codec, protocol_version, outcome, result, usage,
          error, warnings, ordinal, stream_id, parent_run_id, input_hash, fence, first_version, first_offset, merged)`

const sqlUpdateRuns = `
UPDATE runs r
SET status = u.status, last_version = u.last_version, next_offset = u.next_offset, codec = u.codec,
    protocol_version = u.protocol_version, outcome = u.outcome, result = u.result, usage = u.usage, error = u.error,
    warnings = u.warnings, ended_at = CASE WHEN u.status <> 1 THEN coalesce(r.ended_at, now()) END
FROM unnest($1::uuid[], $2::text[], $3::smallint[], $4::bigint[], $5::bigint[], $6::smallint[], $7::bytea[],
            $8::bytea[], $9::bytea[], $10::bytea[], $11::bytea[], $12::bigint[])
    AS u (thread_key, run_id, status, last_version, next_offset, codec, protocol_version, outcome, result, usage,
          error, warnings)
WHERE r.thread_key = u.thread_key AND r.run_id = u.run_id`

func queueRuns(batch *pgx.Batch, commits []*Commit) {
	if opened := rowsOf(commits, func(c *Commit) []Run { return c.Opened }); len(opened) > 0 {
		batch.Queue(sqlInsertRuns, append(runArgs(opened), openedArgs(opened)...)...)
	}
	if updated := rowsOf(commits, func(c *Commit) []Run { return c.Updated }); len(updated) > 0 {
		batch.Queue(sqlUpdateRuns, runArgs(updated)...).Exec(expectRows(len(updated), "run"))
	}
}

// expectRows fails the transaction when rows to be updated are missing.
func expectRows(want int, what string) func(pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		if got := tag.RowsAffected(); got != int64(want) {
			return fmt.Errorf("%w: %d of the %d %s rows to update exist", ErrInvalid, got, want, what)
		}
		return nil
	}
}

// runArgs are the columns that updates change, after those that identify a run.
func runArgs(rows []of[Run]) []any {
	codecs := make([]int16, len(rows))
	payloads := make([][][]byte, 5)
	for i, r := range rows {
		var packed [][]byte
		codecs[i], packed = packAll(r.row.ProtocolVersion, r.row.Outcome, r.row.Result, r.row.Usage, r.row.Error)
		for j := range payloads {
			payloads[j] = append(payloads[j], packed[j])
		}
	}
	return []any{
		keys(rows),
		column(rows, func(r of[Run]) string { return r.row.RunID }),
		column(rows, func(r of[Run]) int16 { return int16(r.row.Status) }),
		column(rows, func(r of[Run]) int64 { return bigint(r.row.LastVersion) }),
		column(rows, func(r of[Run]) int64 { return bigint(r.row.NextOffset) }),
		codecs, payloads[0], payloads[1], payloads[2], payloads[3], payloads[4],
		column(rows, func(r of[Run]) int64 { return r.row.Warnings }),
	}
}

func openedArgs(rows []of[Run]) []any {
	return []any{
		column(rows, func(r of[Run]) int64 { return r.row.Ordinal }),
		column(rows, func(r of[Run]) string { return r.row.StreamID }),
		column(rows, func(r of[Run]) string { return r.row.ParentRunID }),
		column(rows, func(r of[Run]) []byte { return hashOrNil(r.row.InputHash) }),
		column(rows, func(r of[Run]) int64 { return bigint(r.row.Fence) }),
		column(rows, func(r of[Run]) int64 { return bigint(r.row.FirstVersion) }),
		column(rows, func(r of[Run]) int64 { return bigint(r.row.FirstOffset) }),
		column(rows, func(r of[Run]) bool { return r.row.whole }),
	}
}

const sqlRunColumns = `
SELECT run_id, ordinal, stream_id, coalesce(parent_run_id, ''), input_hash, fence, first_version, first_offset, status,
       last_version, next_offset, codec, protocol_version, outcome, result, usage, error, warnings, started_at, ended_at
FROM runs`

const sqlRun = sqlRunColumns + `
WHERE thread_key = $1 AND run_id = $2`

const sqlRuns = sqlRunColumns + `
WHERE thread_key = $1 AND ordinal < $2
ORDER BY ordinal DESC LIMIT $3`

func scanRun(row pgx.CollectableRow) (r Run, err error) {
	var codec int16
	var hash []byte
	var ended *time.Time
	payloads := []*[]byte{
		(*[]byte)(&r.ProtocolVersion), (*[]byte)(&r.Outcome), (*[]byte)(&r.Result), (*[]byte)(&r.Usage), (*[]byte)(&r.Error),
	}
	err = row.Scan(&r.RunID, &r.Ordinal, &r.StreamID, &r.ParentRunID, &hash, &r.Fence, &r.FirstVersion, &r.FirstOffset,
		&r.Status, &r.LastVersion, &r.NextOffset, &codec, payloads[0], payloads[1], payloads[2], payloads[3], payloads[4],
		&r.Warnings, &r.StartedAt, &ended)
	copy(r.InputHash[:], hash)
	r.StartedAt, r.EndedAt = r.StartedAt.UTC(), timeOrZero(ended)
	return r, errors.Join(err, unpackAll(codec, payloads...))
}

// Run implements Store.
func (p *Postgres) Run(ctx context.Context, key Key, runID string) (Run, error) {
	return queryOne(ctx, p, scanRun, sqlRun, uuid(key), runID)
}

// Runs implements Store.
func (p *Postgres) Runs(ctx context.Context, key Key, before int64, limit int) ([]Run, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	return query(ctx, p, scanRun, sqlRuns, uuid(key), before, int64(limit))
}
