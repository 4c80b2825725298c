package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store/content"
)

// Agents commonly restate the whole conversation and the whole state at the end of each run. So that this costs what has
// changed since the last time, the log does not hold large payloads itself: it refers to chunks that are kept once for
// each thread, by content. Reading gives back the very same bytes.

// minOutlined is the size from which a payload is kept by content.
const minOutlined = 4 << 10

// flagOutlined marks, in the stored form of entries only, a payload that is a reference. It is none of agui's flags.
const flagOutlined agui.Flags = 1 << 7

// packedSegment is a segment in the form it is stored in.
type packedSegment struct {
	Segment
	codec    int16
	packed   []byte
	outlined int64 // how much less its entries are with references
	restated int64 // how much of that the thread held already
}

// pack puts the commit's segments into the form they are stored in, with the chunks they refer to.
func (c *Commit) pack() {
	if c.packed != nil || len(c.Segments) == 0 {
		return
	}
	c.packed, c.chunks = make([]packedSegment, len(c.Segments)), map[content.Hash][]byte{}
	for i, segment := range c.Segments {
		entries, outlined := outline(segment.Entries, c.chunks)
		codec, packed := packEntries(entries)
		c.packed[i] = packedSegment{Segment: segment, codec: codec, packed: packed}
		if outlined {
			c.packed[i].codec |= codecOutlined
			c.packed[i].outlined = int64(len(segment.Entries) - len(entries))
		}
	}
	for i := range c.Opened {
		c.Opened[i].whole = c.isWhole(&c.Opened[i])
	}
}

// Who merges runs also lays checkpoints. So one of visitRuns runs, and each of more than visitBytes, is left to it though
// there is nothing to merge: what a thread can bring without being looked at is bounded.
const (
	visitRuns  = 8
	visitBytes = 64 << 10
)

// isWhole reports whether a run began and ended in the commit and is one segment, so that nobody need look at it.
func (c *Commit) isWhole(r *Run) bool {
	segments, size := 0, 0
	for i := range c.Segments {
		if c.Segments[i].RunID == r.RunID {
			segments++
			size += len(c.Segments[i].Entries)
		}
	}
	return r.Status != RunActive && segments == 1 && size <= visitBytes && r.Ordinal%visitRuns != 0
}

// outline replaces large payloads by references, and adds the chunks these need.
func outline(stored []byte, chunks map[content.Hash][]byte) (_ []byte, outlined bool) {
	if len(stored) < minOutlined || agui.LargestPayload(stored) < minOutlined {
		return stored, false
	}
	entries, err := agui.DecodeEntries(stored)
	if err != nil { // which is reported when it is read
		return stored, false
	}
	short := make([]byte, 0, len(stored))
	for i := range entries {
		e := &entries[i]
		if len(e.Payload) >= minOutlined {
			ref, needed := content.Put(e.Payload)
			for hash, chunk := range needed {
				chunks[hash] = chunk
			}
			e.Payload, e.Flags = ref, e.Flags|flagOutlined
		}
		short = e.Append(short)
	}
	return short, true
}

// findRestated finds out how much of what was outlined the thread held already: what no new chunk was needed for.
func (c *Commit) findRestated(held map[chunkName]bool) {
	fresh := int64(0)
	for hash, chunk := range c.chunks {
		if !held[chunkName{c.Key, hash}] {
			fresh += int64(len(chunk))
		}
	}
	for i := range c.packed {
		s := &c.packed[i]
		s.restated = max(0, s.outlined-fresh)
		fresh = max(0, fresh-s.outlined)
	}
}

const sqlHeldContents = `
SELECT c.thread_key, c.hash FROM contents c
JOIN unnest($1::uuid[], $2::bytea[]) AS w (thread_key, hash) ON w.thread_key = c.thread_key AND w.hash = c.hash`

const sqlInsertContents = `
INSERT INTO contents (thread_key, hash, codec, body)
SELECT thread_key, hash, codec, body
FROM unnest($1::uuid[], $2::bytea[], $3::smallint[], $4::bytea[]) AS c (thread_key, hash, codec, body)
ON CONFLICT (thread_key, hash) DO NOTHING`

// chunkName names a chunk of a thread.
type chunkName struct {
	key  Key
	hash content.Hash
}

