package bench

import (
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
)

const (
	contextThreads = 16 // how many threads' contexts are read
	contextRounds  = 5  // how often each once it was read before
)

// contexts measures how long contexts take to be read: by a server that has just been started, again, and, as bare texts,
// straight from Postgres. Of a server that is somebody's the first reads are not cold, and not reported.
func (t *trial) contexts(ctx context.Context) error {
	t.progress.show("reading contexts", 0)
	return t.withServer(ctx, t.v, func(conn *grpc.ClientConn) error {
		absent := t.driver.streams[0].id + "-none"
		switch _, _, err := getContext(ctx, conn, absent); {
		case err == nil:
			return fmt.Errorf("bench: thread %s, which does not exist, has a context", absent)
		case status.Code(err) != codes.NotFound:
			return fmt.Errorf("bench: the context of a thread that does not exist: %w", err)
		}
		return t.measureContexts(ctx, conn)
	})
}

func (t *trial) measureContexts(ctx context.Context, conn *grpc.ClientConn) error {
	texts, cold, warm, err := t.readContexts(ctx, conn)
	if err != nil {
		return err
	}
	selects, err := t.db.Select(ctx, texts, contextRounds)
	if err != nil {
		return err
	}
	bytes := 0
	for _, text := range texts {
		bytes += len(text)
	}
	t.m.Values["context_bytes"] = float64(bytes) / float64(len(texts))
	t.m.Values["context_warm_ms"], t.m.Values["context_select_ms"] = median(warm), median(selects)
	if len(t.o.Addresses) == 0 {
		t.m.Values["context_cold_ms"] = median(cold)
	}
	return nil
}

func (t *trial) readContexts(ctx context.Context, conn *grpc.ClientConn) (texts [][]byte, cold, warm []time.Duration, err error) {
	for round := range contextRounds + 1 {
		for i := range min(contextThreads, len(t.driver.streams)) {
			text, took, err := getContext(ctx, conn, t.driver.streams[i].id)
			if err != nil {
				return nil, nil, nil, fmt.Errorf("bench: read a context: %w", err)
			}
			if round > 0 {
				warm = append(warm, took)
				continue
			}
			texts, cold = append(texts, text), append(cold, took)
		}
	}
	return texts, cold, warm, nil
}

// median is in milliseconds. It sorts the values.
func median(values []time.Duration) float64 {
	slices.Sort(values)
	return milliseconds(quantile(values, 0.5))
}

func getContext(ctx context.Context, conn *grpc.ClientConn, id string) ([]byte, time.Duration, error) {
	started := time.Now()
	stream, err := threadsvcv1.NewThreadServiceClient(conn).GetContext(ctx, &threadsvcv1.GetContextRequest{Thread: nameOf(id)})
	if err != nil {
		return nil, 0, err
	}
	var text []byte
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return text, time.Since(started), nil
		}
		if err != nil {
			return nil, 0, err
		}
		if info := part.GetInfo(); info != nil {
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
