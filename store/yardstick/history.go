package yardstick

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/threadsvc/threadsvc/store"
)

// HistorySizes is what a thread's log and its checkpoints take, in bytes as they are stored.
type HistorySizes struct {
	Log             int64 `db:"log"`
	Checkpoints     int64 `db:"checkpoints"`
	CheckpointCount int64 `db:"checkpoint_count"`
}

// sqlHistorySizes counts each chunk of a large payload once: as the checkpoints' if it was stored for one of them, even if
// the log has come to share it, else as the log's.
const sqlHistorySizes = `
WITH checkpoint AS (
    SELECT count(*) AS n, coalesce(sum(octet_length(fold)), 0) AS folds,
           coalesce(sum(stored_size - octet_length(fold)), 0) AS chunks
    FROM checkpoints
    WHERE thread_key = $1
)
SELECT ((SELECT coalesce(sum(octet_length(entries)), 0) FROM log_segments WHERE thread_key = $1)
        + (SELECT coalesce(sum(octet_length(body)), 0) FROM contents WHERE thread_key = $1) - k.chunks)::bigint AS log,
       (k.folds + k.chunks)::bigint AS checkpoints,
       k.n AS checkpoint_count
FROM checkpoint k`

// HistorySizes reads the sizes of a thread that was not pruned.
func (d *DB) HistorySizes(ctx context.Context, key store.Key) (HistorySizes, error) {
	rows, err := d.conn.Query(ctx, sqlHistorySizes, [16]byte(key))
	if err != nil {
		return HistorySizes{}, fmt.Errorf("yardstick: measure: %w", err)
	}
	sizes, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[HistorySizes])
	if err != nil {
		return HistorySizes{}, fmt.Errorf("yardstick: measure: %w", err)
	}
	return sizes, nil
}
