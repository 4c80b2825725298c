package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store/content"
)

const sqlCheckpointAt = `
SELECT version, codec, fold, hash, log_hash, size FROM checkpoints
WHERE thread_key = $1 AND version <= $2
ORDER BY version DESC LIMIT 1`

// CheckpointAt implements Store.
func (p *Postgres) CheckpointAt(ctx context.Context, key Key, version uint64) (Checkpoint, error) {
	row, err := queryOne(ctx, p, scanCheckpoint, sqlCheckpointAt, uuid(key), bigint(version))
	if err != nil {
		return Checkpoint{}, err
	}
	return p.readCheckpoint(ctx, key, &row)
}

// storedCheckpoint is a row of checkpoints as it is stored.
type storedCheckpoint struct {
	version       uint64
	codec         int16
	fold          []byte
	hash, logHash []byte
	size          int64
}

func scanCheckpoint(row pgx.CollectableRow) (c storedCheckpoint, err error) {
	err = row.Scan(&c.version, &c.codec, &c.fold, &c.hash, &c.logHash, &c.size)
	return c, err
}

// readCheckpoint unpacks a checkpoint and checks that it is what was put.
func (p *Postgres) readCheckpoint(ctx context.Context, key Key, row *storedCheckpoint) (c Checkpoint, err error) {
	plain, err := unpack(row.codec&^codecOutlined, row.fold)
	if err == nil && row.codec&codecOutlined != 0 {
		plain, err = content.Get(plain, func(hashes []content.Hash) (map[content.Hash][]byte, error) {
			return p.contents(ctx, key, hashes)
		})
	}
	if errors.Is(err, ErrUnavailable) {
		return c, err
	}
	if err == nil && sha256.Sum256(plain) != [32]byte(row.hash) {
		err = errors.New("its hash is another one")
	}
	if err == nil {
		c.Fold, err = agui.DecodeFold(plain)
	}
	if err == nil && c.Fold.Version != row.version {
		err = fmt.Errorf("it is of version %d", c.Fold.Version)
	}
	if err != nil {
		return Checkpoint{}, fmt.Errorf("%w: the checkpoint of version %d: %w", ErrCorrupt, row.version, err)
	}
	c.Hash, c.Size = [32]byte(row.logHash), int64(len(plain))
	return c, nil
}

// sqlSinceCheckpoint reads what follows the last checkpoint only. The contents are not added up unless it matters.
const sqlSinceCheckpoint = `
WITH last AS (
    SELECT version, size, stored_size, log_stored, all_stored, own_chunks FROM checkpoints
    WHERE thread_key = $1
    ORDER BY version DESC LIMIT 1
), since AS (
    SELECT coalesce(sum(s.size), 0)::bigint AS size, coalesce(sum(octet_length(s.entries)), 0)::bigint AS stored
    FROM log_segments s
    WHERE s.thread_key = $1 AND s.first_version > coalesce((SELECT version FROM last), 0) AND s.last_version <= $2
)
SELECT coalesce(l.version, 0), coalesce(l.size, 0), s.size,
       CASE WHEN l.version IS NULL OR l.all_stored + l.stored_size <= l.log_stored + s.stored THEN true
            ELSE l.all_stored + l.stored_size <= l.log_stored + s.stored - l.own_chunks
                 + (SELECT coalesce(sum(octet_length(c.body)), 0) FROM contents c WHERE c.thread_key = $1)
       END
FROM since s LEFT JOIN last l ON true`

// SinceCheckpoint implements Store. Its cost is the number of segments since, or, where checkpoints take about as much as
// the segments do, of contents.
func (p *Postgres) SinceCheckpoint(ctx context.Context, key Key, until uint64) (LogSince, error) {
	return queryOne(ctx, p, func(row pgx.CollectableRow) (s LogSince, err error) {
		err = row.Scan(&s.Version, &s.Size, &s.LogSize, &s.Room)
		return s, err
	}, sqlSinceCheckpoint, uuid(key), bigint(until))
}

// sqlLockForCheckpoint keeps out a Delete, which would not see the new rows; appends go on.
const sqlLockForCheckpoint = `
SELECT 1 FROM threads
WHERE thread_key = $1
FOR KEY SHARE`

