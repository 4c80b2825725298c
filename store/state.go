package store

import (
	"context"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/agui/jsondoc"
)

// minPatches is the size of patches, in bytes of plain text, below which they are not folded into a new base.
const minPatches = 512

// rebaseShare is the part of the base's size, as its denominator, at which patches are folded into a new base.
const rebaseShare = 4

// stateLimits bound nothing but what stored data can take: what is stored has passed the limits of its time.
var stateLimits = jsondoc.Limits{Depth: math.MaxInt, Ops: math.MaxInt, Size: maxDecoded, Work: math.MaxInt}

// stateSizes are the sizes of what is stored of a thread's state, as plain texts.
type stateSizes struct{ base, patches int64 }

// baseDoc is a row of states.
type baseDoc struct {
	version uint64
	doc     agui.Value
}

// stateWrite is what a commit does to a thread's state: a new base, which ends the patches before it, then new patches.
type stateWrite struct {
	key     Key
	base    []baseDoc // at most one
	patches []agui.StatePatch
	sizes   stateSizes // afterwards
}

// planStates decides what to write. For states whose patches have reached a quarter of the base's size it reads both
// and makes a new base, so that a state costs a few times its changes to write and at most a quarter more than its size to
// read, where a byte of patches takes much longer than one of the base.
func planStates(ctx context.Context, tx pgx.Tx, folding []*Commit, sizes map[Key]stateSizes) ([]stateWrite, error) {
	plan := make([]stateWrite, len(folding))
	rebase := map[Key]*stateWrite{}
	for i, c := range folding {
		plan[i] = planState(c, sizes[c.Key])
		if w := &plan[i]; len(w.patches) > 0 && w.sizes.patches >= max(minPatches, w.sizes.base/rebaseShare) {
			rebase[c.Key] = w
		}
	}
	if len(rebase) == 0 {
		return plan, nil
	}
	stored, err := readStates(ctx, tx, rebase)
	if err != nil {
		return nil, err
	}
	for key, w := range rebase {
		w.fold(stored[key])
	}
	return plan, nil
}

func planState(c *Commit, sizes stateSizes) stateWrite {
	w := stateWrite{key: c.Key, patches: c.Fold.State.Patches, sizes: sizes}
	if replaced := c.Fold.State.Replaced; replaced != nil {
		version := c.Version
		if len(w.patches) > 0 {
			version = w.patches[0].Version - 1
		}
		w.base = []baseDoc{{version, replaced}}
		w.sizes = stateSizes{base: int64(len(replaced))}
	}
	w.patches = joinPatches(w.patches)
	for _, p := range w.patches {
		w.sizes.patches += int64(len(p.Patch))
	}
	return w
}

// joinPatches makes one row of all patches of a commit, of the version of the last: a row for each would take several times as
// much, and as much longer to write and to read.
func joinPatches(patches []agui.StatePatch) []agui.StatePatch {
	if len(patches) < 2 {
		return patches
	}
	texts := column(patches, func(p agui.StatePatch) agui.Value { return p.Patch })
	return []agui.StatePatch{{Version: patches[len(patches)-1].Version, Patch: jsondoc.JoinPatches(texts...)}}
}

// fold turns patches into a new base. If that fails they stay patches: what reads the state will say why.
func (w *stateWrite) fold(stored storedState) {
	if len(w.base) > 0 {
		stored = storedState{base: w.base[0].doc}
	}
	for _, p := range w.patches {
		stored.patches = append(stored.patches, p.Patch)
	}
	doc, err := stored.value()
	if err != nil {
		return
	}
	w.base = []baseDoc{{w.patches[len(w.patches)-1].Version, doc}}
	w.patches = nil
	w.sizes = stateSizes{base: int64(len(doc))}
}

// storedState is a state as it is stored. No base means {} under the patches, and no state if there are none either.
type storedState struct {
	base    agui.Value
	patches []agui.Value
}

// value is the state's text.
func (s storedState) value() (agui.Value, error) {
	if len(s.patches) == 0 {
		return s.base, nil
	}
	base := s.base
	if base == nil {
		base = agui.Value("{}")
	}
	doc := jsondoc.Known(base, stateLimits)
	for _, text := range s.patches {
		if err := applyStored(doc, text); err != nil {
			return nil, fmt.Errorf("%w: the patches of the state: %w", ErrCorrupt, err)
		}
	}
	return doc.AppendTo(make([]byte, 0, doc.Size())), nil
}

