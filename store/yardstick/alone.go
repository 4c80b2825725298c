package yardstick

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Alone commits the batches of every thread on a connection of the thread's own, one transaction of one round trip for
// each batch, until they are used up or the time is over. The segments are those of Floor; no head row is written. With
// more threads than connections allowed, a connection takes several threads in turn.
func (d *DB) Alone(ctx context.Context, threads []Thread, conns int, limit time.Duration) (Result, error) {
	pool, err := d.connect(ctx, min(conns, len(threads)))
	if err != nil {
		return Result{}, err
	}
	defer closeAll(pool)
	if err := prepare(ctx, pool); err != nil {
		return Result{}, err
	}
	end := time.Now().Add(limit)
	return work(ctx, pool, func(ctx context.Context, at int, conn *pgx.Conn) (*Result, error) {
		done := &Result{}
		for t := at; t < len(threads); t += len(pool) {
			for i := range threads[t].Batches {
				if !time.Now().Before(end) {
					return done, nil
				}
				if err := insert(ctx, conn, []segment{threads[t].segment(i)}, done); err != nil {
					return nil, err
				}
			}
		}
		return done, nil
	})
}

// Single commits a thread's batches one after the other on one connection, n at most: the latency of one row on a server
// that does nothing else.
func (d *DB) Single(ctx context.Context, thread Thread, n int) (Result, error) {
	thread.Batches = thread.Batches[:min(n, len(thread.Batches))]
	return d.Alone(ctx, []Thread{thread}, 1, time.Minute)
}
