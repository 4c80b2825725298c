package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"google.golang.org/grpc"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
)

// historian builds a thread and reads it.
type historian struct {
	*bench
	o *HistoryOptions

	conn                 *grpc.ClientConn
	id, short            string // the thread, and its fork
	version              uint64
	messages, stateBytes int // of its context
	random               *rand.Rand
	current              sampled
	past                 sampled
	fork                 sampled
}

// sampled are the readings of one kind.
type sampled struct {
	took  []time.Duration
	bytes []int
}

// run measures with a connection of its own.
func (h *historian) run(ctx context.Context, address string) (*historyReport, error) {
	conns, err := dialAll([]string{address}, 1)
	if err != nil {
		return nil, err
	}
	defer hangUp(conns)
	h.conn = conns[0]
	h.random = rand.New(rand.NewPCG(h.o.Seed, 0x68697374))
	driver, err := h.build(ctx, conns)
	if err != nil {
		return nil, err
	}
	defer driver.cancel()
	server, err := h.db.Server(ctx)
	if err != nil {
		return nil, err
	}
	if err := h.forkIt(ctx); err != nil {
		return nil, err
	}
	sizes, err := h.db.HistorySizes(ctx, store.KeyOf(tenant, h.id))
	if err != nil {
		return nil, err
	}
	if err := h.read(ctx); err != nil {
		return nil, err
	}
	return newHistoryReport(h, server, sizes), h.clear(ctx)
}

// build sends the runs and waits until the work in the background is done. A run that is left open needs the driver's
// streams as they are.
func (h *historian) build(ctx context.Context, conns []*grpc.ClientConn) (*driver, error) {
	p, err := h.newPlan(ctx, &h.o.base.Variant, fmt.Sprintf("bench-%d-%d", time.Now().UnixMilli(), os.Getpid()))
	if err != nil {
		return nil, err
	}
	h.o.cut(p)
	h.id = p.producers[0].id
	h.short = h.id + "-fork"
	h.left = append(h.left, h.id, h.short)
	d, err := newDriver(ctx, p, conns, &h.progress.done)
	if err != nil {
		return nil, err
	}
	h.progress.show("writing the log", p.events(0, h.o.Runs))
	if _, err = d.send(ctx, h.o.Runs, pacing{}); err == nil && !h.o.Open {
		err = d.close()
	}
	if err != nil {
		d.cancel()
		return nil, err
	}
	h.version = d.streams[0].version
	h.progress.show("waiting for the work in the background", 0)
	return d, h.settle(ctx, h.o.base.Settle)
}

// forkIt makes the short thread, and checks that it has the same context.
func (h *historian) forkIt(ctx context.Context) error {
	_, err := threadsvcv1.NewHistoryServiceClient(h.conn).ForkThread(ctx, &threadsvcv1.ForkThreadRequest{
		Source: nameOf(h.id), ThreadId: h.short,
	})
	if err != nil {
		return fmt.Errorf("bench: fork the thread: %w", err)
	}
	var parts [2]struct {
		State    json.RawMessage
		Messages []json.RawMessage
	}
	for i, id := range []string{h.id, h.short} {
		text, _, err := getContext(ctx, h.conn, id)
		if err != nil {
			return fmt.Errorf("bench: read a context: %w", err)
		}
		if err := json.Unmarshal(text, &parts[i]); err != nil {
			return fmt.Errorf("bench: a context is no JSON: %w", err)
		}
	}
	if !bytes.Equal(parts[0].State, parts[1].State) || !slices.EqualFunc(parts[0].Messages, parts[1].Messages, equal) {
		return errors.New("bench: the fork has another context than the thread")
	}
	h.messages, h.stateBytes = len(parts[0].Messages), len(parts[0].State)
	return nil
}

func equal(a, b json.RawMessage) bool { return bytes.Equal(a, b) }

// read reads the contexts in turn, so that whatever else the machine does falls on all kinds alike. The first round, which
// also warms the connections, does not count.
func (h *historian) read(ctx context.Context) error {
	if err := h.db.Checkpoint(ctx); err != nil {
		return err
	}
	h.progress.show("reading contexts", 0)
	for i := range h.o.Samples + 1 {
		if i == 1 {
			h.current, h.past, h.fork = sampled{}, sampled{}, sampled{}
		}
		at := 1 + h.random.Uint64N(max(1, h.version-1))
		moment := &threadsvcv1.Moment{At: &threadsvcv1.Moment_Version{Version: at}}
		err := errors.Join(h.current.read(ctx, h.conn, h.id, nil, h.version), h.past.read(ctx, h.conn, h.id, moment, at),
			h.fork.read(ctx, h.conn, h.short, nil, 1))
		if err != nil {
			return err
		}
	}
	return nil
}

// read reads one context, which must be that of the version.
func (s *sampled) read(ctx context.Context, conn *grpc.ClientConn, id string, at *threadsvcv1.Moment, version uint64) error {
	text, took, got, err := getContextAt(ctx, conn, id, at)
	switch {
	case err != nil:
		return fmt.Errorf("bench: read the context of version %d: %w", version, err)
	case got != version:
		return fmt.Errorf("bench: the context is that of version %d, want %d", got, version)
	}
	s.took, s.bytes = append(s.took, took), append(s.bytes, len(text))
	return nil
}

func (h *historian) clear(ctx context.Context) error {
	if h.cluster.private != nil || h.o.base.Keep {
		return nil
	}
	return h.deleteThreads(ctx)
}
