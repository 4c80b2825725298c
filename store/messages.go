package store

import (
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// sqlChangedBlocks finds the blocks that own positions: the last that begins at the position or before it.
const sqlChangedBlocks = `
SELECT b.thread_key, b.first_position, b.codec, b.body FROM message_blocks b
WHERE (b.thread_key, b.first_position) IN (
    SELECT c.thread_key, (SELECT max(o.first_position) FROM message_blocks o
                          WHERE o.thread_key = c.thread_key AND o.first_position <= c.position)
    FROM unnest($1::uuid[], $2::bigint[]) AS c (thread_key, position))
ORDER BY b.thread_key, b.first_position`

// queueChangedBlocks reads the blocks that folds change. Most change none: they add messages at the end.
func queueChangedBlocks(batch *pgx.Batch, folding []*Commit, into map[Key][]messageBlock) {
	var threads []pgtype.UUID
	var positions []int64
	for _, c := range folding {
		changed := slices.Clone(c.Fold.Deletes)
		for _, m := range c.Fold.Upserts[:placeOf(c.Fold.Upserts, c.Fold.Stored+1)] {
			changed = append(changed, m.Position)
		}
		for _, position := range changed {
			threads, positions = append(threads, uuid(c.Key)), append(positions, position)
		}
	}
	if len(positions) == 0 {
		return
	}
	batch.Queue(sqlChangedBlocks, threads, positions).Query(func(rows pgx.Rows) error {
		var key pgtype.UUID
		var b messageBlock
		var codec int16
		var stored []byte
		_, err := pgx.ForEachRow(rows, []any{&key, &b.first, &codec, &stored}, func() error {
			block, err := openBlock(b.first, codec, stored)
			into[key.Bytes] = append(into[key.Bytes], block)
			return err
		})
		return err
	})
}

// openBlock reads what is stored of a block.
func openBlock(first int64, codec int16, stored []byte) (messageBlock, error) {
	b := messageBlock{first: first}
	plain, err := unpack(codec, stored)
	if err == nil {
		err = b.decode(plain)
	}
	return b, err
}

const sqlDeleteBlocks = `
DELETE FROM message_blocks b
USING unnest($1::uuid[], $2::bigint[]) AS d (thread_key, first_position)
WHERE b.thread_key = d.thread_key AND b.first_position = d.first_position`

const sqlInsertBlocks = `
INSERT INTO message_blocks (thread_key, first_position, codec, body)
SELECT thread_key, first_position, codec, body
FROM unnest($1::uuid[], $2::bigint[], $3::smallint[], $4::bytea[]) AS b (thread_key, first_position, codec, body)`

// queueMessages writes the messages of folds. owners are the blocks that they change.
func queueMessages(batch *pgx.Batch, folding []*Commit, owners map[Key][]messageBlock) {
	var gone []of[int64]
	var added []of[messageBlock]
	for _, c := range folding {
		change := planBlocks(c, owners[c.Key])
		for i := range change.gone {
			gone = append(gone, of[int64]{c.Key, &change.gone[i]})
		}
		for i := range change.added {
			added = append(added, of[messageBlock]{c.Key, &change.added[i]})
		}
	}
	if len(gone) > 0 {
		batch.Queue(sqlDeleteBlocks, keys(gone), column(gone, func(g of[int64]) int64 { return *g.row }))
	}
	if len(added) > 0 {
		codecs, bodies := make([]int16, len(added)), make([][]byte, len(added))
		for i, b := range added {
			codecs[i], bodies[i] = pack(b.row.encode())
		}
		batch.Queue(sqlInsertBlocks, keys(added), column(added, func(b of[messageBlock]) int64 { return b.row.first }),
			codecs, bodies)
	}
}