// queueHeldContents finds out which of the commits' chunks are kept already.
func queueHeldContents(batch *pgx.Batch, commits []*Commit, held map[chunkName]bool) {
	var keys []pgtype.UUID
	var hashes [][]byte
	for _, c := range commits {
		for hash := range c.chunks {
			keys, hashes = append(keys, uuid(c.Key)), append(hashes, hash[:])
		}
	}
	if len(keys) == 0 {
		return
	}
	batch.Queue(sqlHeldContents, keys, hashes).Query(func(rows pgx.Rows) error {
		var key pgtype.UUID
		var hash []byte
		_, err := pgx.ForEachRow(rows, []any{&key, &hash}, func() error {
			held[chunkName{key.Bytes, content.Hash(hash)}] = true
			return nil
		})
		return err
	})
}

// queueContents inserts the chunks that are new, in the order of their names: a commit and a checkpoint of one thread may
// insert the same ones at the same time, and would wait for each other otherwise.
func queueContents(batch *pgx.Batch, commits []*Commit, held map[chunkName]bool) {
	var keys []pgtype.UUID
	var hashes, bodies [][]byte
	var codecs []int16
	for _, c := range commits {
		for _, hash := range slices.SortedFunc(maps.Keys(c.chunks), compareHashes) {
			if held[chunkName{c.Key, hash}] {
				continue
			}
			codec, body := pack(c.chunks[hash])
			keys, hashes = append(keys, uuid(c.Key)), append(hashes, hash[:])
			codecs, bodies = append(codecs, codec), append(bodies, body)
		}
	}
	if len(keys) > 0 {
		batch.Queue(sqlInsertContents, keys, hashes, codecs, bodies)
	}
}

func compareHashes(a, b content.Hash) int { return bytes.Compare(a[:], b[:]) }

const sqlContents = `
SELECT hash, codec, body FROM contents
WHERE thread_key = $1 AND hash = ANY ($2::bytea[])`

// inlineAll replaces the references in segments by what they refer to. What cannot be read makes its segment unreadable.
// The error is that of the database.
func (p *Postgres) inlineAll(ctx context.Context, key Key, segments []Segment) error {
	return inlineEach(segments, func(hashes []content.Hash) (map[content.Hash][]byte, error) {
		return p.contents(ctx, key, hashes)
	})
}

// inlineEach is inlineAll with what reads the chunks.
func inlineEach(segments []Segment, read func([]content.Hash) (map[content.Hash][]byte, error)) error {
	for i := range segments {
		s := &segments[i]
		if !s.outlined || s.Err != nil {
			continue
		}
		var dbErr error
		s.Entries, s.Err = inline(s.Entries, func(hashes []content.Hash) (map[content.Hash][]byte, error) {
			chunks, err := read(hashes)
			if !errors.Is(err, ErrCorrupt) {
				dbErr = err
			}
			return chunks, err
		})
		if dbErr != nil {
			return dbErr
		}
	}
	return nil
}

// inline reverses outline.
func inline(stored []byte, fetch func([]content.Hash) (map[content.Hash][]byte, error)) ([]byte, error) {
	entries, err := agui.DecodeEntries(stored)
	if err != nil {
		return nil, err
	}
	var full []byte
	for i := range entries {
		e := &entries[i]
		if e.Flags&flagOutlined != 0 {
			if e.Payload, err = content.Get(e.Payload, fetch); err != nil {
				return nil, err
			}
			e.Flags &^= flagOutlined
		}
		full = e.Append(full)
	}
	return full, nil
}

// contents reads chunks of a thread.
func (p *Postgres) contents(ctx context.Context, key Key, hashes []content.Hash) (map[content.Hash][]byte, error) {
	return chunksOf(query(ctx, p, scanChunk, sqlContents, uuid(key), chunkNames(hashes)))
}

func chunkNames(hashes []content.Hash) [][]byte {
	return column(hashes, func(h content.Hash) []byte { return h[:] })
}

// chunk is a row of contents.
type chunk struct {
	hash content.Hash
	body []byte
}

func scanChunk(row pgx.CollectableRow) (c chunk, err error) {
	var codec int16
	var hash []byte
	if err = row.Scan(&hash, &codec, &c.body); err != nil {
		return c, err
	}
	c.hash = content.Hash(hash)
	c.body, err = unpack(codec, c.body)
	if err == nil && content.HashOf(c.body) != c.hash {
		err = fmt.Errorf("%w: chunk %x has other contents", ErrCorrupt, hash)
	}
	return c, err
}

// chunksOf finds chunks by their hashes.
func chunksOf(rows []chunk, err error) (map[content.Hash][]byte, error) {
	if err != nil {
		return nil, err
	}
	chunks := make(map[content.Hash][]byte, len(rows))
	for _, c := range rows {
		chunks[c.hash] = c.body
	}
	return chunks, nil
}
