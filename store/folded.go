package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/threadsvc/threadsvc/agui"
)

// Folded is a thread's stored fold, with where the thread is.
type Folded struct {
	// Version and Hash are those of the head.
	Version uint64
	Hash    [32]byte
	// Fold is the stored fold, without an Input. If its Version is not the head's, it has nothing but the Version.
	Fold agui.Fold
}

// Current reports whether the log has nothing after the fold.
func (f *Folded) Current() bool { return f.Fold.Version == f.Version }

// What a row of sqlFolded is.
const (
	rowFold  int16 = 0
	rowBlock int16 = 1
	rowState int16 = 2
	rowPatch int16 = 3
)

// sqlFolded reads all that is stored of a fold as one statement: one round trip, and one snapshot without a transaction.
// Unless $2 is true, a fold that the log has gone beyond is not read.
const sqlFolded = `
WITH head AS MATERIALIZED (
    SELECT t.version, t.log_hash, coalesce(f.version, 0) AS folded, coalesce(f.codec, 0::smallint) AS codec, f.tracking,
           $2::boolean OR t.version = coalesce(f.version, 0) AS wanted
    FROM threads t LEFT JOIN folds f ON f.thread_key = t.thread_key
    WHERE t.thread_key = $1
)
SELECT 0::smallint, h.folded, h.codec, h.tracking, h.version, h.log_hash FROM head h
UNION ALL
SELECT 1::smallint, b.first_position, b.codec, b.body, NULL::bigint, NULL::bytea FROM message_blocks b
WHERE b.thread_key = $1 AND (SELECT wanted FROM head)
UNION ALL
SELECT 2::smallint, s.version, s.codec, s.doc, NULL, NULL FROM states s
WHERE s.thread_key = $1 AND (SELECT wanted FROM head)
UNION ALL
SELECT 3::smallint, p.version, p.codec, p.patch, NULL, NULL FROM state_patches p
WHERE p.thread_key = $1 AND (SELECT wanted FROM head)`

// foldRows collects the rows of sqlFolded.
type foldRows struct {
	found   bool
	folded  Folded
	blocks  []messageBlock
	state   storedState
	patches []storedPatch
	base    scratch // what the base of the state was unpacked into
}

// borrowed is a payload that is valid until the next row is read, so that one that is compressed need not be copied.
type borrowed []byte

// ScanBytes implements pgtype.BytesScanner.
func (b *borrowed) ScanBytes(src []byte) error {
	*b = src
	return nil
}

// storedPatch is a row of state_patches.
type storedPatch struct {
	version int64
	patch   agui.Value
}

// read takes the rows in whatever order they come: a statement does not promise one to the parts of a UNION.
func (f *foldRows) read(rows pgx.Rows) error {
	var kind, codec int16
	var place int64
	var stored borrowed
	var version *uint64
	var hash []byte
	columns := []any{&kind, &place, &codec, &stored, &version, &hash}
	_, err := pgx.ForEachRow(rows, columns, func() error {
		plain, err := f.unpack(kind, codec, stored)
		switch {
		case err != nil:
			return err
		case kind == rowFold && version != nil:
			f.found, f.folded.Version = true, *version
			f.folded.Hash = [32]byte(hash)
			f.folded.Fold.Version, f.folded.Fold.Tracking = uint64(place), plain
		case kind == rowBlock:
			block := messageBlock{first: place}
			err = block.decode(plain)
			f.blocks = append(f.blocks, block)
		case kind == rowState:
			f.state.base = plain
		case kind == rowPatch:
			f.patches = append(f.patches, storedPatch{place, plain})
		default:
			err = fmt.Errorf("%w: a row of kind %d", ErrCorrupt, kind)
		}
		return err
	})
	return err
}

// unpack unpacks the payload of a row, which the driver will overwrite.
func (f *foldRows) unpack(kind, codec int16, stored []byte) ([]byte, error) {
	if kind == rowState {
		return f.base.unpack(codec, stored)
	}
	return unpackCopy(codec, stored)
}

// fold puts what was read in order, without messages of some roles, and applies the patches to the state.
func (f *foldRows) fold(without ...agui.Role) (_ *Folded, err error) {
	if !f.found {
		return nil, ErrNotFound
	}
	slices.SortFunc(f.blocks, func(a, b messageBlock) int { return cmp.Compare(a.first, b.first) })
	for _, b := range f.blocks {
		f.folded.Fold.Messages = append(f.folded.Fold.Messages, b.messages...)
	}
	f.folded.Fold.Messages = slices.DeleteFunc(f.folded.Fold.Messages, func(m agui.StoredMessage) bool {
		return slices.Contains(without, m.Role)
	})
	slices.SortFunc(f.patches, func(a, b storedPatch) int { return cmp.Compare(a.version, b.version) })
	for _, p := range f.patches {
		f.state.patches = append(f.state.patches, p.patch)
	}
	f.folded.Fold.State, err = f.state.value()
	if len(f.patches) > 0 {
		f.base.release() // the state is a text of its own
	} else {
		f.folded.Fold.State = f.base.keep(f.folded.Fold.State)
	}
	return &f.folded, err
}

// Folded implements Store. It takes one round trip.
func (p *Postgres) Folded(ctx context.Context, key Key, without ...agui.Role) (*Folded, error) {
	var f foldRows
	err := retry(ctx, safeRead, func() error {
		f = foldRows{}
		rows, err := p.pool.Query(ctx, sqlFolded, uuid(key), false)
		if err != nil {
			return err
		}
		return f.read(rows)
	})
	if err != nil {
		return nil, classify(err)
	}
	return f.fold(without...)
}
