package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// erasedTables are the tables with rows of a thread, in the order they are emptied; the head is the last.
var erasedTables = []string{
	"warnings", "checkpoints", "state_patches", "states", "message_blocks", "folds", "log_segments", "contents", "runs",
	"prunings", "threads",
}

// sqlBury leaves what is to be known of an erased thread. A tombstone that is there already gives way: nothing shall keep
// a thread from being erased.
const sqlBury = `
INSERT INTO tombstones (thread_key, version, log_hash) VALUES ($1, $2, $3)
ON CONFLICT (thread_key) DO UPDATE SET version = excluded.version, log_hash = excluded.log_hash, deleted_at = excluded.deleted_at
RETURNING deleted_at`

// Delete implements Store. The head is locked first, so that no append can leave rows behind.
func (p *Postgres) Delete(ctx context.Context, key Key) (gone Erasure, err error) {
	gone.Head, err = p.withHead(ctx, key, func(tx pgx.Tx, head *Head) error {
		gone.Rows = make(map[string]int64, len(erasedTables))
		return bury(ctx, tx, head, &gone)
	})
	if err != nil {
		return Erasure{}, classify(err)
	}
	return gone, nil
}

// bury erases a thread whose head is locked.
func bury(ctx context.Context, tx pgx.Tx, head *Head, gone *Erasure) error {
	batch := &pgx.Batch{}
	for _, table := range erasedTables {
		batch.Queue("DELETE FROM "+table+" WHERE thread_key = $1", uuid(head.Key)).Exec(func(tag pgconn.CommandTag) error {
			gone.Rows[table] = tag.RowsAffected()
			return nil
		})
	}
	batch.Queue(sqlBury, uuid(head.Key), bigint(head.Version), head.Hash[:]).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&gone.DeletedAt)
		gone.DeletedAt = gone.DeletedAt.UTC()
		return err
	})
	return tx.SendBatch(ctx, batch).Close()
}

// sqlReplaceDeleted removes the tombstones of threads that were made just now by explicit wish. A tombstone whose thread is
// not there stays: it is of an erasure that came after another writer's thread was in the way.
const sqlReplaceDeleted = `
DELETE FROM tombstones d USING threads t
WHERE d.thread_key = ANY($1::uuid[]) AND t.thread_key = d.thread_key`

// sqlRefuseDeleted takes back the heads that were made just now although the thread was erased before. It follows their
// insertion as a statement of its own, and so sees the tombstone of every erasure that the insertion had to wait for;
// within one statement, a look at the tombstones would be older than that. Erasures that come later find the head.
const sqlRefuseDeleted = `
DELETE FROM threads t USING tombstones d
WHERE d.thread_key = ANY($1::uuid[]) AND t.thread_key = d.thread_key
RETURNING t.thread_key, d.deleted_at`

// queueTombstones compares heads that were created by the statement before with the tombstones.
func queueTombstones(batch *pgx.Batch, creates []*Commit, deleted map[Key]time.Time) {
	var replacing []pgtype.UUID
	for _, c := range creates {
		if c.Create.ReplaceDeleted {
			replacing = append(replacing, uuid(c.Key))
		}
	}
	if len(replacing) > 0 {
		batch.Queue(sqlReplaceDeleted, replacing)
	}
	keys := column(creates, func(c *Commit) pgtype.UUID { return uuid(c.Key) })
	batch.Queue(sqlRefuseDeleted, keys).Query(func(rows pgx.Rows) error {
		var key pgtype.UUID
		var at time.Time
		_, err := pgx.ForEachRow(rows, []any{&key, &at}, func() error {
			deleted[key.Bytes] = at.UTC()
			return nil
		})
		return err
	})
}

const sqlUnbury = `DELETE FROM tombstones WHERE thread_key = $1`

// unbury removes the tombstone of a thread that is made again by explicit wish.
func unbury(ctx context.Context, tx pgx.Tx, key Key) error {
	_, err := tx.Exec(ctx, sqlUnbury, uuid(key))
	return err
}

const sqlTombstone = `SELECT deleted_at FROM tombstones WHERE thread_key = $1`

// refuseDeleted returns a DeletedError if the thread was erased.
func refuseDeleted(ctx context.Context, tx pgx.Tx, key Key) error {
	var at time.Time
	err := tx.QueryRow(ctx, sqlTombstone, uuid(key)).Scan(&at)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return &DeletedError{DeletedAt: at.UTC()}
}
