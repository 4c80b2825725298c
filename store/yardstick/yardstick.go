// Package yardstick measures what a Postgres server can do with the events of a benchmark when nothing of threadsvc
// but its storage format takes part, and reads what a database and its server use. The benchmark of cmd/threadsvc
// compares the service with it, on the same server and with the same events.
//
//   - Floor is the limit: the events as threadsvc stores them, compressed segments in groups, and nothing else.
//   - Naive is what people build first: a transaction for each event that also rewrites the state.
//   - Alone is every stream committing by itself: one connection and one transaction for each batch of a stream.
//   - Single is the latency of one row committed on an idle server.
//   - Select is the latency of reading a text of a given size back by its key.
//
// They write to tables of their own in the schema threadsvc_bench, which Close drops.
package yardstick

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/klauspost/compress/zstd"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
)

// Batch is what a producer sends at once: consecutive events of one stream, each a JSON text.
type Batch struct {
	// Offset is the index of the first event in its stream.
	Offset uint64
	Events [][]byte
}

// Thread is what one thread's producer sends.
type Thread struct {
	// ID must be unique among all that were given to one DB.
	ID      string
	Batches []Batch
}

// Result is what a yardstick did.
type Result struct {
	// Events and Batches were committed; JSON is the length of their texts.
	Events, Batches int
	JSON            int64
	// Elapsed is the time from the first statement to the last commit.
	Elapsed time.Duration
	// Latencies are those of the commits, each from the moment its transaction began.
	Latencies []time.Duration
}

func (r *Result) add(o *Result) {
	r.Events, r.Batches, r.JSON = r.Events+o.Events, r.Batches+o.Batches, r.JSON+o.JSON
	r.Latencies = append(r.Latencies, o.Latencies...)
}

func (r *Result) count(b *Batch) {
	r.Batches++
	r.Events += len(b.Events)
	for _, event := range b.Events {
		r.JSON += int64(len(event))
	}
}

// ErrNothingDone is returned when the time allowed was too short for a single commit.
var ErrNothingDone = errors.New("yardstick: nothing was committed within the time allowed")

// prepare makes the connections know the statement that insert uses.
func prepare(ctx context.Context, conns []*pgx.Conn) error {
	for _, conn := range conns {
		if err := insert(ctx, conn, nil, &Result{}); err != nil {
			return err
		}
	}
	return nil
}

// work runs one goroutine for each connection until all are done or one fails, and adds up what they did.
func work(ctx context.Context, conns []*pgx.Conn, do func(context.Context, int, *pgx.Conn) (*Result, error)) (Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		mu    sync.Mutex
		total Result
		group sync.WaitGroup
	)
	started := time.Now()
	for i, conn := range conns {
		group.Go(func() {
			done, err := do(ctx, i, conn)
			if err != nil {
				cancel(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			total.add(done)
		})
	}
	group.Wait()
	total.Elapsed = time.Since(started)
	if err := context.Cause(ctx); err != nil {
		return Result{}, err
	}
	if total.Batches == 0 {
		return Result{}, ErrNothingDone
	}
	return total, nil
}

// segment is a batch as threadsvc stores it.
type segment struct {
	key   store.Key
	run   string
	batch *Batch
}

// The numbers of codecs in the tables, and the size from which the store compresses entries.
const (
	codecPlain   int16 = 0
	codecColumns int16 = 8
	minColumns         = 200
)

var encoder = sync.OnceValues(func() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(true))
})

// plain are the batch's log entries.
func (s *segment) plain() (plain []byte) {
	for i, event := range s.batch.Events {
		entry := agui.Entry{Kind: agui.KindEvent, Offset: s.batch.Offset + uint64(i), Payload: event}
		plain = entry.Append(plain)
	}
	return plain
}

// pack returns the stored form of log entries, as the store makes it.
func pack(plain []byte) (int16, []byte, error) {
	if len(plain) < minColumns {
		return codecPlain, plain, nil
	}
	z, err := encoder()
	if err != nil {
		return 0, nil, fmt.Errorf("yardstick: zstd: %w", err)
	}
	columns, ok := agui.AppendColumns(nil, plain)
	if !ok {
		return 0, nil, agui.ErrEntryCorrupt
	}
	if packed := z.EncodeAll(columns, make([]byte, 0, len(columns)/4)); len(packed) < len(plain) {
		return codecColumns, packed, nil
	}
	return codecPlain, plain, nil
}

// sqlSegments inserts any number of segments. The versions are the offsets plus one.
const sqlSegments = `
INSERT INTO threadsvc_bench.segments (thread_key, first_version, last_version, run_id, stream_id,
                                      first_offset, next_offset, codec, entries, size)
SELECT key, first + 1, next, run, run, first, next, codec, entries, size
FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[], $5::smallint[], $6::bytea[], $7::bigint[])
    AS s (key, run, first, next, codec, entries, size)`

// insert commits segments in one transaction of one round trip.
func insert(ctx context.Context, conn *pgx.Conn, segments []segment, done *Result) error {
	started := time.Now()
	keys, runs := make([][16]byte, len(segments)), make([]string, len(segments))
	first, next := make([]int64, len(segments)), make([]int64, len(segments))
	codecs, entries, sizes := make([]int16, len(segments)), make([][]byte, len(segments)), make([]int64, len(segments))
	for i := range segments {
		s := &segments[i]
		keys[i], runs[i] = s.key, s.run
		first[i] = int64(s.batch.Offset)
		next[i] = first[i] + int64(len(s.batch.Events))
		plain := s.plain()
		sizes[i] = int64(len(plain))
		var err error
		if codecs[i], entries[i], err = pack(plain); err != nil {
			return err
		}
	}
	if _, err := conn.Exec(ctx, sqlSegments, keys, runs, first, next, codecs, entries, sizes); err != nil {
		return fmt.Errorf("yardstick: insert segments: %w", err)
	}
	took := time.Since(started)
	done.Latencies = append(done.Latencies, slices.Repeat([]time.Duration{took}, len(segments))...)
	for i := range segments {
		done.count(segments[i].batch)
	}
	return nil
}
