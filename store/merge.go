package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/klauspost/compress/zstd"

	"github.com/threadsvc/threadsvc/agui"
)

// mergedSize is the size, in bytes of plain entries, that merged segments do not exceed.
const mergedSize = 1 << 20

// merger compresses merged segments: harder than those on the way to an acknowledgement.
var merger = must(zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithEncoderCRC(true)))

const sqlUnmerged = `
SELECT r.thread_key, r.ordinal, r.last_version FROM runs r
JOIN folds f ON f.thread_key = r.thread_key AND f.version >= r.last_version
WHERE r.status <> 1 AND NOT r.merged
ORDER BY r.thread_key, r.ordinal
LIMIT $1`

// Unmerged implements Store. It reads a partial index that holds little else, in its order.
func (p *Postgres) Unmerged(ctx context.Context, limit int) ([]RunPlace, error) {
	return query(ctx, p, func(row pgx.CollectableRow) (at RunPlace, err error) {
		var key pgtype.UUID
		err = row.Scan(&key, &at.Ordinal, &at.LastVersion)
		at.Key = key.Bytes
		return at, err
	}, sqlUnmerged, int64(limit))
}

// sqlLockUnmerged takes a run that is to be merged; nothing if another node has it in hand. What is folded is never the
// tail that a load reads. The lock of the head keeps out a Delete, which would not see the merged rows; appends go on.
const sqlLockUnmerged = `
SELECT r.run_id, r.first_version, r.last_version FROM runs r
JOIN folds f ON f.thread_key = r.thread_key AND f.version >= r.last_version
JOIN threads t ON t.thread_key = r.thread_key AND t.pruned_runs < r.ordinal
WHERE r.thread_key = $1 AND r.ordinal = $2 AND r.status <> 1 AND NOT r.merged
FOR UPDATE OF r SKIP LOCKED FOR KEY SHARE OF t SKIP LOCKED`

const sqlRunSegments = `
SELECT first_version, last_version, run_id, stream_id, first_offset, next_offset, codec, entries, size, committed_at, times,
       coalesce(restated, 0)
FROM log_segments
WHERE thread_key = $1 AND first_version BETWEEN $2 AND $3 AND run_id = $4
ORDER BY first_version`

const sqlDeleteSegments = `
DELETE FROM log_segments
WHERE thread_key = $1 AND first_version = ANY ($2::bigint[])`

const sqlInsertMerged = `
INSERT INTO log_segments (thread_key, first_version, last_version, run_id, stream_id, first_offset, next_offset, codec,
                          entries, size, committed_at, times, restated)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, nullif($13::bigint, 0))`

// sqlDeleteProvisional deletes the checkpoints that were laid by what the log took before a run from version $2 on, of ordinal
// $3, was merged. That of a cut is in the midst of no run.
const sqlDeleteProvisional = `
DELETE FROM checkpoints c
WHERE c.thread_key = $1 AND c.version >= $2 AND EXISTS (
    SELECT 1 FROM runs r
    WHERE r.thread_key = $1 AND r.ordinal >= $3 AND r.first_version <= c.version AND (r.status = 1 OR r.last_version > c.version))`

const sqlSetMerged = `
UPDATE runs SET merged = true
WHERE thread_key = $1 AND ordinal = $2`

// storedSegment is a row of log_segments with its entries unpacked, references in place.
type storedSegment struct {
	Segment
	codec int16
	size  int64
	times []byte
}

// Merge implements Store. Versions, hashes and the entries themselves stay what they are.
func (p *Postgres) Merge(ctx context.Context, at RunPlace) (merged int64, err error) {
	err = p.write(ctx, func(tx pgx.Tx) error {
		merged = 0
		segments, err := lockUnmerged(ctx, tx, at)
		if err != nil || segments == nil {
			return err
		}
		batch := &pgx.Batch{}
		for _, group := range mergeable(segments) {
			merged += queueMerge(batch, at.Key, group)
		}
		if merged > 0 {
			batch.Queue(sqlDeleteProvisional, uuid(at.Key), bigint(segments[0].FirstVersion), at.Ordinal)
		}
		batch.Queue(sqlSetMerged, uuid(at.Key), at.Ordinal)
		return tx.SendBatch(ctx, batch).Close()
	})
	return merged, classify(err)
}

