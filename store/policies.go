package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

const sqlPolicy = `
SELECT tenant, coalesce(max_age_us, 0), coalesce(max_runs, 0), coalesce(max_bytes, 0), updated_at FROM retention_policies
WHERE tenant = $1`

func scanPolicy(row pgx.CollectableRow) (p Policy, err error) {
	var age int64
	err = row.Scan(&p.Tenant, &age, &p.Keep.MaxRuns, &p.Keep.MaxBytes, &p.UpdatedAt)
	p.Keep.MaxAge, p.UpdatedAt = time.Duration(age)*time.Microsecond, p.UpdatedAt.UTC()
	return p, err
}

// Policy implements Store.
func (p *Postgres) Policy(ctx context.Context, tenant string) (Policy, error) {
	return queryOne(ctx, p, scanPolicy, sqlPolicy, tenant)
}

const sqlSetPolicy = `
INSERT INTO retention_policies (tenant, max_age_us, max_runs, max_bytes)
VALUES ($1, nullif($2::bigint, 0), nullif($3::bigint, 0), nullif($4::bigint, 0))
ON CONFLICT (tenant) DO UPDATE
SET max_age_us = excluded.max_age_us, max_runs = excluded.max_runs, max_bytes = excluded.max_bytes, spread = false,
    updated_at = excluded.updated_at
RETURNING tenant, coalesce(max_age_us, 0), coalesce(max_runs, 0), coalesce(max_bytes, 0), updated_at`

// SetPolicy implements Store.
func (p *Postgres) SetPolicy(ctx context.Context, policy Policy) (set Policy, err error) {
	err = p.write(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, sqlSetPolicy, policy.Tenant, policy.Keep.MaxAge.Microseconds(), policy.Keep.MaxRuns,
			policy.Keep.MaxBytes)
		if err == nil {
			set, err = pgx.CollectExactlyOneRow(rows, scanPolicy)
		}
		return err
	})
	return set, classify(err)
}

const sqlDeletePolicy = `
DELETE FROM retention_policies
WHERE tenant = $1`

// DeletePolicy implements Store.
func (p *Postgres) DeletePolicy(ctx context.Context, tenant string) error {
	return classify(p.write(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, sqlDeletePolicy, tenant)
		if err == nil && tag.RowsAffected() == 0 {
			return ErrNotFound
		}
		return err
	}))
}

// sqlSpread marks what its index finds as not due, which leaves that part of the index. A policy is spread when a statement
// finds none; one that was changed again meanwhile begins anew.
const sqlSpread = `
WITH changed AS (
    SELECT tenant, updated_at FROM retention_policies
    WHERE NOT spread
    ORDER BY updated_at LIMIT 1
), later AS (
    SELECT t.thread_key FROM changed c JOIN threads t ON t.tenant = c.tenant AND t.prune_due > now()
    ORDER BY t.prune_due LIMIT $1
    FOR NO KEY UPDATE OF t SKIP LOCKED
), marked AS (
    UPDATE threads t SET prune_due = now() FROM later l
    WHERE t.thread_key = l.thread_key
    RETURNING 1
), done AS (
    UPDATE retention_policies p SET spread = true FROM changed c
    WHERE p.tenant = c.tenant AND p.updated_at = c.updated_at
      AND NOT EXISTS (SELECT 1 FROM threads t WHERE t.tenant = c.tenant AND t.prune_due > now())
)
SELECT EXISTS (SELECT 1 FROM changed), (SELECT count(*) FROM marked)`

// SpreadPolicies implements Store. Heads that others hold are left for the next time.
func (p *Postgres) SpreadPolicies(ctx context.Context, limit int) (more bool, err error) {
	var marked int64
	err = p.write(ctx, func(tx pgx.Tx) error { return tx.QueryRow(ctx, sqlSpread, int64(limit)).Scan(&more, &marked) })
	return more, classify(err)
}

const sqlDue = `
SELECT d.thread_key, p.tenant, coalesce(p.max_age_us, 0), coalesce(p.max_runs, 0), coalesce(p.max_bytes, 0), p.updated_at
FROM retention_policies p CROSS JOIN LATERAL (
    SELECT t.thread_key FROM threads t
    WHERE t.tenant = p.tenant AND t.prune_due <= now() AND t.active_run IS NULL
    ORDER BY t.prune_due LIMIT $1) d
WHERE p.spread
LIMIT $1`

// Due implements Store. It reads, for each policy, an index from its start.
func (p *Postgres) Due(ctx context.Context, limit int) ([]DueThread, error) {
	return query(ctx, p, func(row pgx.CollectableRow) (d DueThread, err error) {
		var key pgtype.UUID
		var age int64
		err = row.Scan(&key, &d.Policy.Tenant, &age, &d.Policy.Keep.MaxRuns, &d.Policy.Keep.MaxBytes, &d.Policy.UpdatedAt)
		d.Key, d.Policy.Keep.MaxAge, d.Policy.UpdatedAt = key.Bytes, time.Duration(age)*time.Microsecond, d.Policy.UpdatedAt.UTC()
		return d, err
	}, sqlDue, int64(limit))
}

// sqlSetDue keeps the policy from being changed until the transaction ends: a change after that is spread to what was set, and
// one before it is seen though the head was waited for. The policy is locked before the head, and nobody who has the lock of a
// policy waits for that of a head but here.
const sqlSetDue = `
UPDATE threads t SET prune_due = coalesce($3, 'infinity'::timestamptz)
FROM (SELECT 1 FROM retention_policies WHERE tenant = $4 AND updated_at = $5 FOR SHARE) p
WHERE t.thread_key = $1 AND t.runs = $2`

// SetDue implements Store.
func (p *Postgres) SetDue(ctx context.Context, due DueThread, runs int64, at time.Time) error {
	var next *time.Time
	if !at.IsZero() {
		next = &at
	}
	return classify(p.write(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sqlSetDue, uuid(due.Key), runs, next, due.Policy.Tenant, due.Policy.UpdatedAt)
		return err
	}))
}
