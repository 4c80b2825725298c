package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

const sqlHeadColumns = `
SELECT thread_key, tenant, thread_id, version, log_hash, fence, stream_id, next_offset, coalesce(active_run, ''),
       lease_ttl_ms, lease_expires_at, coalesce(lease_expires_at < now(), false), runs, metadata, labels, created_at,
       last_run_at, first_version, first_hash, first_at, pruned_runs
FROM threads`

func scanHead(row pgx.CollectableRow) (h Head, err error) {
	var key pgtype.UUID
	var hash, firstHash []byte
	var labels [][]byte
	var ttl int64
	var expires, firstAt *time.Time
	err = row.Scan(&key, &h.Tenant, &h.ThreadID, &h.Version, &hash, &h.Fence, &h.StreamID, &h.NextOffset, &h.ActiveRun,
		&ttl, &expires, &h.LeaseExpired, &h.Runs, &h.Metadata.Text, &labels, &h.CreatedAt, &h.LastRunAt,
		&h.FirstVersion, &firstHash, &firstAt, &h.PrunedRuns)
	h.Key = key.Bytes
	copy(h.Hash[:], hash)
	copy(h.FirstHash[:], firstHash)
	h.FirstAt = timeOrZero(firstAt)
	h.LeaseTTL, h.LeaseExpiresAt = time.Duration(ttl)*time.Millisecond, timeOrZero(expires)
	h.Metadata.Labels = column(labels, func(l []byte) string { return string(l) })
	h.CreatedAt, h.LastRunAt = h.CreatedAt.UTC(), h.LastRunAt.UTC()
	return h, err
}

const sqlHead = sqlHeadColumns + `
WHERE thread_key = $1`

// Head implements Store.
func (p *Postgres) Head(ctx context.Context, key Key) (Head, error) {
	return queryOne(ctx, p, scanHead, sqlHead, uuid(key))
}

const sqlThreads = sqlHeadColumns + `
WHERE tenant = $1 AND (last_run_at, thread_key) < ($2, $3)
ORDER BY last_run_at DESC, thread_key DESC LIMIT $4`

// sqlThreadsByLabels says what its index is restricted to.
const sqlThreadsByLabels = sqlHeadColumns + `
WHERE tenant = $1 AND (last_run_at, thread_key) < ($2, $3) AND labels @> $5 AND labels <> '{}'
ORDER BY last_run_at DESC, thread_key DESC LIMIT $4`

// Threads implements Store.
func (p *Postgres) Threads(ctx context.Context, q ThreadQuery) ([]Head, error) {
	before := pgtype.Timestamptz{Time: q.Before, Valid: true}
	if q.Before.IsZero() {
		before = pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}
	}
	if len(q.Labels) == 0 {
		return query(ctx, p, scanHead, sqlThreads, q.Tenant, before, uuid(q.BeforeKey), int64(q.Limit))
	}
	return query(ctx, p, scanHead, sqlThreadsByLabels, q.Tenant, before, uuid(q.BeforeKey), int64(q.Limit),
		labelBytes(q.Labels))
}

// labelBytes makes labels what they are stored as: bytes, since a text could not hold every string of JSON.
func labelBytes(labels []string) [][]byte {
	return column(labels, func(l string) []byte { return []byte(l) })
}

const sqlLockHead = sqlHead + `
FOR UPDATE`

const sqlSetMetadata = `
UPDATE threads SET metadata = $2, metadata_hash = sha256($2), labels = $3
WHERE thread_key = $1`

// UpdateMetadata implements Store. An error of change is returned as it is; ErrLocked if somebody else keeps the head locked.
func (p *Postgres) UpdateMetadata(ctx context.Context, key Key, change func(Metadata) (Metadata, error)) (Head, error) {
	var changeErr error
	head, err := p.withHead(ctx, key, func(tx pgx.Tx, head *Head) error {
		var next Metadata
		if next, changeErr = change(head.Metadata); changeErr != nil {
			return changeErr
		}
		head.Metadata = Metadata{Text: next.Text, Labels: next.KeptLabels()}
		_, err := tx.Exec(ctx, sqlSetMetadata, uuid(key), next.Text, labelBytes(head.Metadata.Labels))
		return err
	})
	if changeErr != nil {
		return Head{}, changeErr
	}
	return head, classify(err)
}

// withHead runs f in a transaction that holds the lock of a head, or returns ErrLocked. The error is not classified; there
// is no head with it.
func (p *Postgres) withHead(ctx context.Context, key Key, f func(pgx.Tx, *Head) error) (head Head, err error) {
	err = p.write(ctx, func(tx pgx.Tx) error {
		if head, err = lockHead(ctx, tx, key); err != nil {
			return err
		}
		return f(tx, &head)
	})
	if err != nil {
		return Head{}, err
	}
	return head, nil
}

// lockHead locks a head and reads it.
func lockHead(ctx context.Context, tx pgx.Tx, key Key) (Head, error) {
	rows, err := tx.Query(ctx, sqlLockHead, uuid(key))
	if err != nil {
		return Head{}, err
	}
	heads, err := pgx.CollectRows(rows, scanHead)
	if err != nil {
		return Head{}, err
	}
	if len(heads) == 0 {
		return Head{}, ErrNotFound
	}
	return heads[0], nil
}
