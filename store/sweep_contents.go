package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"

	"github.com/jackc/pgx/v5"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store/content"
)

// Contents are shared: a chunk that the removed log referred to may be one that later entries, or a checkpoint, refer to as
// well, and a commit that finds a chunk kept does not bring it. So they are marked and swept: everything that is kept is read
// for what it refers to, without a lock; the chunks that nothing named are removed a few at a time, each time with the
// head locked so that nobody can begin to refer to them, and only if nothing was added since the marking.

// sqlIsOutlined is true of a row with codecOutlined, whatever else its codec says.
const sqlIsOutlined = `codec & 2 <> 0`

// sqlOutlined reads segments that refer to contents, from the one that has a version on.
const sqlOutlined = `
SELECT first_version, last_version, codec, entries FROM log_segments
WHERE thread_key = $1 AND ` + sqlIsOutlined + ` AND last_version > $2
  AND first_version >= coalesce((SELECT max(b.first_version) FROM log_segments b
                                 WHERE b.thread_key = $1 AND b.first_version <= $2), 0)
ORDER BY first_version LIMIT 16`

// sqlUnmarked finds the checkpoints whose reference is none of those that were marked. That a cut writes below later
// checkpoints, or over one, makes no difference to it: equal references need equal chunks.
const sqlUnmarked = `FROM checkpoints c
WHERE c.thread_key = $1 AND ` + sqlIsOutlined + `
  AND NOT EXISTS (SELECT 1 FROM unnest($2::bytea[]) AS m (ref) WHERE m.ref = sha256(c.fold))`

const sqlOutlinedCheckpoints = `
SELECT c.version, c.codec, c.fold ` + sqlUnmarked + `
LIMIT 16`

// marking is what is known to be referred to: by the log up to a version, and by checkpoints.
type marking struct {
	names       *content.Names
	log         uint64
	checkpoints [][]byte // the hashes of their references, as they are stored
}

// outlinedRow is a row that refers to contents.
type outlinedRow struct {
	version uint64 // its last
	codec   int16
	stored  []byte
}

func scanOutlinedSegment(row pgx.CollectableRow) (o outlinedRow, err error) {
	var first uint64
	err = row.Scan(&first, &o.version, &o.codec, &o.stored)
	return o, err
}

func scanOutlinedCheckpoint(row pgx.CollectableRow) (o outlinedRow, err error) {
	err = row.Scan(&o.version, &o.codec, &o.stored)
	return o, err
}

// mark goes on to what was added since, up to the version that the thread has now at least.
func (p *Postgres) mark(ctx context.Context, key Key, m *marking) error {
	head, err := p.Head(ctx, key)
	if err != nil {
		return err
	}
	if err := p.markLog(ctx, key, m); err != nil {
		return err
	}
	m.log = max(m.log, head.Version)
	return p.markCheckpoints(ctx, key, m)
}

func (p *Postgres) fetchOf(ctx context.Context, key Key) fetchContents {
	return func(hashes []content.Hash) (map[content.Hash][]byte, error) { return p.contents(ctx, key, hashes) }
}

func (p *Postgres) markLog(ctx context.Context, key Key, m *marking) error {
	fetch := p.fetchOf(ctx, key)
	for {
		rows, err := query(ctx, p, scanOutlinedSegment, sqlOutlined, uuid(key), bigint(m.log))
		if err != nil || len(rows) == 0 {
			return err
		}
		for i := range rows {
			if err := m.segment(&rows[i], fetch); err != nil {
				return err
			}
		}
	}
}

func (p *Postgres) markCheckpoints(ctx context.Context, key Key, m *marking) error {
	fetch := p.fetchOf(ctx, key)
	for {
		rows, err := query(ctx, p, scanOutlinedCheckpoint, sqlOutlinedCheckpoints, uuid(key), m.checkpoints)
		if err != nil || len(rows) == 0 {
			return err
		}
		for i := range rows {
			if err := m.checkpoint(&rows[i], fetch); err != nil {
				return err
			}
		}
	}
}

type fetchContents = func([]content.Hash) (map[content.Hash][]byte, error)

func (m *marking) segment(row *outlinedRow, fetch fetchContents) error {
	plain, err := unpack(row.codec&^codecOutlined, row.stored)
	if err != nil {
		return err
	}
	entries, err := agui.DecodeEntries(plain)
	if err != nil {
		return errors.Join(ErrCorrupt, err)
	}
	for i := range entries {
		if entries[i].Flags&flagOutlined != 0 {
			if err := m.names.Add(entries[i].Payload, fetch); err != nil {
				return err
			}
		}
	}
	m.log = row.version
	return nil
}

