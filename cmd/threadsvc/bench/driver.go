package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// frameCodec sends frames as they are, so that the client's marshalling takes no part in what is measured, and reads
// answers as protobuf.
type frameCodec struct{}

func (frameCodec) Name() string { return "proto" }

func (frameCodec) Marshal(v any) (mem.BufferSlice, error) {
	frame, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("bench: %T is no frame", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(frame)}, nil
}

func (frameCodec) Unmarshal(data mem.BufferSlice, v any) error {
	return proto.Unmarshal(data.Materialize(), v.(proto.Message))
}

// dialAll opens n connections, spread over the addresses.
func dialAll(addresses []string, n int) (conns []*grpc.ClientConn, err error) {
	for i := range max(n, len(addresses)) {
		conn, err := grpc.NewClient(addresses[i%len(addresses)], grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithInitialWindowSize(4<<20), grpc.WithInitialConnWindowSize(16<<20), // else a context waits for the client every 64 KiB
			grpc.WithReadBufferSize(128<<10),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20), grpc.WaitForReady(true)))
		if err != nil {
			hangUp(conns)
			return nil, fmt.Errorf("bench: %w", err)
		}
		conns = append(conns, conn)
	}
	return conns, nil
}

func hangUp(conns []*grpc.ClientConn) {
	for _, conn := range conns {
		_ = conn.Close() // nothing is under way on it
	}
}

// tally is what was acknowledged in a part of a measurement.
type tally struct {
	events, batches int
	json            int64
	elapsed         time.Duration
	latencies       []time.Duration
}

func (t *tally) add(o *tally) {
	t.events, t.batches, t.json = t.events+o.events, t.batches+o.batches, t.json+o.json
	t.elapsed += o.elapsed
	t.latencies = append(t.latencies, o.latencies...)
}

// pacing is how fast producers send.
type pacing struct {
	// unacked bounds the batches of one stream that are not acknowledged; 0 leaves it to the server.
	unacked int
	// rate is the events per second of one thread; 0 is as fast as it goes.
	rate float64
	// until is when the producers stop at the latest; zero for never.
	until time.Time
	// atOnce bounds the threads that send at the same time; 0 is all of them.
	atOnce int
}

// driver sends a plan over one stream for each thread.
type driver struct {
	plan    *plan
	streams []*stream
	cancel  context.CancelFunc
	acked   *atomic.Int64 // events, for the progress bar
}

// stream is a producer's AppendEvents stream.
type stream struct {
	*producer
	grpc.ClientStream
	index, of int
	next      int // the batch to send next
	version   uint64
}

// newDriver opens the streams. The context is theirs; close ends them.
func newDriver(ctx context.Context, p *plan, conns []*grpc.ClientConn, acked *atomic.Int64) (*driver, error) {
	ctx, cancel := context.WithCancel(ctx)
	d := &driver{plan: p, cancel: cancel, acked: acked}
	desc := &grpc.StreamDesc{StreamName: "AppendEvents", ServerStreams: true, ClientStreams: true}
	for i := range p.producers {
		const method = threadsvcv1.ThreadService_AppendEvents_FullMethodName
		s, err := conns[i%len(conns)].NewStream(ctx, desc, method, grpc.ForceCodecV2(frameCodec{}))
		if err != nil {
			cancel()
			return nil, fmt.Errorf("bench: open a stream: %w", err)
		}
		d.streams = append(d.streams, &stream{producer: &p.producers[i], ClientStream: s, index: i, of: len(p.producers)})
	}
	return d, nil
}

// close ends the streams in an orderly way and waits for the server to say that it is done with each.
func (d *driver) close() error {
	defer d.cancel()
	for _, s := range d.streams {
		if err := s.CloseSend(); err != nil {
			return fmt.Errorf("bench: end a stream: %w", err)
		}
	}
	for _, s := range d.streams {
		if err := s.RecvMsg(&threadsvcv1.AppendEventsResponse{}); !errors.Is(err, io.EOF) {
			return fmt.Errorf("bench: thread %s: the stream should be over: %w", s.id, err)
		}
	}
	return nil
}

// send sends all threads' batches up to, not including, the run last, and waits for their acknowledgements.
func (d *driver) send(ctx context.Context, last int, pace pacing) (*tally, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	context.AfterFunc(ctx, func() {
		if context.Cause(ctx) != context.Canceled { // frees those that are blocked in their streams
			d.cancel()
		}
	})
	var mu sync.Mutex
	var group sync.WaitGroup
	total := &tally{}
	started := time.Now()
	turns := make(chan struct{}, cmp.Or(pace.atOnce, len(d.streams)))
	for _, s := range d.streams {
		group.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			done, err := s.send(ctx, s.ends[last-1], pace, started, d.acked)
			if err != nil {
				cancel(fmt.Errorf("bench: thread %s: %w", s.id, err))
				return
			}
			mu.Lock()
			defer mu.Unlock()
			total.add(done)
		})
	}
	group.Wait()
	total.elapsed = time.Since(started)
	return total, context.Cause(ctx)
}