// applyStored applies a patch that has been applied before, as one or as several. Its operations are applied one by one: together
// they might copy more than one patch may, and what each of them replaced would be held until the last.
func applyStored(doc *jsondoc.Doc, text agui.Value) error {
	patch, _, err := jsondoc.ParseKnownOps(text, stateLimits)
	if err != nil {
		return err
	}
	for operation := range patch.Each() {
		if err := doc.Apply(operation); err != nil {
			return err
		}
	}
	return nil
}

const sqlStates = `
SELECT thread_key, codec, doc FROM states
WHERE thread_key = ANY ($1::uuid[])`

const sqlStatePatches = `
SELECT thread_key, codec, patch FROM state_patches
WHERE thread_key = ANY ($1::uuid[])
ORDER BY thread_key, version`

func readStates(ctx context.Context, tx pgx.Tx, wanted map[Key]*stateWrite) (map[Key]storedState, error) {
	var threads []pgtype.UUID
	for key := range wanted {
		threads = append(threads, uuid(key))
	}
	stored := map[Key]storedState{}
	batch := &pgx.Batch{}
	batch.Queue(sqlStates, threads).Query(eachPayload(func(key Key, doc agui.Value) {
		s := stored[key]
		s.base = doc
		stored[key] = s
	}))
	batch.Queue(sqlStatePatches, threads).Query(eachPayload(func(key Key, patch agui.Value) {
		s := stored[key]
		s.patches = append(s.patches, patch)
		stored[key] = s
	}))
	return stored, tx.SendBatch(ctx, batch).Close()
}

// eachPayload reads rows of thread_key, codec and a payload.
func eachPayload(take func(Key, agui.Value)) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var key pgtype.UUID
		var codec int16
		var stored []byte
		_, err := pgx.ForEachRow(rows, []any{&key, &codec, &stored}, func() error {
			plain, err := unpack(codec, stored)
			take(key.Bytes, plain)
			return err
		})
		return err
	}
}

const sqlUpsertStates = `
INSERT INTO states (thread_key, version, codec, doc)
SELECT thread_key, version, codec, doc
FROM unnest($1::uuid[], $2::bigint[], $3::smallint[], $4::bytea[]) AS s (thread_key, version, codec, doc)
ON CONFLICT (thread_key) DO UPDATE
SET version = excluded.version, codec = excluded.codec, doc = excluded.doc`

const sqlEndStatePatches = `
DELETE FROM state_patches
WHERE thread_key = ANY ($1::uuid[])`

const sqlInsertStatePatches = `
INSERT INTO state_patches (thread_key, version, codec, patch)
SELECT thread_key, version, codec, patch
FROM unnest($1::uuid[], $2::bigint[], $3::smallint[], $4::bytea[]) AS p (thread_key, version, codec, patch)`

func queueStates(batch *pgx.Batch, plan []stateWrite) {
	var bases []of[baseDoc]
	var patches []of[agui.StatePatch]
	for _, w := range plan {
		for i := range w.base {
			bases = append(bases, of[baseDoc]{w.key, &w.base[i]})
		}
		for i := range w.patches {
			patches = append(patches, of[agui.StatePatch]{w.key, &w.patches[i]})
		}
	}
	if len(bases) > 0 {
		batch.Queue(sqlUpsertStates, payloadArgs(bases, func(b *baseDoc) (uint64, agui.Value) { return b.version, b.doc })...)
		batch.Queue(sqlEndStatePatches, keys(bases))
	}
	if len(patches) > 0 {
		batch.Queue(sqlInsertStatePatches,
			payloadArgs(patches, func(p *agui.StatePatch) (uint64, agui.Value) { return p.Version, p.Patch })...)
	}
}

// payloadArgs are the columns thread_key, version, codec and a payload.
func payloadArgs[T any](rows []of[T], get func(*T) (uint64, agui.Value)) []any {
	versions, codecs, payloads := make([]int64, len(rows)), make([]int16, len(rows)), make([][]byte, len(rows))
	for i, r := range rows {
		version, text := get(r.row)
		versions[i] = bigint(version)
		codecs[i], payloads[i] = packFold(text)
	}
	return []any{keys(rows), versions, codecs, payloads}
}