// lockUnmerged takes a run and reads its segments; nil if there is nothing to merge.
func lockUnmerged(ctx context.Context, tx pgx.Tx, at RunPlace) ([]storedSegment, error) {
	var runID string
	var first, last int64
	err := tx.QueryRow(ctx, sqlLockUnmerged, uuid(at.Key), at.Ordinal).Scan(&runID, &first, &last)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, sqlRunSegments, uuid(at.Key), first, last, runID)
	if err != nil {
		return nil, err
	}
	// One row for each version, at most; usually there are fewer. A damaged run may end before it begins.
	return pgx.AppendRows(make([]storedSegment, 0, max(0, min(last-first+1, 512))), rows, scanStored)
}

func scanStored(row pgx.CollectableRow) (s storedSegment, err error) {
	var stored []byte
	err = row.Scan(&s.FirstVersion, &s.LastVersion, &s.RunID, &s.StreamID, &s.FirstOffset, &s.NextOffset, &s.codec, &stored,
		&s.size, &s.CommittedAt, &s.times, &s.restated)
	if s.Entries, s.Err = unpack(s.codec&^codecOutlined, stored); s.Err == nil {
		s.Err = s.check()
	}
	return s, err
}

// check returns an error unless the entries are those of the segment's versions. One that is wrong in that would make all that
// it is merged with unreadable, and short ones have no checksum.
func (s *storedSegment) check() error {
	entries := uint64(0)
	err := agui.EachEntry(s.Entries, func(*agui.Entry, []byte) error {
		entries++
		return nil
	})
	if err == nil && entries != s.LastVersion+1-s.FirstVersion {
		err = fmt.Errorf("%d entries of versions %d to %d", entries, s.FirstVersion, s.LastVersion)
	}
	return err
}

// mergeable cuts a run's segments into groups of neighbours that can become one. A segment that cannot be read stays.
func mergeable(segments []storedSegment) (groups [][]storedSegment) {
	for len(segments) > 0 {
		n, size := 1, segments[0].size
		for n < len(segments) && segments[n-1].joins(&segments[n]) && size+segments[n].size <= mergedSize {
			size += segments[n].size
			n++
		}
		if n > 1 {
			groups = append(groups, segments[:n])
		}
		segments = segments[n:]
	}
	return groups
}

// joins reports whether the next segment continues this one.
func (s *storedSegment) joins(next *storedSegment) bool {
	return s.Err == nil && next.Err == nil && s.LastVersion+1 == next.FirstVersion && s.NextOffset == next.FirstOffset &&
		s.StreamID == next.StreamID
}

// packDense is pack for what is written in the background.
func packDense(plain []byte) (int16, []byte) {
	if len(plain) <= maxDecoded {
		if dense := merger.EncodeAll(plain, nil); len(dense) < len(plain) {
			return codecZstd, dense
		}
	}
	return codecPlain, plain
}

// queueMerge replaces a group of segments by one and returns the size of its plain entries.
func queueMerge(batch *pgx.Batch, key Key, group []storedSegment) int64 {
	first, last := &group[0], &group[len(group)-1]
	outlined, size, restated, length := int16(0), int64(0), int64(0), 0
	for i := range group {
		outlined |= group[i].codec & codecOutlined
		size += group[i].size
		restated += group[i].restated
		length += len(group[i].Entries)
	}
	entries := make([]byte, 0, length)
	spans := make([]TimeSpan, 0, len(group))
	for i := range group {
		entries = append(entries, group[i].Entries...)
		spans = group[i].appendSpans(spans)
	}
	codec, packed := packEntriesDense(entries)
	batch.Queue(sqlDeleteSegments, uuid(key), column(group, func(s storedSegment) int64 { return bigint(s.FirstVersion) }))
	batch.Queue(sqlInsertMerged, uuid(key), bigint(first.FirstVersion), bigint(last.LastVersion), first.RunID, first.StreamID,
		bigint(first.FirstOffset), bigint(last.NextOffset), codec|outlined, packed, size, first.CommittedAt,
		encodeTimes(spans, first.FirstVersion, first.CommittedAt), restated)
	return size
}

// appendSpans tells when the segment's entries were committed.
func (s *storedSegment) appendSpans(spans []TimeSpan) []TimeSpan {
	if own := decodeTimes(s.times, s.FirstVersion, s.CommittedAt); own != nil {
		return append(spans, own...)
	}
	return append(spans, TimeSpan{LastVersion: s.LastVersion, CommittedAt: s.CommittedAt})
}