// send sends the batches up to end from one goroutine, and collects the acknowledgements in another.
func (s *stream) send(ctx context.Context, end int, pace pacing, started time.Time, acked *atomic.Int64) (*tally, error) {
	first := s.next
	sent := make(chan time.Time, max(0, end-first))
	slots := make(chan struct{}, max(1, pace.unacked))
	failed := make(chan error, 1)
	go func() {
		defer close(sent)
		failed <- s.produce(ctx, end, pace, started, sent, slots)
	}()
	done := &tally{}
	for at := range sent {
		b := &s.batches[first+done.batches]
		if err := s.acknowledge(b); err != nil {
			return nil, err
		}
		done.latencies = append(done.latencies, time.Since(at))
		done.count(b)
		acked.Add(int64(len(b.Events)))
		if pace.unacked > 0 {
			<-slots
		}
	}
	return done, <-failed
}

func (t *tally) count(b *batch) {
	t.batches++
	t.events += len(b.Events)
	for _, event := range b.Events {
		t.json += int64(len(event))
	}
}

// produce sends batches, each at its time, and tells when. A batch's time is when it was due, not when there was room for
// it: what a slow server holds up counts as latency. If the producer slept until then, it is when it woke: how late this
// process' timers are is not the server's doing.
func (s *stream) produce(ctx context.Context, end int, pace pacing, started time.Time, sent chan<- time.Time, slots chan<- struct{}) error {
	if s.next >= end {
		return nil
	}
	due := started
	if pace.rate > 0 { // threads are spread over a run, and do not all begin and end theirs at once
		due = started.Add(pace.interval(s.eventsOfRun(s.next)*s.index) / time.Duration(s.of))
	}
	for ; s.next < end; s.next++ {
		b := &s.batches[s.next]
		at, err := pace.turn(ctx, due, slots)
		if err != nil {
			return err
		}
		if !pace.until.IsZero() && time.Now().After(pace.until) {
			return nil
		}
		if pace.rate > 0 {
			due = due.Add(pace.interval(len(b.Events)))
		}
		sent <- at
		if err := s.SendMsg(b.frame); err != nil && !errors.Is(err, io.EOF) { // of EOF the receiver finds the reason
			return err
		}
	}
	return nil
}

// turn waits until a batch is due and, if the unacknowledged ones are bounded, one of them is acknowledged. It returns the
// batch's time.
func (p pacing) turn(ctx context.Context, due time.Time, slots chan<- struct{}) (at time.Time, err error) {
	if p.rate > 0 {
		if at, err = sleepUntil(ctx, due); err != nil {
			return at, err
		}
	}
	if p.unacked > 0 {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return at, context.Cause(ctx)
		}
	}
	if p.rate == 0 {
		at = time.Now()
	}
	return at, nil
}

// eventsOfRun is how many events the run has that batch i belongs to.
func (s *stream) eventsOfRun(i int) (events int) {
	run := sort.SearchInts(s.ends, i+1)
	first := 0
	if run > 0 {
		first = s.ends[run-1]
	}
	for _, b := range s.batches[first:s.ends[run]] {
		events += len(b.Events)
	}
	return events
}

// interval is the time that so many events take at the rate.
func (p pacing) interval(events int) time.Duration {
	return time.Duration(float64(events) / p.rate * float64(time.Second))
}

// sleepUntil returns when it woke, or, if that time was past, that time.
func sleepUntil(ctx context.Context, at time.Time) (time.Time, error) {
	wait := time.Until(at)
	if wait <= 0 {
		return at, nil
	}
	select {
	case <-time.After(wait):
		return time.Now(), nil
	case <-ctx.Done():
		return at, context.Cause(ctx)
	}
}

// acknowledge reads the answer to a batch, which must be that all of it was taken as it is.
func (s *stream) acknowledge(b *batch) error {
	var answer threadsvcv1.AppendEventsResponse
	if err := s.RecvMsg(&answer); err != nil {
		return err
	}
	progress, want := answer.GetProgress(), b.Offset+uint64(len(b.Events))
	switch {
	case answer.GetError() != nil:
		return fmt.Errorf("offset %d was refused: %s", progress.GetNextOffset(), answer.GetError())
	case progress.GetNextOffset() != want:
		return fmt.Errorf("offset %d is acknowledged, want %d", progress.GetNextOffset(), want)
	case len(progress.GetWarnings()) > 0:
		return fmt.Errorf("unexpected warning: %s", progress.GetWarnings()[0])
	}
	s.version = progress.GetVersion()
	return nil
}
