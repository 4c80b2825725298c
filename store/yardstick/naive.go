package yardstick

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	sqlNaiveThread = `INSERT INTO threadsvc_bench.naive_threads (thread_id, seq, state) VALUES ($1, 0, $2)`
	sqlNaiveEvent  = `INSERT INTO threadsvc_bench.naive_events (thread_id, seq, event) VALUES ($1, $2, $3)`
	sqlNaiveState  = `UPDATE threadsvc_bench.naive_threads SET seq = $2, state = $3 WHERE thread_id = $1`
)

// Naive commits the events the way a first implementation does, until they are used up or the time is over: for each
// event a transaction (begin, insert, update, commit: four round trips, prepared statements) that inserts the event as a
// jsonb row and rewrites the thread's row with its whole state, a jsonb column. There is a connection for each thread, up
// to conns. What is spared to it: the state is not computed but taken in turn from states, and nothing is checked, not
// even that the thread is where it should be.
func (d *DB) Naive(ctx context.Context, threads []Thread, states [][]byte, conns int, limit time.Duration) (Result, error) {
	pool, err := d.connect(ctx, min(conns, len(threads)))
	if err != nil {
		return Result{}, err
	}
	defer closeAll(pool)
	for i := range threads {
		if _, err := pool[0].Exec(ctx, sqlNaiveThread, threads[i].ID, states[0]); err != nil {
			return Result{}, fmt.Errorf("yardstick: insert a thread: %w", err)
		}
	}
	for _, conn := range pool {
		for _, sql := range []string{sqlNaiveEvent, sqlNaiveState} {
			if _, err := conn.Prepare(ctx, sql, sql); err != nil {
				return Result{}, fmt.Errorf("yardstick: prepare a statement: %w", err)
			}
		}
	}
	end := time.Now().Add(limit)
	return work(ctx, pool, func(ctx context.Context, at int, conn *pgx.Conn) (*Result, error) {
		n := &naive{conn: conn, states: states, end: end}
		for t := at; t < len(threads); t += len(pool) {
			if err := n.thread(ctx, &threads[t]); err != nil {
				return nil, err
			}
		}
		return &n.done, nil
	})
}

type naive struct {
	conn   *pgx.Conn
	states [][]byte
	end    time.Time
	done   Result
}

func (n *naive) thread(ctx context.Context, t *Thread) error {
	for i := range t.Batches {
		b := &t.Batches[i]
		for j := range b.Events {
			if !time.Now().Before(n.end) {
				return nil
			}
			one := Batch{Offset: b.Offset + uint64(j), Events: b.Events[j : j+1]}
			if err := n.commit(ctx, t.ID, &one); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *naive) commit(ctx context.Context, thread string, one *Batch) error {
	started := time.Now()
	seq := int64(one.Offset) + 1
	err := pgx.BeginFunc(ctx, n.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlNaiveEvent, thread, seq, one.Events[0]); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, sqlNaiveState, thread, seq, n.states[int(seq)%len(n.states)])
		return err
	})
	if err != nil {
		return fmt.Errorf("yardstick: commit an event: %w", err)
	}
	n.done.Latencies = append(n.done.Latencies, time.Since(started))
	n.done.count(one)
	return nil
}
