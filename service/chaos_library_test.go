package service_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/threadsvc/threadsvc/client"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// recordByLibrary records a run by means of package client. Some writers are killed in their midst, and what they leave is
// taken up by the raw contract.
func (c *chaosClient) recordByLibrary(ctx context.Context, thread *loadThread) error {
	s := c.newStream(thread, false)
	run, err := c.startByLibrary(ctx, thread, s)
	if run == nil {
		return err
	}
	writeCtx, cancel := context.WithTimeout(ctx, streamTimeout)
	defer cancel()
	if c.rnd.IntN(4) == 0 {
		c.round.counts.abandoned.Add(1)
		time.AfterFunc(time.Duration(c.rnd.IntN(20_000))*time.Microsecond, cancel)
	}
	w := libraryWriter{client: c, stream: s, rnd: c.rnd}
	err = w.write(writeCtx, run)
	switch client.ReasonOf(err) {
	case threadsvcv1.ErrorReason_ERROR_REASON_LEASE_LOST, threadsvcv1.ErrorReason_ERROR_REASON_RUN_CLOSED:
		w.refused(err)
		return c.probe(ctx, thread, s)
	case threadsvcv1.ErrorReason_ERROR_REASON_PROTOCOL_VIOLATION, threadsvcv1.ErrorReason_ERROR_REASON_OFFSET_GAP,
		threadsvcv1.ErrorReason_ERROR_REASON_OFFSET_MISMATCH:
		return err
	}
	if c.load.stopped() {
		return errStopped
	}
	return c.send(ctx, thread, s) // nothing, unless the writer was killed
}

// startByLibrary starts the stream's run. It returns nil if that is refused, or its outcome unknown: an attempt without an
// answer may still succeed then.
func (c *chaosClient) startByLibrary(ctx context.Context, thread *loadThread, s *sentStream) (*client.Run, error) {
	req := c.request(thread, s)
	ask := s.asks(req)
	op := s.history.call(ask)
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	run, err := c.round.library.StartRun(callCtx, req)
	got := outcomeOf(err)
	switch got.verdict {
	case done:
		got.token, got.version = run.Start.GetLease().GetFencingToken(), run.Start.GetVersion()
		s.history.settle(op, got)
		s.token, s.input = got.token, got.version
		thread.see(sighting{version: got.version, context: sha256.Sum256(run.Input)})
	case refused:
		ask.call = op.asked.call
		s.history.settle(s.history.call(ask), got)
	default:
		if !errors.Is(err, context.DeadlineExceeded) && client.ErrorOf(err) == nil {
			return nil, err
		}
	}
	return run, nil
}

// libraryWriter writes a stream by a client.Writer. Each event is an operation of its own, since the writer forms batches as
// it likes.
type libraryWriter struct {
	client *chaosClient
	stream *sentStream
	rnd    *rand.Rand
	ops    []*chaosOp
}

func (w *libraryWriter) write(ctx context.Context, run *client.Run) error {
	s := w.stream
	for i := range s.limit {
		s.sent++
		w.ops = append(w.ops, &chaosOp{asked: asked{
			kind: opAppend, run: s.id, plan: s.plan, token: s.token, first: i, until: i + 1, order: s.sent,
		}})
	}
	out := run.Write(ctx, client.WriterOptions{AckDelay: time.Duration(w.rnd.IntN(5)) * time.Millisecond, OnAck: w.acknowledged})
	err := w.append(ctx, out)
	return errors.Join(err, out.Close(ctx))
}

func (w *libraryWriter) append(ctx context.Context, out *client.Writer) error {
	for i, event := range w.stream.events[:w.stream.limit] {
		w.stream.history.add(w.ops[i])
		if err := out.Append(ctx, []byte(event.text)); err != nil {
			return err
		}
		if w.rnd.IntN(16) == 0 {
			if err := out.Flush(ctx); err != nil {
				return err
			}
			if durable, _ := out.Durable(); durable != uint64(i+1) {
				return errors.New("what was flushed is not durable")
			}
		}
	}
	return nil
}

// acknowledged is called by the writer's own goroutine, which has ended when Close returns.
func (w *libraryWriter) acknowledged(progress *threadsvcv1.Progress) {
	s, next := w.stream, int(progress.GetNextOffset())
	for ; s.acked < next; s.acked++ {
		s.history.settle(w.ops[s.acked], answered{verdict: done, next: -1})
		w.client.load.acked.Add(1)
	}
	s.acks = append(s.acks, ack{next, progress.GetVersion()})
	s.history.saw(progress.GetVersion())
}

// refused notes that the first event that is not durable was refused. Whether it had been received is not known.
func (w *libraryWriter) refused(err error) {
	s := w.stream
	if s.acked == s.limit || w.ops[s.acked].asked.call == 0 {
		return
	}
	again := w.ops[s.acked].asked
	s.history.settle(s.history.call(again), outcomeOf(client.ErrorOf(err)))
}

// followByLibrary follows a thread's log by client.Follow, which is called again when it gives up.
func (f *follower) followByLibrary(ctx context.Context, threads *client.Client) {
	for ctx.Err() == nil {
		for record, err := range threads.Follow(ctx, threadName(f.thread), f.reached()+1) {
			if err != nil {
				break
			}
			if record.Entry != nil {
				f.see(record.Entry)
			}
			if record.CaughtUp != 0 {
				f.history.saw(record.CaughtUp)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}
