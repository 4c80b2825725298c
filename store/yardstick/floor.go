package yardstick

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/threadsvc/threadsvc/store"
)

const (
	// floorConns is the number of connections of Floor, that of the service's committers.
	floorConns = 4
	// floorGroup bounds the threads whose batches share a transaction.
	floorGroup = 64
)

// Floor commits the batches of all threads the fastest way this storage format allows, until they are used up or the
// time is over: four connections, each transaction one multi-row insert of one batch from each of up to 64 threads.
// Encoding and compression are within the time; there is no network, no check, no fold and no head row.
func (d *DB) Floor(ctx context.Context, threads []Thread, limit time.Duration) (Result, error) {
	groups := groupsOf(threads)
	conns, err := d.connect(ctx, floorConns)
	if err != nil {
		return Result{}, err
	}
	defer closeAll(conns)
	if err := prepare(ctx, conns); err != nil {
		return Result{}, err
	}
	var next atomic.Int64
	end := time.Now().Add(limit)
	return work(ctx, conns, func(ctx context.Context, _ int, conn *pgx.Conn) (*Result, error) {
		done := &Result{}
		for time.Now().Before(end) {
			i := int(next.Add(1)) - 1
			if i >= len(groups) {
				break
			}
			if err := insert(ctx, conn, groups[i], done); err != nil {
				return nil, err
			}
		}
		return done, nil
	})
}

// groupsOf puts the n-th batches of up to floorGroup threads together, for every n.
func groupsOf(threads []Thread) (groups [][]segment) {
	for round, found := 0, true; found; round++ {
		found = false
		var group []segment
		for i := range threads {
			t := &threads[i]
			if round >= len(t.Batches) {
				continue
			}
			found = true
			group = append(group, t.segment(round))
			if len(group) == floorGroup {
				groups, group = append(groups, group), nil
			}
		}
		if len(group) > 0 {
			groups = append(groups, group)
		}
	}
	return groups
}

func (t *Thread) segment(i int) segment {
	return segment{key: store.KeyOf("bench", t.ID), run: t.ID, batch: &t.Batches[i]}
}
