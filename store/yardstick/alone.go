package yardstick

import (
	"context"
	"fmt"
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

// Select stores the texts, uncompressed, each as one row, and reads each of them back by its key, rounds times. The
// latencies are those of the reads on one connection, which has read each text once before.
func (d *DB) Select(ctx context.Context, texts [][]byte, rounds int) ([]time.Duration, error) {
	conns, err := d.connect(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer closeAll(conns)
	for i, text := range texts {
		const put = `INSERT INTO threadsvc_bench.texts (id, body) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET body = excluded.body`
		if _, err := conns[0].Exec(ctx, put, i, text); err != nil {
			return nil, fmt.Errorf("yardstick: store a text: %w", err)
		}
	}
	var latencies []time.Duration
	for round := range rounds + 1 {
		for i, text := range texts {
			took, err := selectText(ctx, conns[0], i, len(text))
			if err != nil {
				return nil, err
			}
			if round > 0 {
				latencies = append(latencies, took)
			}
		}
	}
	return latencies, nil
}

func selectText(ctx context.Context, conn *pgx.Conn, id, want int) (time.Duration, error) {
	started := time.Now()
	var body []byte
	err := conn.QueryRow(ctx, `SELECT body FROM threadsvc_bench.texts WHERE id = $1`, id).Scan(&body)
	if err == nil && len(body) != want {
		err = fmt.Errorf("%d bytes came back, not %d", len(body), want)
	}
	if err != nil {
		return 0, fmt.Errorf("yardstick: read a text: %w", err)
	}
	return time.Since(started), nil
}
