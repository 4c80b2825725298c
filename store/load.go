package store

import (
	"context"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/threadsvc/threadsvc/agui"
)

const sqlFold = `
SELECT version, codec, tracking FROM folds
WHERE thread_key = $1`

const sqlTail = sqlLogColumns + `
WHERE s.thread_key = $1 AND s.first_version > coalesce((SELECT version FROM folds WHERE thread_key = $1), 0)
ORDER BY s.first_version`

const sqlLastRun = sqlRunColumns + `
WHERE thread_key = $1
ORDER BY ordinal DESC LIMIT 1`

// sqlInputSegment finds the segment that begins the last run, if the run was started with an input and the fold has it.
const sqlInputSegment = `
WITH last AS (
    SELECT first_version FROM runs
    WHERE thread_key = $1 AND ordinal = (SELECT max(ordinal) FROM runs WHERE thread_key = $1)
      AND input_hash IS NOT NULL
      AND first_version <= (SELECT version FROM folds WHERE thread_key = $1)
)` + sqlLogColumns + `
WHERE s.thread_key = $1 AND s.first_version = (
    SELECT max(c.first_version) FROM log_segments c, last
    WHERE c.thread_key = $1 AND c.first_version <= last.first_version)`

// loading is a thread being read.
type loading struct {
	heads  []Head
	fold   agui.Fold
	state  map[Key]storedState
	tail   []Segment
	runs   []Run
	inputs []Segment
}

// Load implements Store. It reads in one snapshot and three round trips; its cost is that of the fold and the tail.
func (p *Postgres) Load(ctx context.Context, key Key) (*Loaded, error) {
	var l *loading
	err := retry(ctx, safeRead, func() error {
		l = &loading{state: map[Key]storedState{}}
		return p.snapshot(ctx, l.reads(uuid(key)))
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
	if l.fold.State, err = l.state[key].value(); err != nil {
		return nil, err
	}
	loaded := &Loaded{Head: l.heads[0], Fold: l.fold, Tail: l.tail}
	if len(l.runs) > 0 {
		loaded.LastRun = &l.runs[0]
		loaded.Fold.Input = p.input(ctx, key, loaded.LastRun, l.inputs)
	}
	return loaded, nil
}

func (l *loading) reads(key pgtype.UUID) *pgx.Batch {
	batch := &pgx.Batch{}
	batch.Queue(sqlHead, key).Query(collect(&l.heads, scanHead))
	batch.Queue(sqlFold, key).Query(l.readFold)
	batch.Queue(sqlMessageBlocks, key).Query(l.readMessages)
	queueReadStates(batch, []pgtype.UUID{key}, l.state)
	batch.Queue(sqlTail, key).Query(collect(&l.tail, scanSegment))
	batch.Queue(sqlLastRun, key).Query(collect(&l.runs, scanRun))
	batch.Queue(sqlInputSegment, key).Query(collect(&l.inputs, scanSegment))
	return batch
}

func (l *loading) readFold(rows pgx.Rows) error {
	var codec int16
	_, err := pgx.ForEachRow(rows, []any{&l.fold.Version, &codec, &l.fold.Tracking}, func() error {
		return unpackAll(codec, &l.fold.Tracking)
	})
	return err
}

func (l *loading) readMessages(rows pgx.Rows) error {
	blocks, err := pgx.CollectRows(rows, scanBlock)
	for i := range blocks {
		l.fold.Messages = append(l.fold.Messages, blocks[i].messages...)
	}
	return err
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
