package store

import (
	"github.com/jackc/pgx/v5"

	"github.com/threadsvc/threadsvc/agui"
)

const sqlDeleteMessages = `
DELETE FROM messages m
USING unnest($1::uuid[], $2::bigint[]) AS d (thread_key, position)
WHERE m.thread_key = d.thread_key AND m.position = d.position`

const sqlUpsertMessages = `
INSERT INTO messages (thread_key, position, message_id, role, codec, body)
SELECT thread_key, position, message_id, role, codec, body
FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::smallint[], $6::bytea[])
    AS m (thread_key, position, message_id, role, codec, body)
ON CONFLICT (thread_key, position) DO UPDATE
SET message_id = excluded.message_id, role = excluded.role, codec = excluded.codec, body = excluded.body`

func queueMessages(batch *pgx.Batch, folding []*Commit) {
	deletes := rowsOf(folding, func(c *Commit) []int64 { return c.Fold.Deletes })
	if len(deletes) > 0 {
		batch.Queue(sqlDeleteMessages, keys(deletes), column(deletes, func(d of[int64]) int64 { return *d.row }))
	}
	upserts := rowsOf(folding, func(c *Commit) []agui.StoredMessage { return c.Fold.Upserts })
	if len(upserts) > 0 {
		batch.Queue(sqlUpsertMessages, messageArgs(upserts)...)
	}
}

func messageArgs(rows []of[agui.StoredMessage]) []any {
	codecs, bodies := make([]int16, len(rows)), make([][]byte, len(rows))
	for i, r := range rows {
		codecs[i], bodies[i] = packFold(r.row.Body)
	}
	return []any{
		keys(rows),
		column(rows, func(m of[agui.StoredMessage]) int64 { return m.row.Position }),
		column(rows, func(m of[agui.StoredMessage]) string { return m.row.ID }),
		column(rows, func(m of[agui.StoredMessage]) string { return string(m.row.Role) }),
		codecs,
		bodies,
	}
}
