package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store/content"
)

const sqlImportHead = `
INSERT INTO threads (thread_key, version, log_hash, fence, stream_id, next_offset, active_run, lease_ttl_ms,
                     lease_expires_at, runs, tenant, thread_id, metadata, metadata_hash, labels, created_at, last_run_at,
                     first_version, first_hash, first_at, pruned_runs)
VALUES ($1, $2, $3, $4, $5, $6, nullif($7::text, ''), $8::bigint,
        CASE WHEN $7::text <> '' THEN now() + $8::bigint * interval '1 millisecond' END, $9, $10, $11, $12::bytea, sha256($12::bytea), $13, $14, $15,
        $16, $17, $18, $19)`

const sqlImportRun = `
INSERT INTO runs (thread_key, ordinal, run_id, stream_id, parent_run_id, input_hash, fence, first_version, first_offset, status,
                  last_version, next_offset, codec, protocol_version, outcome, result, usage, error, warnings, merged,
                  started_at, ended_at)
VALUES ($1, $2, $3, $4, nullif($5, ''), $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $22, $20, $21)`

const sqlImportWarning = `
INSERT INTO warnings (thread_key, version, ordinal, run_id, "offset", code, path, detail, fatal, codec, removed, removed_size,
                      raised_at, tenant)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`

// Import implements Store. Everything is written in one transaction, which lasts as long as feed does.
func (p *Postgres) Import(ctx context.Context, head Head, replaceDeleted bool, feed func(Importer) error) error {
	var feedErr error
	err := p.inTransaction(ctx, sqlBeginLong, func(tx pgx.Tx) error {
		var exists bool
		err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM threads WHERE thread_key = $1)`, uuid(head.Key)).Scan(&exists)
		if err != nil || exists {
			return errors.Join(err, conflictIf(exists))
		}
		judge := refuseDeleted
		if replaceDeleted {
			judge = unbury
		}
		if err := judge(ctx, tx, head.Key); err != nil {
			return err
		}
		i := &importer{ctx: ctx, tx: tx, key: head.Key, tenant: head.Tenant, batch: &pgx.Batch{}}
		if feedErr = feed(i); feedErr != nil {
			return feedErr
		}
		var firstAt *time.Time
		if !head.FirstAt.IsZero() {
			firstAt = &head.FirstAt
		}
		i.batch.Queue(sqlImportHead, uuid(head.Key), bigint(head.Version), head.Hash[:], bigint(head.Fence), head.StreamID,
			bigint(head.NextOffset), head.ActiveRun, head.LeaseTTL.Milliseconds(), head.Runs, head.Tenant, head.ThreadID,
			head.Metadata.Text, labelBytes(head.Metadata.KeptLabels()), head.CreatedAt, head.LastRunAt,
			bigint(head.FirstVersion), hashOrNil(head.FirstHash), firstAt, head.PrunedRuns)
		if err := i.send(); err != nil {
			return err
		}
		return judge(ctx, tx, head.Key) // by an erasure that came meanwhile
	})
	if feedErr != nil && errors.Is(err, feedErr) {
		return feedErr
	}
	return classify(invalidImport(err))
}

func conflictIf(exists bool) error {
	if exists {
		return ErrConflict
	}
	return nil
}

// invalidImport says of an error what the schema refused: a thread that somebody else has made meanwhile, or rows that
// contradict its rules (SQLSTATE class 22, data exception, and 23, integrity constraint violation).
func invalidImport(err error) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok:
		return err
	case pgErr.Code == uniqueViolation && pgErr.ConstraintName == "threads_pkey":
		return fmt.Errorf("%w: %w", ErrConflict, err)
	case strings.HasPrefix(pgErr.Code, "22") || strings.HasPrefix(pgErr.Code, "23"):
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return err
}

// importer writes what it is given in batches.
type importer struct {
	ctx    context.Context
	tx     pgx.Tx
	key    Key
	tenant string
	batch  *pgx.Batch
	queued int // bytes

	group  []storedSegment
	size   int64
	chunks map[content.Hash][]byte
	seen   map[content.Hash]struct{} // chunks of late, up to maxSeen
}

// maxSeen bounds the chunks that an import remembers in order to tell what its log restates: of about 300 MB of large payloads.
const maxSeen = 1 << 17

// flushBytes is how much is gathered before it is sent to the database.
const flushBytes = 4 << 20

func (i *importer) queue(size int) error {
	if i.queued += size + 256; i.queued < flushBytes {
		return nil
	}
	return i.send()
}

func (i *importer) send() error {
	i.flush()
	batch := i.batch
	i.batch, i.queued = &pgx.Batch{}, 0
	if batch.Len() == 0 {
		return nil
	}
	return i.tx.SendBatch(i.ctx, batch).Close()
}

// Cut implements Importer.
func (i *importer) Cut(c Checkpoint) error {
	packed := packCheckpoint(&c)
	queueContents(i.batch, []*Commit{{Key: i.key, chunks: packed.chunks}}, nil)
	packed.queueCut(i.batch, i.key, packed.newChunks(i.key, nil))
	return i.queue(int(packed.size))
}

// Segment implements Importer. Neighbours of one run become one row.
func (i *importer) Segment(s *Segment) error {
	if n := len(i.group); n > 0 {
		last := &i.group[n-1]
		if last.RunID != s.RunID || last.StreamID != s.StreamID || last.NextOffset != s.FirstOffset || i.size+int64(len(s.Entries)) > mergedSize {
			i.flush()
		}
	}
	stored := storedSegment{Segment: *s, size: int64(len(s.Entries))}
	chunks := map[content.Hash][]byte{}
	entries, outlined := outline(s.Entries, chunks)
	if stored.Entries = entries; outlined {
		stored.codec = codecOutlined
		stored.restated = max(0, int64(len(s.Entries)-len(entries))-i.note(chunks))
	}
	i.group, i.size = append(i.group, stored), i.size+stored.size
	return i.queue(len(s.Entries))
}

// note adds chunks to those of the group, and returns the size of those that are new.
func (i *importer) note(chunks map[content.Hash][]byte) (fresh int64) {
	if i.chunks == nil {
		i.chunks = map[content.Hash][]byte{}
	}
	if i.seen == nil || len(i.seen) > maxSeen {
		i.seen = map[content.Hash]struct{}{}
	}
	for hash, chunk := range chunks {
		if _, ok := i.seen[hash]; !ok {
			fresh += int64(len(chunk))
		}
		i.seen[hash], i.chunks[hash] = struct{}{}, chunk
	}
	return fresh
}

// flush queues the segments that were gathered.
func (i *importer) flush() {
	if len(i.group) == 0 {
		return
	}
	queueContents(i.batch, []*Commit{{Key: i.key, chunks: i.chunks}}, nil)
	queueMerge(i.batch, i.key, i.group)
	i.group, i.size, i.chunks = nil, 0, nil
}

// Run implements Importer.
func (i *importer) Run(r *Run) error {
	i.flush()
	codec, packed := packAll(r.ProtocolVersion, r.Outcome, r.Result, r.Usage, r.Error)
	var ended *time.Time
	if !r.EndedAt.IsZero() {
		ended = &r.EndedAt
	}
	i.batch.Queue(sqlImportRun, uuid(i.key), r.Ordinal, r.RunID, r.StreamID, r.ParentRunID, hashOrNil(r.InputHash), bigint(r.Fence),
		bigint(r.FirstVersion), bigint(r.FirstOffset), int16(r.Status), bigint(r.LastVersion), bigint(r.NextOffset), codec,
		packed[0], packed[1], packed[2], packed[3], packed[4], r.Warnings, r.StartedAt, ended, r.Status != RunActive)
	return i.queue(len(r.Outcome) + len(r.Result) + len(r.Usage) + len(r.Error))
}

// Warning implements Importer.
func (i *importer) Warning(w *Warning) error {
	i.flush()
	codec, removed := pack(CutRemoved(w.Removed))
	i.batch.Queue(sqlImportWarning, uuid(i.key), bigint(w.Version), w.Ordinal, w.RunID, bigint(w.Offset), string(w.Code),
		[]byte(w.Path), []byte(w.Detail), w.Fatal, codec, removed, w.RemovedBytes, w.RaisedAt, i.tenant)
	return i.queue(len(removed))
}

// Fold implements Importer.
func (i *importer) Fold(c *agui.Changes) error {
	i.flush()
	commit := &Commit{Key: i.key, Version: c.Version, Fold: c}
	folding, plan := []*Commit{commit}, []stateWrite{planState(commit, stateSizes{})}
	queueFolds(i.batch, folding, plan)
	queueMessages(i.batch, folding, nil)
	queueStates(i.batch, plan)
	return i.send()
}
