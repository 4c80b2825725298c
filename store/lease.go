package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

const sqlNow = `SELECT now()`

// Now implements Store.
func (p *Postgres) Now(ctx context.Context) (time.Time, error) {
	return queryOne(ctx, p, pgx.RowTo[time.Time], sqlNow)
}

const sqlExpired = `
SELECT lease_expires_at, thread_key, thread_id FROM threads
WHERE lease_expires_at < now() AND (lease_expires_at, thread_key) > ($1, $2)
ORDER BY lease_expires_at, thread_key LIMIT $3`

// Expired implements Store.
func (p *Postgres) Expired(ctx context.Context, after ExpiredLease, limit int) ([]ExpiredLease, error) {
	from := pgtype.Timestamptz{Time: after.ExpiresAt, Valid: true}
	if after.ExpiresAt.IsZero() {
		from = pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	}
	return query(ctx, p, scanExpired, sqlExpired, from, uuid(after.Key), int64(limit))
}

func scanExpired(row pgx.CollectableRow) (e ExpiredLease, err error) {
	var key pgtype.UUID
	err = row.Scan(&e.ExpiresAt, &key, &e.ThreadID)
	e.Key, e.ExpiresAt = key.Bytes, e.ExpiresAt.UTC()
	return e, err
}

const sqlFence = `
UPDATE threads SET fence = fence + 1
WHERE thread_key = $1 AND active_run = $2`

// Fence implements Store.
func (p *Postgres) Fence(ctx context.Context, key Key, runID string) error {
	return classify(retry(ctx, safeWrite, func() error {
		_, err := p.pool.Exec(ctx, sqlFence, uuid(key), runID)
		return err
	}))
}
