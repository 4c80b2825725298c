package store

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

const sqlStateSizes = `
SELECT thread_key, state_size, patches_size FROM folds
WHERE thread_key = ANY ($1::uuid[])`

func queueStateSizes(batch *pgx.Batch, folding []*Commit, into map[Key]stateSizes) {
	threads := column(folding, func(c *Commit) pgtype.UUID { return uuid(c.Key) })
	batch.Queue(sqlStateSizes, threads).Query(func(rows pgx.Rows) error {
		var key pgtype.UUID
		var sizes stateSizes
		_, err := pgx.ForEachRow(rows, []any{&key, &sizes.base, &sizes.patches}, func() error {
			into[key.Bytes] = sizes
			return nil
		})
		return err
	})
}

const sqlUpsertFolds = `
INSERT INTO folds (thread_key, version, codec, tracking, state_size, patches_size)
SELECT thread_key, version, codec, tracking, state_size, patches_size
FROM unnest($1::uuid[], $2::bigint[], $3::smallint[], $4::bytea[], $5::bigint[], $6::bigint[])
    AS f (thread_key, version, codec, tracking, state_size, patches_size)
ON CONFLICT (thread_key) DO UPDATE
SET version = excluded.version, codec = excluded.codec, tracking = excluded.tracking,
    state_size = excluded.state_size, patches_size = excluded.patches_size`

// queueFolds writes where the folds stand. plan is in the order of folding.
func queueFolds(batch *pgx.Batch, folding []*Commit, plan []stateWrite) {
	if len(folding) == 0 {
		return
	}
	codecs, tracking := make([]int16, len(folding)), make([][]byte, len(folding))
	for i, c := range folding {
		codecs[i], tracking[i] = packFold(c.Fold.Tracking)
	}
	batch.Queue(sqlUpsertFolds,
		column(folding, func(c *Commit) pgtype.UUID { return uuid(c.Key) }),
		column(folding, func(c *Commit) int64 { return bigint(c.Fold.Version) }),
		codecs, tracking,
		column(plan, func(w stateWrite) int64 { return w.sizes.base }),
		column(plan, func(w stateWrite) int64 { return w.sizes.patches }),
	)
}
