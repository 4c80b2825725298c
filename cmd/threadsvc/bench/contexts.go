package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/yardstick"
)

const (
	contextThreads = 16               // how many threads' contexts are read of each variant
	contextReads   = 400              // how many contexts are read of each variant
	contextTime    = 30 * time.Second // when that ends, if contexts are large, but not before fewestReads
	fewestReads    = 40
)

// reading is the contexts of a variant's threads, as they are read.
type reading struct {
	values map[string]float64 // of the variant's measurement
	ids    []string
	texts  [][]byte
	first  int // the id of the first text within the yardstick's table

	firsts, contexts, selects, rows []time.Duration
}

// readingOf prepares to read the contexts of a plan's threads.
func readingOf(p *plan, values map[string]float64, first int) *reading {
	r := &reading{values: values, first: first}
	for i := range min(contextThreads, len(p.producers)) {
		r.ids = append(r.ids, p.producers[i].id)
	}
	return r
}

// contexts measures how long contexts take to be read, of all variants in turn: by a server that was started for it and
// never had anything of these threads in memory, and straight from Postgres. A server that is somebody's may have them in
// memory, which makes no difference: a context is read from the database.
func (b *bench) contexts(ctx context.Context, v *Variant, readings []*reading) error {
	b.progress.show("reading contexts", 0)
	if err := b.db.Checkpoint(ctx); err != nil {
		return err
	}
	bare, err := b.db.Reader(ctx)
	if err != nil {
		return err
	}
	defer bare.Close()
	return b.withServer(ctx, v, func(conn *grpc.ClientConn) error {
		absent := readings[0].ids[0] + "-none"
		switch _, _, err := getContext(ctx, conn, absent); {
		case err == nil:
			return fmt.Errorf("bench: thread %s, which does not exist, has a context", absent)
		case status.Code(err) != codes.NotFound:
			return fmt.Errorf("bench: the context of a thread that does not exist: %w", err)
		}
		return readContexts(ctx, conn, bare, readings)
	})
}

func readContexts(ctx context.Context, conn *grpc.ClientConn, bare *yardstick.Reader, readings []*reading) error {
	for _, r := range readings {
		if err := r.begin(ctx, conn, bare); err != nil {
			return err
		}
	}
	end := time.Now().Add(contextTime)
	for i := range contextReads {
		for _, r := range readings {
			if err := r.read(ctx, conn, bare, i%len(r.ids)); err != nil {
				return err
			}
		}
		if i >= fewestReads && time.Now().After(end) {
			break
		}
	}
	for _, r := range readings {
		r.report()
	}
	return nil
}

// begin reads each context for the first time, and stores it for the bare SELECT.
func (r *reading) begin(ctx context.Context, conn *grpc.ClientConn, bare *yardstick.Reader) error {
	for i, id := range r.ids {
		text, took, err := getContext(ctx, conn, id)
		if err != nil {
			return fmt.Errorf("bench: read a context: %w", err)
		}
		r.texts, r.firsts = append(r.texts, text), append(r.firsts, took)
		if err := bare.Put(ctx, r.first+i, text); err != nil {
			return err
		}
	}
	return nil
}

// read reads one context in all ways.
func (r *reading) read(ctx context.Context, conn *grpc.ClientConn, bare *yardstick.Reader, i int) error {
	text, took, err := getContext(ctx, conn, r.ids[i])
	if err != nil {
		return fmt.Errorf("bench: read a context: %w", err)
	}
	if !bytes.Equal(text, r.texts[i]) {
		return fmt.Errorf("bench: the context of thread %s is another than before", r.ids[i])
	}
	selected, err := bare.Text(ctx, r.first+i, len(text))
	if err != nil {
		return err
	}
	rows, err := bare.Rows(ctx, store.KeyOf(tenant, r.ids[i]))
	if err != nil {
		return err
	}
	r.contexts, r.selects, r.rows = append(r.contexts, took), append(r.selects, selected), append(r.rows, rows)
	return nil
}

func (r *reading) report() {
	size := 0
	for _, text := range r.texts {
		size += len(text)
	}
	v := r.values
	v["context_bytes"] = float64(size) / float64(len(r.texts))
	v["context_first_ms"], v["context_ms"] = median(r.firsts), median(r.contexts)
	v["context_select_ms"], v["context_rows_ms"] = median(r.selects), median(r.rows)
}

// median is in milliseconds. It sorts the values.
func median(values []time.Duration) float64 {
	slices.Sort(values)
	return milliseconds(quantile(values, 0.5))
}

func getContext(ctx context.Context, conn *grpc.ClientConn, id string) ([]byte, time.Duration, error) {
	text, took, _, err := getContextAt(ctx, conn, id, nil)
	return text, took, err
}

// getContextAt reads the context of a moment, and says which version that is.
func getContextAt(ctx context.Context, conn *grpc.ClientConn, id string, at *threadsvcv1.Moment) (
	text []byte, took time.Duration, version uint64, err error,
) {
	started := time.Now()
	req := &threadsvcv1.GetContextRequest{Thread: nameOf(id), Moment: at}
	stream, err := threadsvcv1.NewThreadServiceClient(conn).GetContext(ctx, req)
	if err != nil {
		return nil, 0, 0, err
	}
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return text, time.Since(started), version, nil
		}
		if err != nil {
			return nil, 0, 0, err
		}
		if info := part.GetInfo(); info != nil {
			version = info.GetVersion()
			text = make([]byte, 0, info.GetInputSize())
		}
		text = append(text, part.GetInputChunk()...)
	}
}

// deleteThreads removes what the benchmark left in a database that is somebody's.
func (b *bench) deleteThreads(ctx context.Context) error {
	return b.withServer(ctx, &b.o.Variant, func(conn *grpc.ClientConn) error {
		client := threadsvcv1.NewThreadServiceClient(conn)
		for _, id := range b.left {
			_, err := client.DeleteThread(ctx, &threadsvcv1.DeleteThreadRequest{Thread: nameOf(id)})
			if err != nil && status.Code(err) != codes.NotFound {
				return fmt.Errorf("bench: delete thread %s: %w", id, err)
			}
		}
		return nil
	})
}

// withServer runs f with a connection to a single server, which is started as the variant says and stopped after.
func (b *bench) withServer(ctx context.Context, v *Variant, f func(*grpc.ClientConn) error) (err error) {
	one := *v
	one.Nodes = 1
	nodes, err := startNodes(ctx, b.launch, b.cluster, b.o, &one)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopNodes(nodes)) }()
	conns, err := dialAll([]string{nodes[0].address}, 1)
	if err != nil {
		return err
	}
	defer hangUp(conns)
	return f(conns[0])
}
