package store

import (
	"context"
	"errors"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

const sqlInsertWarnings = `
INSERT INTO warnings (thread_key, version, ordinal, run_id, "offset", code, path, detail, fatal, codec, removed,
                      removed_size, tenant)
SELECT thread_key, w.version, w.ordinal, w.run_id, w."offset", w.code, w.path, w.detail, w.fatal, w.codec, w.removed,
       w.removed_size, t.tenant
FROM unnest($1::uuid[], $2::bigint[], $3::integer[], $4::text[], $5::bigint[], $6::text[], $7::bytea[], $8::bytea[],
            $9::boolean[], $10::smallint[], $11::bytea[], $12::bigint[])
    AS w (thread_key, version, ordinal, run_id, "offset", code, path, detail, fatal, codec, removed, removed_size)
    JOIN threads t USING (thread_key)`

func queueWarnings(batch *pgx.Batch, commits []*Commit) {
	rows := rowsOf(commits, func(c *Commit) []Warning { return c.Warnings })
	if len(rows) == 0 {
		return
	}
	codecs, removed := make([]int16, len(rows)), make([][]byte, len(rows))
	for i, r := range rows {
		codecs[i], removed[i] = pack(CutRemoved(r.row.Removed))
	}
	batch.Queue(sqlInsertWarnings,
		keys(rows),
		column(rows, func(w of[Warning]) int64 { return bigint(w.row.Version) }),
		column(rows, func(w of[Warning]) int32 { return w.row.Ordinal }),
		column(rows, func(w of[Warning]) string { return w.row.RunID }),
		column(rows, func(w of[Warning]) int64 { return bigint(w.row.Offset) }),
		column(rows, func(w of[Warning]) string { return string(w.row.Code) }),
		column(rows, func(w of[Warning]) []byte { return []byte(w.row.Path) }),
		column(rows, func(w of[Warning]) []byte { return []byte(w.row.Detail) }),
		column(rows, func(w of[Warning]) bool { return w.row.Fatal }),
		codecs, removed,
		column(rows, func(w of[Warning]) int64 { return int64(len(w.row.Removed)) }),
	)
}

// CutRemoved is what a store keeps of a warning's removed text: at most MaxRemovedBytes, whole characters.
func CutRemoved(text []byte) []byte {
	if len(text) <= MaxRemovedBytes {
		return text
	}
	end := MaxRemovedBytes
	for end > MaxRemovedBytes-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

const sqlWarnings = `
SELECT version, ordinal, run_id, "offset", code, path, detail, fatal, codec, removed, removed_size, raised_at
FROM warnings
WHERE thread_key = $1 AND (version, ordinal) > ($2, $3)
ORDER BY version, ordinal LIMIT $4`

func scanWarning(row pgx.CollectableRow) (w Warning, err error) {
	var codec int16
	var path, detail []byte
	removed := (*[]byte)(&w.Removed)
	err = row.Scan(&w.Version, &w.Ordinal, &w.RunID, &w.Offset, &w.Code, &path, &detail, &w.Fatal, &codec, removed,
		&w.RemovedBytes, &w.RaisedAt)
	w.Path, w.Detail, w.RaisedAt = string(path), string(detail), w.RaisedAt.UTC()
	return w, errors.Join(err, unpackAll(codec, removed))
}

// Warnings implements Store.
func (p *Postgres) Warnings(ctx context.Context, key Key, after WarningPlace, limit int) ([]Warning, error) {
	return query(ctx, p, scanWarning, sqlWarnings, uuid(key), bigint(after.Version), after.Ordinal, int64(limit))
}
