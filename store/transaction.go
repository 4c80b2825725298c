package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// How transactions begin. The settings travel with BEGIN in one message and end with the transaction, so they cost no
// round trip and hold behind PgBouncer. A server that vanishes in the middle of one keeps its locks for no longer than
// idle_in_transaction_session_timeout: between two statements there is nothing but work of its own. To Postgres a session is
// idle until it has the whole next statement, so the time has to suffice for packing large values and sending them.
const (
	sqlBegin     = `BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = '1min'`
	sqlBeginWary = sqlBegin + `; SET LOCAL lock_timeout = '25ms'`
	// sqlBeginFair is for a writer whose turn comes only if it queues behind the commits of others.
	sqlBeginFair = sqlBegin + `; SET LOCAL lock_timeout = '250ms'`
	// sqlBeginLong is for a transaction that waits for a client between two statements.
	sqlBeginLong = `BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = '5min'`
)

// inTransaction runs f in a transaction that begins so. The error is not classified, but for a lock that was waited for in
// vain, which is ErrLocked.
func (p *Postgres) inTransaction(ctx context.Context, begin string, f func(pgx.Tx) error) error {
	err := pgx.BeginTxFunc(ctx, p.pool, pgx.TxOptions{BeginQuery: begin}, f)
	if sqlState(err) == lockNotAvailable {
		return fmt.Errorf("%w: %w", ErrLocked, err)
	}
	return err
}

// write runs f in a transaction that needs the lock of a row which others, or a person with psql, may hold for long. It
// queues for the lock no longer than commits of others take and then returns ErrLocked: whoever calls may wait, but not
// with a connection in hand. f may be run again, where that is safe.
func (p *Postgres) write(ctx context.Context, f func(pgx.Tx) error) error {
	return retry(ctx, safeWrite, func() error { return p.inTransaction(ctx, sqlBeginWary, f) })
}
