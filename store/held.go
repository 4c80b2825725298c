package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/threadsvc/threadsvc/store/content"
)

// CommitHeld implements Store. It is tried again only until change was called.
func (p *Postgres) CommitHeld(ctx context.Context, key Key, version uint64, maxBytes int, change func(*Loaded) (*Commit, error)) Result {
	var result Result
	var refused error
	called := false
	again := func(err error) bool { return !called && safeWrite(err) }
	err := retry(ctx, again, func() error {
		return p.inTransaction(ctx, sqlBeginFair, func(tx pgx.Tx) error {
			head, err := lockHead(ctx, tx, key)
			if err != nil {
				return err
			}
			news, err := sinceIn(ctx, tx, &head, version, maxBytes)
			if err != nil {
				return err
			}
			var commit *Commit
			called = true
			if commit, refused = change(news); refused != nil {
				return refused
			}
			if err := commit.Check(); err != nil {
				return err
			}
			commit.pack()
			return writeIn(ctx, tx, []member{{commit, &result}})
		})
	})
	switch {
	case refused != nil:
		return Result{Err: refused}
	case called && safeWrite(err): // nothing was written, and whoever calls anew may succeed
		return Result{Err: fmt.Errorf("%w: %w", ErrConflict, err)}
	case err != nil:
		return Result{Err: classify(err)}
	}
	return result
}

// sinceIn is Since for a thread whose head is locked. All of it is read by the transaction: one that held a lock while it
// waited for a second connection could wait for itself.
func sinceIn(ctx context.Context, tx pgx.Tx, head *Head, version uint64, maxBytes int) (*Loaded, error) {
	news := &Loaded{Head: *head}
	var folds []uint64
	var runs []Run
	batch := &pgx.Batch{}
	queueSince(batch, head.Key, version, maxBytes, &folds, &news.Tail, &runs)
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return nil, err
	}
	news.complete(folds, runs)
	return news, inlineEach(news.Tail, func(hashes []content.Hash) (map[content.Hash][]byte, error) {
		rows, err := tx.Query(ctx, sqlContents, uuid(head.Key), chunkNames(hashes))
		if err != nil {
			return nil, err
		}
		return chunksOf(pgx.CollectRows(rows, scanChunk))
	})
}
