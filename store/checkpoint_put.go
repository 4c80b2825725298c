package store

import (
	"context"
	"crypto/sha256"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/threadsvc/threadsvc/store/content"
)

// sqlLockForCheckpoint keeps out a Delete, which would not see the new rows; appends go on.
const sqlLockForCheckpoint = `
SELECT 1 FROM threads
WHERE thread_key = $1
FOR KEY SHARE`

// sqlLockUnmergedBefore keeps runs from being merged that began up to a version and are not yet: the log that they take as they are
// does not last. It waits for a merge under way.
const sqlLockUnmergedBefore = `
SELECT 1 FROM runs
WHERE thread_key = $1 AND first_version <= $2 AND NOT merged
FOR KEY SHARE`

// sqlCheckpointRoom adds up what the segments, the checkpoints, their own chunks and all contents take up to a version, and
// reports whether this or a later checkpoint is there, and whether the version is in the midst of a run.
const sqlCheckpointRoom = `
WITH last AS (
    SELECT version, log_stored, all_stored, own_chunks FROM checkpoints
    WHERE thread_key = $1
    ORDER BY version DESC LIMIT 1
)
SELECT coalesce((SELECT log_stored FROM last), 0)
           + coalesce((SELECT sum(octet_length(s.entries)) FROM log_segments s
                       WHERE s.thread_key = $1 AND s.first_version > coalesce((SELECT version FROM last), 0)
                         AND s.first_version <= $2 AND s.last_version <= $2), 0)::bigint,
       coalesce((SELECT all_stored FROM last), 0), coalesce((SELECT own_chunks FROM last), 0),
       coalesce((SELECT sum(octet_length(c.body)) FROM contents c WHERE c.thread_key = $1), 0)::bigint,
       coalesce((SELECT version >= $2 FROM last), false),
       EXISTS (SELECT 1 FROM runs r WHERE r.thread_key = $1 AND ` + sqlWithinRun + `)`

// sqlWithinRun says that version $2 is in the midst of the run r, where no log is cut.
const sqlWithinRun = `r.first_version <= $2 AND (r.status = 1 OR r.last_version > $2)`

const sqlInsertCheckpoint = `
INSERT INTO checkpoints (thread_key, version, codec, fold, hash, log_hash, size, stored_size, log_stored, all_stored, own_chunks)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT (thread_key, version) DO NOTHING`

// PutCheckpoint implements Store. Another node may put the same one at the same time.
func (p *Postgres) PutCheckpoint(ctx context.Context, key Key, c Checkpoint) (kept bool, err error) {
	packed := packCheckpoint(&c)
	packed.packWhole()
	err = p.write(ctx, func(tx pgx.Tx) (err error) {
		kept, err = packed.put(ctx, tx, key)
		return err
	})
	return kept, classify(err)
}

// packedFold is a checkpoint in the form it is stored in.
type packedFold struct {
	storedCheckpoint
	chunks     map[content.Hash][]byte
	plain      []byte
	whole      []byte // the other form of one that is cut into chunks
	wholeCodec int16
}

// packWhole packs the fold as one, which takes less than chunks do unless there are others to share them with.
func (f *packedFold) packWhole() {
	if f.chunks != nil {
		f.wholeCodec, f.whole = packDense(f.plain)
	}
}

// useWhole makes the form the one without chunks.
func (f *packedFold) useWhole() { f.codec, f.fold, f.chunks = f.wholeCodec, f.whole, nil }

func packCheckpoint(c *Checkpoint) *packedFold {
	plain := c.Fold.Append(make([]byte, 0, c.Fold.Size()))
	hash := sha256.Sum256(plain)
	f := &packedFold{storedCheckpoint: storedCheckpoint{
		version: c.Fold.Version, size: int64(len(plain)), hash: hash[:], logHash: c.Hash[:],
	}, plain: plain}
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
	unmerged                bool // runs up to the version are still to be merged
	within                  bool // the version is in the midst of a run
	log, all, own, contents int64
}

// has reports whether so many bytes more of a checkpoint keep the proportion.
func (r *room) has(size int64) bool {
	return r.all+size <= checkpointShare*(r.log+r.contents-r.own)
}

// put writes a checkpoint if there is room for it, in the form that takes less. While runs before it are unmerged it lasts
// until the merge of one, which makes the log smaller: then it shares no chunks, and is in the midst of a run, so that it is
// not that of a cut.
func (f *packedFold) put(ctx context.Context, tx pgx.Tx, key Key) (kept bool, err error) {
	commit := []*Commit{{Key: key, chunks: f.chunks}}
	held := map[chunkName]bool{}
	r, err := f.room(ctx, tx, key, commit, held)
	switch {
	case err != nil:
		return false, err
	case !r.found:
		return false, ErrNotFound
	case r.kept || r.unmerged && !r.within:
		return r.kept, nil
	}
	chunks := f.newChunks(key, held)
	if f.chunks != nil && (r.unmerged || int64(len(f.whole)) <= int64(len(f.fold))+chunks) {
		f.useWhole()
		commit[0].chunks, chunks = nil, 0
	}
	size := int64(len(f.fold)) + chunks
	if !r.has(size) {
		return false, nil
	}
	batch := &pgx.Batch{}
	queueContents(batch, commit, held)
	batch.Queue(sqlInsertCheckpoint, uuid(key), bigint(f.version), f.codec, f.fold, f.hash, f.logHash, f.size,
		size, r.log, r.all+size, r.own+chunks)
	return true, tx.SendBatch(ctx, batch).Close()
}

// room reads what there is room for, with the locks that make it last until the transaction's end.
func (f *packedFold) room(ctx context.Context, tx pgx.Tx, key Key, commit []*Commit, held map[chunkName]bool) (r room, err error) {
	batch := &pgx.Batch{}
	batch.Queue(sqlLockForCheckpoint, uuid(key)).QueryRow(func(row pgx.Row) error {
		err := row.Scan(nil)
		r.found = err == nil
		return noRows(err)
	})
	batch.Queue(sqlLockUnmergedBefore, uuid(key), bigint(f.version)).Query(func(rows pgx.Rows) error {
		r.unmerged = rows.Next()
		rows.Close()
		return rows.Err()
	})
	batch.Queue(sqlCheckpointRoom, uuid(key), bigint(f.version)).QueryRow(func(row pgx.Row) error {
		return row.Scan(&r.log, &r.all, &r.own, &r.contents, &r.kept, &r.within)
	})
	queueHeldContents(batch, commit, held)
	return r, tx.SendBatch(ctx, batch).Close()
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
