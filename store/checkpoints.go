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

// checkpointShare is how many times what the log takes its checkpoints may take, both as they are stored.
const checkpointShare int64 = 2

// restatedShare is how many bytes of log that restate what the thread holds bring the next checkpoint as near as one byte of other log.
const restatedShare int64 = 16

// Grown is what the segment adds to LogSince.Grown: the size of its entries, less fifteen sixteenths of what restates large payloads.
// The log hardly takes more for those, while a checkpoint would.
func (s *Segment) Grown() int64 {
	return int64(len(s.Entries)) - s.restated + s.restated/restatedShare
}

// sqlSinceCheckpoint reads what follows the last checkpoint only. The contents are not added up unless it matters.
const sqlSinceCheckpoint = `
WITH last AS (
    SELECT version, size, stored_size, log_stored, all_stored, own_chunks FROM checkpoints
    WHERE thread_key = $1
    ORDER BY version DESC LIMIT 1
), since AS (
    SELECT coalesce(sum(s.size), 0)::bigint AS size, coalesce(sum(s.size - coalesce(s.restated - s.restated / $4, 0)), 0)::bigint AS grown,
           coalesce(sum(octet_length(s.entries)), 0)::bigint AS stored
    FROM log_segments s
    WHERE s.thread_key = $1 AND s.first_version > coalesce((SELECT version FROM last), 0)
      AND s.first_version <= $2 AND s.last_version <= $2
)
SELECT coalesce(l.version, 0), coalesce(l.size, 0), s.size, s.grown,
       CASE WHEN l.version IS NULL OR l.all_stored + l.stored_size <= $3 * (l.log_stored + s.stored) THEN true
            ELSE l.all_stored + l.stored_size <= $3 * (l.log_stored + s.stored - l.own_chunks
                 + (SELECT coalesce(sum(octet_length(c.body)), 0) FROM contents c WHERE c.thread_key = $1))
       END
FROM since s LEFT JOIN last l ON true`

// SinceCheckpoint implements Store. Its cost is the number of segments since, or, where checkpoints take about as much as
// the segments do, of contents.
func (p *Postgres) SinceCheckpoint(ctx context.Context, key Key, until uint64) (LogSince, error) {
	return queryOne(ctx, p, func(row pgx.CollectableRow) (s LogSince, err error) {
		err = row.Scan(&s.Version, &s.Size, &s.LogSize, &s.Grown, &s.Room)
		return s, err
	}, sqlSinceCheckpoint, uuid(key), bigint(until), checkpointShare, restatedShare)
}
