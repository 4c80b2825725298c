package client

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

const (
	// batchEvents and batchBytes bound the events of one request. A single one may be larger.
	batchEvents = 1000
	batchBytes  = 1 << 20
)

// appendStream is an AppendEvents call.
type appendStream = grpc.BidiStreamingClient[threadsvcv1.AppendEventsRequest, threadsvcv1.AppendEventsResponse]

// deliver sends events on one connection after the other until everything is durable and the writer closes, or it fails
// for good.
func (w *Writer) deliver(ctx context.Context) error {
	p := pauses{limit: w.client.cfg.RetryFor}
	for {
		before := w.answers()
		err := w.connect(ctx)
		if err == nil || !resumable(err) || ctx.Err() != nil {
			return typed(ctx, err)
		}
		if w.answers() != before {
			p.reset()
		}
		if err := p.after(ctx, err); err != nil {
			return err
		}
	}
}

// connect makes one AppendEvents call, and waits for what it started.
func (w *Writer) connect(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := w.client.api.AppendEvents(ctx)
	if err != nil {
		return err
	}
	received := make(chan error, 1)
	go func() { received <- w.receive(stream) }()
	err, ended := w.send(stream, received)
	if !ended {
		failed := err != nil && !errors.Is(err, io.EOF) // io.EOF says that the receiver gets the reason
		if failed {
			cancel()
		}
		if reason := <-received; !failed {
			err = reason
		}
	}
	if err == nil {
		err = w.unfinished()
	}
	return err
}

// unfinished is io.ErrUnexpectedEOF unless everything that was to be written is durable.
func (w *Writer) unfinished() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing && len(w.events) == 0 {
		return nil
	}
	return io.ErrUnexpectedEOF
}

// send sends from the last acknowledgement on, until the writer closes and everything was sent, or sending fails. If the
// receiver ends first, its error is returned, and ended is true.
func (w *Writer) send(stream appendStream, received <-chan error) (_ error, ended bool) {
	first := &threadsvcv1.AppendEventsRequest{Run: w.run}
	if w.opts.AckDelay > 0 {
		first.AckDelay = durationpb.New(w.opts.AckDelay)
	}
	if err := stream.Send(first); err != nil {
		return err, false
	}
	w.rewind()
	heartbeat := time.NewTimer(w.opts.Lease / 3)
	defer heartbeat.Stop()
	for {
		batch, more, changed := w.next()
		if batch == nil && !more {
			return stream.CloseSend(), false
		}
		if batch == nil {
			select {
			case <-changed:
				continue
			case err := <-received:
				return err, true
			case <-heartbeat.C:
				batch = w.heartbeat()
			}
		}
		if batch != nil {
			if err := stream.Send(&threadsvcv1.AppendEventsRequest{Batch: batch}); err != nil {
				return err, false
			}
		}
		heartbeat.Reset(w.opts.Lease / 3)
	}
}

// receive takes the answers until the stream ends or a batch is refused.
func (w *Writer) receive(stream appendStream) error {
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if resp.GetProgress() != nil {
			w.acknowledged(resp.GetProgress())
		}
		if resp.GetError() != nil {
			return errorOfStatus(status.FromProto(resp.GetError()))
		}
	}
}

// rewind makes the next batch start with the first event that is not durable.
func (w *Writer) rewind() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = w.durable
}

// next takes the next events to be sent. Without any, more tells whether there may be some once changed is closed.
func (w *Writer) next() (_ *threadsvcv1.EventBatch, more bool, changed <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	waiting := w.events[w.sent-w.durable:]
	if len(waiting) == 0 {
		return nil, !w.closing, w.changed
	}
	n, size := 0, 0
	for n < len(waiting) && n < batchEvents && (n == 0 || size+len(waiting[n]) <= batchBytes) {
		size += len(waiting[n])
		n++
	}
	batch := &threadsvcv1.EventBatch{Offset: w.sent, Events: append([][]byte(nil), waiting[:n]...)}
	w.sent += uint64(n)
	return batch, true, nil
}

// heartbeat is the batch that renews the lease; nil if there is none: the run is over, or not yet opened.
func (w *Writer) heartbeat() *threadsvcv1.EventBatch {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || w.run.GetFencingToken() == 0 && w.sent == 0 {
		return nil
	}
	return &threadsvcv1.EventBatch{Offset: w.sent}
}

// acknowledged lets go of what is durable. What the server has already, but was not sent to it on this connection, is
// sent, so that it is compared.
func (w *Writer) acknowledged(progress *threadsvcv1.Progress) {
	w.mu.Lock()
	w.acks++
	if n := min(progress.GetNextOffset(), w.sent); n > w.durable {
		done := w.events[:n-w.durable]
		for i, event := range done {
			w.bytes -= len(event)
			done[i] = nil
		}
		w.events = w.events[len(done):]
		w.durable = n
	}
	w.version = max(w.version, progress.GetVersion())
	w.wake()
	w.mu.Unlock()
	if w.opts.OnAck != nil {
		w.opts.OnAck(progress)
	}
}

func (w *Writer) answers() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.acks
}

// progress reports whether the events before end are durable.
func (w *Writer) progress(end uint64) (durable bool, changed <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.durable >= end, w.changed
}

// end is the offset behind the last event that was appended.
func (w *Writer) end() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.durable + uint64(len(w.events))
}

// finish notes why the writer ended.
func (w *Writer) finish(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.err = &WriteError{Offset: offsetOf(err, w.durable), Durable: w.durable, Err: err}
	}
	w.closing = true
	w.wake()
}

// offsetOf is the offset that an error names.
func offsetOf(err error, otherwise uint64) uint64 {
	if e := ErrorOf(err); e != nil {
		if offset, err := strconv.ParseUint(e.Metadata["offset"], 10, 64); err == nil {
			return offset
		}
	}
	return otherwise
}

// wake tells those who wait to look again. mu must be held.
func (w *Writer) wake() {
	close(w.changed)
	w.changed = make(chan struct{})
}
