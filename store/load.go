package store

import (
	"context"
	"log/slog"

	"github.com/jackc/pgx/v5"

	"github.com/threadsvc/threadsvc/agui"
)

const sqlTail = sqlLogColumns + `
WHERE s.thread_key = $1 AND s.first_version > coalesce((SELECT version FROM folds WHERE thread_key = $1), 0)
ORDER BY s.first_version`

const sqlLastRun = sqlRunColumns + `
WHERE thread_key = $1
ORDER BY ordinal DESC LIMIT 1`

// sqlInputSegment finds the segment that begins the last run, if the run is open, was started with an input, and the fold
// has it.
const sqlInputSegment = `
WITH last AS (
    SELECT first_version FROM runs
    WHERE thread_key = $1 AND ordinal = (SELECT max(ordinal) FROM runs WHERE thread_key = $1)
      AND input_hash IS NOT NULL AND status = 1
      AND first_version <= (SELECT version FROM folds WHERE thread_key = $1)
)` + sqlLogColumns + `
WHERE s.thread_key = $1 AND s.first_version = (
    SELECT max(c.first_version) FROM log_segments c, last
    WHERE c.thread_key = $1 AND c.first_version <= last.first_version)`

// loading is a thread being read.
type loading struct {
	heads  []Head
	fold   foldRows
	tail   []Segment
	runs   []Run
	inputs []Segment
}

// Load implements Store. It reads in one snapshot and one round trip, and one more for each segment of the tail that refers
// to large payloads; its cost is that of the fold and the tail.
func (p *Postgres) Load(ctx context.Context, key Key) (*Loaded, error) {
	var l *loading
	err := retry(ctx, safeRead, func() error {
		l = &loading{}
		return p.snapshot(ctx, func(batch *pgx.Batch) { l.queue(batch, key) })
	})
	if err != nil {
		return nil, classify(err)
	}
	if len(l.heads) == 0 {
		return nil, ErrNotFound
	}
	for _, segments := range [][]Segment{l.tail, l.inputs} {
		if err := p.inlineAll(ctx, key, segments); err != nil {
			return nil, err
		}
	}
	folded, err := l.fold.fold()
	if err != nil {
		return nil, err
	}
	loaded := &Loaded{Head: l.heads[0], Fold: folded.Fold, Tail: l.tail}
	if len(l.runs) > 0 {
		loaded.LastRun = &l.runs[0]
		loaded.Fold.Input = p.input(ctx, key, loaded.LastRun, l.inputs)
	}
	return loaded, nil
}

func (l *loading) queue(batch *pgx.Batch, key Key) {
	id := uuid(key)
	batch.Queue(sqlHead, id).Query(collect(&l.heads, scanHead))
	batch.Queue(sqlFolded, id, true).Query(l.fold.read)
	batch.Queue(sqlTail, id).Query(collect(&l.tail, scanSegment))
	batch.Queue(sqlLastRun, id).Query(collect(&l.runs, scanRun))
	batch.Queue(sqlInputSegment, id).Query(collect(&l.inputs, scanSegment))
}

func collect[T any](into *[]T, scan pgx.RowToFunc[T]) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*into, err = pgx.CollectRows(rows, scan)
		return err
	}
}

// input finds the payload of a run's input entry, which is its first. An unreadable segment does not keep a thread from
// being loaded; it is logged.
func (p *Postgres) input(ctx context.Context, key Key, run *Run, segments []Segment) agui.Value {
	if len(segments) == 0 || run.FirstVersion > segments[0].LastVersion {
		return nil
	}
	s := segments[0]
	entries, err := agui.DecodeEntries(s.Entries)
	if s.Err != nil {
		err = s.Err
	}
	at := run.FirstVersion - s.FirstVersion
	if at >= uint64(len(entries)) {
		p.log.LogAttrs(ctx, slog.LevelError, "the input of a run cannot be read", slog.String("thread_key", key.String()),
			slog.String("run_id", run.RunID), slog.Uint64("version", run.FirstVersion), slog.Any("error", err))
		return nil
	}
	if entries[at].Kind != agui.KindInput {
		return nil
	}
	return entries[at].Payload
}