func (m *marking) checkpoint(row *outlinedRow, fetch fetchContents) error {
	ref, err := unpack(row.codec&^codecOutlined, row.stored)
	if err == nil {
		err = m.names.Add(ref, fetch)
	}
	sum := sha256.Sum256(row.stored)
	m.checkpoints = append(m.checkpoints, sum[:])
	return err
}

const sqlContentNames = `
SELECT hash FROM contents
WHERE thread_key = $1 AND hash > $2
ORDER BY hash LIMIT $3`

// sweepContents removes what nothing refers to. Of a thread with a part that cannot be read nothing is removed, since
// what that refers to is not known.
func (p *Postgres) sweepContents(ctx context.Context, at *pruning, limit int) error {
	m := &marking{names: content.NewNames(), checkpoints: [][]byte{}}
	marked := false
	for after := []byte{}; ; {
		page, err := query(ctx, p, pgx.RowTo[[]byte], sqlContentNames, uuid(at.key), after, int64(limit))
		if err != nil || len(page) == 0 {
			return err
		}
		if !marked {
			if err := p.mark(ctx, at.key, m); err != nil {
				return p.passOver(ctx, at.key, err)
			}
			marked = true
		}
		after = page[len(page)-1]
		if err := p.removeUnnamed(ctx, at, m, page); err != nil {
			return p.passOver(ctx, at.key, err)
		}
	}
}

func (p *Postgres) passOver(ctx context.Context, key Key, err error) error {
	if !errors.Is(err, ErrCorrupt) && !errors.Is(err, content.ErrCorrupt) {
		return err
	}
	p.log.LogAttrs(ctx, slog.LevelError, "contents are kept, since not everything that may refer to them can be read",
		slog.String("thread_key", key.String()), slog.Any("error", err))
	return nil
}

// maxRemarks bounds how often what was added is marked before a sweep gives way to writers.
const maxRemarks = 10

// removeUnnamed removes those of a page that nothing refers to.
func (p *Postgres) removeUnnamed(ctx context.Context, at *pruning, m *marking, page [][]byte) error {
	for range maxRemarks {
		var unnamed [][]byte
		for _, hash := range page {
			if !m.names.Has(content.Hash(hash)) {
				unnamed = append(unnamed, hash)
			}
		}
		if len(unnamed) == 0 {
			return nil
		}
		removed, err := p.removeIfUnchanged(ctx, at, m, unnamed)
		if err != nil || removed {
			return err
		}
		if err := p.mark(ctx, at.key, m); err != nil {
			return err
		}
	}
	return errBusy
}

// sqlLockUnchanged locks a head, which keeps out all who refer to contents.
const sqlLockUnchanged = `
SELECT first_version FROM threads
WHERE thread_key = $1
FOR UPDATE`

const sqlReferredSince = `
SELECT EXISTS (SELECT 1 FROM log_segments
               WHERE thread_key = $1 AND ` + sqlIsOutlined + ` AND last_version > $3
                 AND first_version >= coalesce((SELECT max(b.first_version) FROM log_segments b
                                                WHERE b.thread_key = $1 AND b.first_version <= $3), 0))
    OR EXISTS (SELECT 1 ` + sqlUnmarked + `)`

const sqlDeleteContents = `
DELETE FROM contents
WHERE thread_key = $1 AND hash = ANY ($2::bytea[])`

// removeIfUnchanged removes chunks unless something was added since they were marked.
func (p *Postgres) removeIfUnchanged(ctx context.Context, at *pruning, m *marking, hashes [][]byte) (removed bool, err error) {
	err = p.write(ctx, func(tx pgx.Tx) error {
		var first uint64
		var added bool
		err := tx.QueryRow(ctx, sqlLockUnchanged, uuid(at.key)).Scan(&first)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrNotFound
		}
		if err != nil {
			return err
		}
		if first != at.version { // cut again, which is another sweep
			return errBusy
		}
		err = tx.QueryRow(ctx, sqlReferredSince, uuid(at.key), m.checkpoints, bigint(m.log)).Scan(&added)
		if err != nil || added {
			return err
		}
		_, err = tx.Exec(ctx, sqlDeleteContents, uuid(at.key), hashes)
		removed = err == nil
		return err
	})
	return removed, classify(err)
}
