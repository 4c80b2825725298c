package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/threadsvc/threadsvc/agui"
)

const sqlMetadataAltered = `
SELECT metadata_hash IS DISTINCT FROM sha256(metadata) FROM threads
WHERE thread_key = $1`

const sqlTracking = `
SELECT version, codec, tracking FROM folds
WHERE thread_key = $1`

const sqlMessageBlocks = `
SELECT first_position, codec, body FROM message_blocks
WHERE thread_key = $1
ORDER BY first_position`

const sqlStateBase = `
SELECT version, codec, doc FROM states
WHERE thread_key = $1`

const sqlVersionedPatches = `
SELECT version, codec, patch FROM state_patches
WHERE thread_key = $1
ORDER BY version`

const sqlCheckpointVersions = `
SELECT version FROM checkpoints
WHERE thread_key = $1
ORDER BY version`

// Evidence implements Store.
func (p *Postgres) Evidence(ctx context.Context, key Key) (*Evidence, error) {
	var e *Evidence
	var heads []Head
	err := retry(ctx, safeRead, func() error {
		e, heads = &Evidence{}, nil
		return p.snapshot(ctx, func(batch *pgx.Batch) { e.queue(batch, key, &heads) })
	})
	if err != nil {
		return nil, classify(err)
	}
	if len(heads) == 0 {
		return nil, ErrNotFound
	}
	e.Head = heads[0]
	e.foldState()
	return e, nil
}

func (e *Evidence) queue(batch *pgx.Batch, key Key, heads *[]Head) {
	batch.Queue(sqlHead, uuid(key)).Query(collect(heads, scanHead))
	batch.Queue(sqlMetadataAltered, uuid(key)).QueryRow(func(row pgx.Row) error { return noRows(row.Scan(&e.MetadataAltered)) })
	batch.Queue(sqlTracking, uuid(key)).Query(e.readFold)
	batch.Queue(sqlMessageBlocks, uuid(key)).Query(e.readMessages)
	batch.Queue(sqlStateBase, uuid(key)).Query(e.readPatches("the state", func(p agui.StatePatch) { e.Base = p }))
	batch.Queue(sqlVersionedPatches, uuid(key)).Query(e.readPatches("a patch of the state", func(p agui.StatePatch) {
		e.Patches = append(e.Patches, p)
	}))
	batch.Queue(sqlCheckpointVersions, uuid(key)).Query(collect(&e.Checkpoints, pgx.RowTo[uint64]))
}

// fault notes a row that cannot be read.
func (e *Evidence) fault(version uint64, what string, err error) {
	e.Faults = append(e.Faults, Fault{Version: version, What: what, Err: err})
}

func (e *Evidence) readFold(rows pgx.Rows) error {
	var codec int16
	_, err := pgx.ForEachRow(rows, []any{&e.FoldVersion, &codec, &e.Tracking}, func() error {
		e.Folded = true
		if err := unpackAll(codec, &e.Tracking); err != nil {
			e.fault(e.FoldVersion, "the tracking of the fold", err)
		}
		return nil
	})
	return err
}

func (e *Evidence) readMessages(rows pgx.Rows) error {
	var first int64
	var codec int16
	var stored []byte
	_, err := pgx.ForEachRow(rows, []any{&first, &codec, &stored}, func() error {
		block, err := openBlock(first, codec, stored)
		if err != nil {
			e.fault(e.FoldVersion, fmt.Sprintf("the messages from position %d", first), err)
			return nil
		}
		e.Messages = append(e.Messages, block.messages...)
		return nil
	})
	return err
}

// readPatches reads rows of version, codec and a payload.
func (e *Evidence) readPatches(what string, take func(agui.StatePatch)) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var version pgtype.Int8
		var codec int16
		var stored []byte
		_, err := pgx.ForEachRow(rows, []any{&version, &codec, &stored}, func() error {
			plain, err := unpack(codec, stored)
			if err != nil {
				e.fault(uint64(version.Int64), what, err)
				return nil
			}
			take(agui.StatePatch{Version: uint64(version.Int64), Patch: plain})
			return nil
		})
		return err
	}
}

// foldState finds out what base and patches amount to.
func (e *Evidence) foldState() {
	stored := storedState{base: e.Base.Patch}
	for _, p := range e.Patches {
		stored.patches = append(stored.patches, p.Patch)
	}
	var err error
	if e.State, err = stored.value(); err != nil {
		e.fault(e.FoldVersion, "the state", err)
	}
}

const sqlNames = `
SELECT thread_key, tenant, thread_id FROM threads
WHERE thread_key > $1
ORDER BY thread_key LIMIT $2`

// Names implements Store.
func (p *Postgres) Names(ctx context.Context, after Key, limit int) ([]Name, error) {
	return query(ctx, p, func(row pgx.CollectableRow) (n Name, err error) {
		var key pgtype.UUID
		err = row.Scan(&key, &n.Tenant, &n.ThreadID)
		n.Key = key.Bytes
		return n, err
	}, sqlNames, uuid(after), int64(limit))
}
