package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// WriterOptions are what a Writer can be told. Zero fields mean the defaults.
type WriterOptions struct {
	// Offset is where the producer's stream goes on: the number of its events that are durable.
	Offset uint64
	// Lease is the run's lease, which is renewed when a third of it has passed without an event. 0 means that of StartRun,
	// or DefaultLease.
	Lease time.Duration
	// BufferBytes bounds the events that are not durable yet, all together; 0 means 8 MiB. Append waits beyond it. A single
	// event may be larger.
	BufferBytes int
	// AckDelay is how long the server may gather events before it commits them; 0 means not at all.
	AckDelay time.Duration
	// OnAck, if set, is told what is durable, in order, with the warnings of what was just committed. It must not block
	// for long, since nothing is acknowledged meanwhile, nor close the writer.
	OnAck func(*threadsvcv1.Progress)
}

func (o WriterOptions) withDefaults() WriterOptions {
	if o.Lease <= 0 {
		o.Lease = DefaultLease
	}
	if o.BufferBytes <= 0 {
		o.BufferBytes = 8 << 20
	}
	return o
}

// ErrClosed is returned by Append after Close.
var ErrClosed = errors.New("threadsvc: the writer is closed")

// WriteError is why a Writer ended.
type WriteError struct {
	// Offset is the event's that was refused, or of the first event that is not durable if it is none's fault.
	Offset uint64
	// Durable is the number of the stream's events that are durable: another Writer may go on there.
	Durable uint64
	// Err is what happened: an *Error, or that the context ended.
	Err error
}

func (e *WriteError) Error() string {
	return fmt.Sprintf("event %d was not written, %d are durable: %v", e.Offset, e.Durable, e.Err)
}

// Unwrap returns what happened.
func (e *WriteError) Unwrap() error { return e.Err }

// Writer appends the events of one producer's stream. It sends them in the background, as many at once as have gathered, and
// again from the last acknowledgement when the connection breaks or the server stops, so that each event is stored once.
// It renews the run's lease while no events come. Any refusal ends it, with a *WriteError.
//
// Events are appended by one goroutine at a time; the other methods may be called by any.
type Writer struct {
	client *Client
	run    *threadsvcv1.RunHandle
	opts   WriterOptions
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when nothing of the writer runs any more

	mu      sync.Mutex
	events  [][]byte // that are not durable; the first has the offset durable
	bytes   int
	durable uint64
	sent    uint64 // the offset behind the last event that was sent on the present connection
	version uint64
	acks    uint64 // the number of answers
	ended   bool   // the last event was the end of a run
	closing bool
	err     error
	changed chan struct{} // closed, and replaced, when one of these changes
}

// Write returns a writer of the run's events. See Client.Write.
func (r *Run) Write(ctx context.Context, opts WriterOptions) *Writer {
	if opts.Lease == 0 {
		opts.Lease = r.lease
	}
	return r.client.Write(ctx, r.Handle, opts)
}

// Write returns a writer of a producer's stream: of a run that was started, by its handle, or of one that is recorded as it
// passes by, which its RUN_STARTED opens and which needs no fencing token. The writer ends when the context does; Close it
// in any case.
func (c *Client) Write(ctx context.Context, run *threadsvcv1.RunHandle, opts WriterOptions) *Writer {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &Writer{
		client: c, run: run, opts: opts.withDefaults(), cancel: cancel, done: make(chan struct{}), changed: make(chan struct{}),
		durable: opts.Offset, sent: opts.Offset,
	}
	go func() {
		defer close(w.done)
		w.finish(w.deliver(ctx))
	}()
	return w
}

// Append takes one event, a JSON object, of which it keeps a copy. It waits while the buffer is full. The error is that of
// the context, or a *WriteError; nil does not mean that the event is durable.
func (w *Writer) Append(ctx context.Context, event []byte) error {
	for {
		changed, err := w.tryAppend(event)
		if changed == nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tryAppend takes the event, or returns what tells when there may be room for it.
func (w *Writer) tryAppend(event []byte) (wait <-chan struct{}, _ error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.err != nil:
		return nil, w.err
	case w.closing:
		return nil, ErrClosed
	case w.bytes > 0 && w.bytes+len(event) > w.opts.BufferBytes:
		return w.changed, nil
	}
	w.events = append(w.events, bytes.Clone(event))
	w.bytes += len(event)
	w.ended = endsRun(event)
	w.wake()
	return nil, nil
}

// endsRun reports whether an event is the last of its run, which has no lease to renew then.
func endsRun(event []byte) bool {
	if !bytes.Contains(event, []byte("RUN_FINISHED")) && !bytes.Contains(event, []byte("RUN_ERROR")) {
		return false
	}
	var e struct {
		Type string `json:"type"`
	}
	return json.Unmarshal(event, &e) == nil && (e.Type == "RUN_FINISHED" || e.Type == "RUN_ERROR")
}

// AppendFrom appends what the channel brings until it is closed.
func (w *Writer) AppendFrom(ctx context.Context, events <-chan []byte) error {
	for {
		select {
		case event, ok := <-events:
			if !ok {
				return nil
			}
			if err := w.Append(ctx, event); err != nil {
				return err
			}
		case <-w.done:
			return w.Err()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Flush waits until everything that was appended before is durable.
func (w *Writer) Flush(ctx context.Context) error {
	end := w.end()
	for {
		durable, changed := w.progress(end)
		switch {
		case durable:
			return nil
		case w.Err() != nil:
			return w.Err()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Durable is the number of the stream's events that are durable, and the thread's version then.
func (w *Writer) Durable() (offset, version uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.durable, w.version
}

// Done is closed when the writer has ended.
func (w *Writer) Done() <-chan struct{} { return w.done }

// Err is why the writer ended; nil while it has not, and after a Close without error.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Close waits until everything is durable and ends the writer; it ends it without that if the context does. Nothing of the
// writer runs any more afterwards. It may be called more than once.
func (w *Writer) Close(ctx context.Context) error {
	w.mu.Lock()
	w.closing = true
	w.wake()
	w.mu.Unlock()
	select {
	case <-w.done:
	case <-ctx.Done():
		w.cancel(context.Cause(ctx))
		<-w.done
	}
	w.cancel(nil)
	return w.Err()
}
