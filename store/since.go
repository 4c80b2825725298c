package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

const sqlFoldVersion = `
SELECT version FROM folds
WHERE thread_key = $1`

// Since implements Store. It reads in one snapshot; its cost is that of what it returns.
func (p *Postgres) Since(ctx context.Context, key Key, version uint64, maxBytes int) (*Loaded, error) {
	var heads []Head
	var folds []uint64
	var tail []Segment
	var runs []Run
	err := retry(ctx, safeRead, func() error {
		heads, folds, tail, runs = nil, nil, nil, nil
		return p.snapshot(ctx, func(batch *pgx.Batch) {
			batch.Queue(sqlHead, uuid(key)).Query(collect(&heads, scanHead))
			queueSince(batch, key, version, maxBytes, &folds, &tail, &runs)
		})
	})
	if err != nil {
		return nil, classify(err)
	}
	if len(heads) == 0 {
		return nil, ErrNotFound
	}
	if err := p.inlineAll(ctx, key, tail); err != nil {
		return nil, err
	}
	loaded := &Loaded{Head: heads[0], Tail: tail}
	loaded.complete(folds, runs)
	return loaded, nil
}

// queueSince queues all that Since reads beside the head.
func queueSince(batch *pgx.Batch, key Key, version uint64, maxBytes int, folds *[]uint64, tail *[]Segment, runs *[]Run) {
	batch.Queue(sqlFoldVersion, uuid(key)).Query(collect(folds, pgx.RowTo[uint64]))
	batch.Queue(sqlLog, uuid(key), bigint(version+1), int64(maxBytes)).Query(collect(tail, scanSegment))
	batch.Queue(sqlLastRun, uuid(key)).Query(collect(runs, scanRun))
}

// complete adds the version of the fold and the last run, each if there is one.
func (l *Loaded) complete(folds []uint64, runs []Run) {
	if len(folds) > 0 {
		l.Fold.Version = folds[0]
	}
	if len(runs) > 0 {
		l.LastRun = &runs[0]
	}
}
