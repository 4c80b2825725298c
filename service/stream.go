package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
)

// AppendEvents implements the contract. This goroutine folds the batches as they come and queues their answers; as long as
// there are any, another sends them in order, each once its commit is done. So a stream that is idle has one goroutine, which
// waits for its producer. With a window of answers outstanding nothing more is read from the stream, so what a producer can
// have in memory is bounded.
func (s *Service) AppendEvents(stream threadsvcv1.ThreadService_AppendEventsServer) error {
	x := newExchange(s, stream)
	if !s.exchanges.enter(x) {
		return s.streamStatus(errShuttingDown)
	}
	defer s.exchanges.leave(x)
	s.cache.countStream(1)
	defer s.cache.countStream(-1)
	return s.streamStatus(x.finish(x.receiveSafely(stream.Context())))
}

// streamStatus is the status an AppendEvents stream ends with.
func (s *Service) streamStatus(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return nil
	}
	return statusOf(err, s.cfg.Logger).Err()
}

// receiveSafely is receive, where a panic ends the stream and not the server.
func (x *exchange) receiveSafely(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("service: panic while receiving: %v\n%s", r, debug.Stack())
		}
	}()
	return x.receive(ctx)
}

// receive folds the stream's batches until it ends or the context does. It returns io.EOF when the producer is done.
func (x *exchange) receive(ctx context.Context) error {
	for {
		req, err := x.next()
		if err != nil {
			return err
		}
		if err := x.identify(ctx, req); err != nil {
			return err
		}
		if req.GetBatch() == nil {
			continue
		}
		if err := x.take(ctx, req.GetBatch()); err != nil {
			return err
		}
	}
}

// identify finds out from the first request who appends, which no other may say again.
func (x *exchange) identify(ctx context.Context, req *threadsvcv1.AppendEventsRequest) (err error) {
	switch {
	case x.w == nil:
		if x.w, err = streamWriterOf(req); err == nil {
			x.service.deep.run(func() { x.service.refresh(ctx, x.w) })
		}
	case req.GetRun() != nil:
		err = errField("run", "belongs into the first request only")
	case req.GetAckDelay() != nil:
		err = errField("ack_delay", "belongs into the first request only")
	}
	return err
}

// take folds a batch and queues its answer. The error ends the stream, after the answers that are queued.
func (x *exchange) take(ctx context.Context, batch *threadsvcv1.EventBatch) (err error) {
	if err := x.awaitRoom(); err != nil {
		return err
	}
	x.service.deep.run(func() { err = x.foldFirst(ctx, batch) })
	return err
}

// foldFirst is take, once there is room for the answer.
func (x *exchange) foldFirst(ctx context.Context, batch *threadsvcv1.EventBatch) error {
	x.folding.Lock()
	defer x.folding.Unlock()
	out, err := x.service.append(ctx, x.w, batch)
	if errors.Is(err, errShuttingDown) {
		return err
	}
	if x.queueAnswer(&answer{batch, sizeOfEvents(batch), out, err}) {
		x.service.streams.Go(func() { x.sendSafely(ctx) })
	}
	return nil
}

func sizeOfEvents(batch *threadsvcv1.EventBatch) (size int) {
	for _, event := range batch.GetEvents() {
		size += len(event)
	}
	return size
}

// sendSafely is send, where a panic ends the stream and not the server.
func (x *exchange) sendSafely(ctx context.Context) {
	defer func() {
		if r := recover(); r != nil {
			err := fmt.Errorf("service: panic while answering: %v\n%s", r, debug.Stack())
			x.fail(err)
			x.hangUp(err)
		}
	}()
	x.send(ctx)
}

// send sends the answers in their order until there are no more, or the stream is broken.
func (x *exchange) send(ctx context.Context) {
	for a := x.oldest(); a != nil; a = x.sent() {
		if err := x.answer(ctx, a); err != nil {
			x.fail(err)
			return
		}
	}
}

// settle waits for the outcome of the oldest batch. If somebody else has written the thread meanwhile, nothing of it was
// committed, nor of the batches behind it: all of them are folded again into what the thread is now, as if the producer had
// sent them again.
func (x *exchange) settle(ctx context.Context, a *answer) error {
	for attempt := 1; ; attempt++ {
		err := a.err
		if err == nil {
			err = a.outcome.wait(ctx)
		}
		again := errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrDuplicate)
		if !again || attempt == maxAttempts {
			return err
		}
		if x.w.token == 0 && !pause(ctx, giveWay) {
			return ctx.Err()
		}
		x.foldAgain(ctx)
	}
}

// giveWay is how long the stream of a run that nobody announced waits before it folds again. It has no token that a fence could
// make worthless, so whoever wants to close the run, on another server, gets through in the meantime.
const giveWay = 100 * time.Millisecond

// foldAgain folds all batches that are not answered, in their order.
func (x *exchange) foldAgain(ctx context.Context) {
	x.folding.Lock()
	defer x.folding.Unlock()
	for _, a := range x.unanswered() {
		a.outcome, a.err = x.service.append(ctx, x.w, a.batch)
	}
}

// maxAckDelay bounds how long events are gathered.
const maxAckDelay = time.Second

// streamWriterOf reads the first request of a stream.
func streamWriterOf(req *threadsvcv1.AppendEventsRequest) (*writer, error) {
	w, err := writerOf(req.GetRun())
	if err != nil {
		return nil, err
	}
	if delay := req.GetAckDelay(); delay != nil {
		w.delay = delay.AsDuration()
		if delay.CheckValid() != nil || w.delay < 0 || w.delay > maxAckDelay {
			return nil, errField("ack_delay", "must be a duration of 0 to 1 second")
		}
	}
	return w, nil
}

// answer waits for a batch's commit and sends what became of it. Errors of the batch travel in band.
func (x *exchange) answer(ctx context.Context, a *answer) error {
	resp := &threadsvcv1.AppendEventsResponse{}
	err := x.settle(ctx, a)
	if a.outcome != nil && err == nil {
		resp.Progress = a.outcome.progress
		err = withProgress(a.outcome.refused, resp.Progress)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		resp.Error = statusOf(err, x.service.cfg.Logger).Proto()
	}
	return x.stream.Send(resp)
}
