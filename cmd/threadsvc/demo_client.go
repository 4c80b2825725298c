package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

const (
	// batchEvents is the number of events in one request of the demo's producer, windowBatches that of unacknowledged
	// requests it allows itself.
	batchEvents, windowBatches = 3, 4
	// pace is the time between two requests, as a model takes its time.
	pace = 8 * time.Millisecond
)

// dial connects to a server.
func dial(address string) (*grpc.ClientConn, threadsvcv1.ThreadServiceClient, error) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	if err != nil {
		return nil, nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	return conn, threadsvcv1.NewThreadServiceClient(conn), nil
}

// producer sends the events of one run and remembers what was acknowledged.
type producer struct {
	run    *threadsvcv1.RunHandle
	events [][]byte

	acked    uint64 // the offset the server expects next, as far as it has said
	sent     uint64 // the offset behind the last event handed to the connection
	version  uint64 // the thread's version of the last acknowledgement
	warnings []*threadsvcv1.Warning
}

// appendStream is an open AppendEvents call.
type appendStream = grpc.BidiStreamingClient[threadsvcv1.AppendEventsRequest, threadsvcv1.AppendEventsResponse]

// open starts a stream that goes on after the last acknowledged event.
func (p *producer) open(ctx context.Context, client threadsvcv1.ThreadServiceClient) (appendStream, error) {
	stream, err := client.AppendEvents(ctx)
	if err != nil {
		return nil, err
	}
	p.sent = p.acked
	return stream, stream.Send(&threadsvcv1.AppendEventsRequest{Run: p.run})
}

// play sends events and takes acknowledgements until at least the events below upTo are acknowledged.
func (p *producer) play(stream appendStream, upTo uint64) error {
	for p.acked < upTo {
		for p.sent < uint64(len(p.events)) && p.sent-p.acked < batchEvents*windowBatches {
			if err := p.send(stream); err != nil {
				return err
			}
		}
		if err := p.receive(stream); err != nil {
			return err
		}
	}
	return nil
}

// finish plays what is left and ends the stream.
func (p *producer) finish(stream appendStream) error {
	if err := p.play(stream, uint64(len(p.events))); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("the stream did not end: %w", err)
	}
	return nil
}

// send hands the next batch to the connection.
func (p *producer) send(stream appendStream) error {
	time.Sleep(pace)
	end := min(p.sent+batchEvents, uint64(len(p.events)))
	batch := &threadsvcv1.EventBatch{Offset: p.sent, Events: p.events[p.sent:end]}
	err := stream.Send(&threadsvcv1.AppendEventsRequest{Batch: batch})
	for errors.Is(err, io.EOF) { // the stream is broken, and why is what Recv returns at last
		if _, broken := stream.Recv(); broken != nil {
			return broken
		}
	}
	if err == nil {
		p.sent = end
	}
	return err
}

// receive takes one acknowledgement.
func (p *producer) receive(stream appendStream) error {
	resp, err := stream.Recv()
	if err != nil {
		return err
	}
	if failed := resp.GetError(); failed != nil {
		return fmt.Errorf("a batch was refused: %s", failed.GetMessage())
	}
	progress := resp.GetProgress()
	p.acked, p.version = progress.GetNextOffset(), progress.GetVersion()
	p.warnings = append(p.warnings, progress.GetWarnings()...)
	return nil
}

// durable asks how many of the run's events are durable, by a batch without events.
func (p *producer) durable(ctx context.Context, client threadsvcv1.ThreadServiceClient) (uint64, error) {
	resp, err := client.AppendBatch(ctx, &threadsvcv1.AppendBatchRequest{
		Run: p.run, Batch: &threadsvcv1.EventBatch{Offset: p.acked},
	})
	return resp.GetProgress().GetNextOffset(), err
}

// startRun opens a run and returns its start with the whole RunAgentInput.
func startRun(ctx context.Context, client threadsvcv1.ThreadServiceClient, req *threadsvcv1.StartRunRequest) (*threadsvcv1.RunStart, []byte, error) {
	stream, err := client.StartRun(ctx, req)
	if err != nil {
		return nil, nil, err
	}
	first, err := stream.Recv()
	if err != nil {
		return nil, nil, err
	}
	input, err := collect(func() ([]byte, error) {
		msg, err := stream.Recv()
		return msg.GetInputChunk(), err
	})
	return first.GetStart(), input, err
}

// readContext returns the RunAgentInput that the next run would be given.
func readContext(ctx context.Context, client threadsvcv1.ThreadServiceClient, thread *threadsvcv1.ThreadName) ([]byte, error) {
	stream, err := client.GetContext(ctx, &threadsvcv1.GetContextRequest{Thread: thread})
	if err != nil {
		return nil, err
	}
	return collect(func() ([]byte, error) {
		msg, err := stream.Recv()
		return msg.GetInputChunk(), err
	})
}

// readLog returns a thread's whole log. None of the demo's entries is so large that it comes in pieces.
func readLog(ctx context.Context, client threadsvcv1.ThreadServiceClient, thread *threadsvcv1.ThreadName) ([]*threadsvcv1.LogEntry, error) {
	stream, err := client.ReadLog(ctx, &threadsvcv1.ReadLogRequest{Thread: thread})
	if err != nil {
		return nil, err
	}
	return collect(func() ([]*threadsvcv1.LogEntry, error) {
		msg, err := stream.Recv()
		return msg.GetEntries(), err
	})
}

// collect joins what a stream brings until it ends.
func collect[T any](next func() ([]T, error)) ([]T, error) {
	var all []T
	for {
		piece, err := next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, piece...)
	}
}