// sqlCheckpointRoom adds up what the segments, the checkpoints, their own chunks and all contents take up to a version, and
// reports whether this or a later checkpoint is there.
const sqlCheckpointRoom = `
WITH last AS (
    SELECT version, log_stored, all_stored, own_chunks FROM checkpoints
    WHERE thread_key = $1
    ORDER BY version DESC LIMIT 1
)
SELECT coalesce((SELECT log_stored FROM last), 0)
           + coalesce((SELECT sum(octet_length(s.entries)) FROM log_segments s
                       WHERE s.thread_key = $1 AND s.first_version > coalesce((SELECT version FROM last), 0)
                         AND s.last_version <= $2), 0)::bigint,
       coalesce((SELECT all_stored FROM last), 0), coalesce((SELECT own_chunks FROM last), 0),
       coalesce((SELECT sum(octet_length(c.body)) FROM contents c WHERE c.thread_key = $1), 0)::bigint,
       coalesce((SELECT version >= $2 FROM last), false)`

const sqlInsertCheckpoint = `
INSERT INTO checkpoints (thread_key, version, codec, fold, hash, log_hash, size, stored_size, log_stored, all_stored, own_chunks)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT (thread_key, version) DO NOTHING`

// PutCheckpoint implements Store. Another node may put the same one at the same time.
func (p *Postgres) PutCheckpoint(ctx context.Context, key Key, c Checkpoint) (kept bool, err error) {
	packed := packCheckpoint(&c)
	err = p.write(ctx, func(tx pgx.Tx) (err error) {
		kept, err = packed.put(ctx, tx, key)
		return err
	})
	return kept, classify(err)
}

// packedFold is a checkpoint in the form it is stored in.
type packedFold struct {
	storedCheckpoint
	chunks map[content.Hash][]byte
}

func packCheckpoint(c *Checkpoint) *packedFold {
	plain := c.Fold.Append(make([]byte, 0, c.Fold.Size()))
	hash := sha256.Sum256(plain)
	f := &packedFold{storedCheckpoint: storedCheckpoint{
		version: c.Fold.Version, size: int64(len(plain)), hash: hash[:], logHash: c.Hash[:],
	}}
	if len(plain) < minOutlined {
		f.codec, f.fold = pack(plain)
		return f
	}
	ref, chunks := content.Put(plain)
	f.chunks = chunks
	f.codec, f.fold = pack(ref)
	f.codec |= codecOutlined
	return f
}

// room is what a thread's log and its checkpoints take, as they are stored, up to a version.
type room struct {
	found                   bool // the thread exists
	kept                    bool // it has the checkpoint, or a later one
	log, all, own, contents int64
}

// put writes a checkpoint if there is room for it.
func (f *packedFold) put(ctx context.Context, tx pgx.Tx, key Key) (kept bool, err error) {
	commit := []*Commit{{Key: key, chunks: f.chunks}}
	held := map[chunkName]bool{}
	var r room
	batch := &pgx.Batch{}
	batch.Queue(sqlLockForCheckpoint, uuid(key)).QueryRow(func(row pgx.Row) error {
		err := row.Scan(nil)
		r.found = err == nil
		return noRows(err)
	})
	batch.Queue(sqlCheckpointRoom, uuid(key), bigint(f.version)).QueryRow(func(row pgx.Row) error {
		return row.Scan(&r.log, &r.all, &r.own, &r.contents, &r.kept)
	})
	queueHeldContents(batch, commit, held)
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return false, err
	}
	chunks := f.newChunks(key, held)
	size := int64(len(f.fold)) + chunks
	switch {
	case !r.found:
		return false, ErrNotFound
	case r.kept || r.all+size > r.log+r.contents-r.own:
		return r.kept, nil
	}
	batch = &pgx.Batch{}
	queueContents(batch, commit, held)
	batch.Queue(sqlInsertCheckpoint, uuid(key), bigint(f.version), f.codec, f.fold, f.hash, f.logHash, f.size,
		size, r.log, r.all+size, r.own+chunks)
	return true, tx.SendBatch(ctx, batch).Close()
}

func noRows(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	return err
}

// newChunks is what those of a checkpoint's chunks take that are not held already.
func (f *packedFold) newChunks(key Key, held map[chunkName]bool) (size int64) {
	for hash, chunk := range f.chunks {
		if !held[chunkName{key, hash}] {
			_, body := pack(chunk)
			size += int64(len(body))
		}
	}
	return size
}
