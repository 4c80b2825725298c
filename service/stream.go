package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
)

// answer is a batch of an AppendEvents stream on its way to be acknowledged.
type answer struct {
	batch   *threadsvcv1.EventBatch
	outcome *outcome
	err     error // of finding the thread
}

// exchange is one AppendEvents stream. The batches that are not acknowledged yet are those that were folded again, which
// belong to the sender, and then those in the queue, in order; each has one of the slots, so the queue always has room.
type exchange struct {
	service *Service
	stream  threadsvcv1.ThreadService_AppendEventsServer
	slots   chan struct{}
	folding atomic.Bool // a batch was received and its answer is not queued yet

	mu    sync.Mutex // guards folding into the thread and queueing the answer, together
	w     *writer
	queue chan *answer
	again []*answer
}

// AppendEvents implements the contract. A receiver folds the batches as they come and queues their answers, and this
// goroutine sends the answers in order, each once its commit is done. The number of slots is the window: with that many
// answers outstanding nothing more is read from the stream, so what a producer can have in memory is bounded.
func (s *Service) AppendEvents(stream threadsvcv1.ThreadService_AppendEventsServer) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	slots := s.cfg.Window + 1
	x := &exchange{service: s, stream: stream, slots: make(chan struct{}, slots), queue: make(chan *answer, slots)}
	received := make(chan error, 1)
	s.streams.Add(1)
	go func() {
		defer s.streams.Done()
		defer close(x.queue)
		received <- x.receiveSafely(ctx)
	}()
	for {
		if err := x.answerAgain(ctx); err != nil {
			return s.streamStatus(err)
		}
		select {
		case a, open := <-x.queue:
			if !open {
				return s.streamStatus(<-received)
			}
			if err := x.answer(ctx, a); err != nil {
				return s.streamStatus(err)
			}
		case <-s.drain:
			return s.streamStatus(x.finish(ctx))
		}
	}
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
	var w *writer
	for {
		req, err := x.stream.Recv()
		if err != nil {
			return err
		}
		switch {
		case w == nil:
			if w, err = streamWriterOf(req); err != nil {
				return err
			}
			x.w = w
			x.service.refresh(ctx, w)
		case req.GetRun() != nil:
			return errField("run", "belongs into the first request only")
		case req.GetAckDelay() != nil:
			return errField("ack_delay", "belongs into the first request only")
		}
		if req.GetBatch() == nil {
			continue
		}
		x.folding.Store(true)
		if err := x.take(ctx, req.GetBatch()); err != nil {
			return err
		}
		x.folding.Store(false)
	}
}

// take folds a batch and queues its answer. The error ends the stream, after the answers that are queued.
func (x *exchange) take(ctx context.Context, batch *threadsvcv1.EventBatch) error {
	select {
	case x.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	out, err := x.service.append(ctx, x.w, batch)
	if errors.Is(err, errShuttingDown) {
		return err
	}
	x.queue <- &answer{batch, out, err}
	return nil
}

// settle waits for the outcome of a batch. If somebody else has written the thread meanwhile, nothing of it was committed,
// nor of the batches behind it: all of them are folded again into what the thread is now, as if the producer had sent them
// again.
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
		x.foldAgain(ctx, a)
	}
}

// giveWay is how long the stream of a run that nobody announced waits before it folds again. It has no token that a fence could
// make worthless, so whoever wants to close the run, on another server, gets through in the meantime.
const giveWay = 100 * time.Millisecond

// foldAgain folds a batch and all those behind it, in their order.
func (x *exchange) foldAgain(ctx context.Context, first *answer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for range len(x.queue) {
		x.again = append(x.again, <-x.queue)
	}
	for _, a := range append([]*answer{first}, x.again...) {
		a.outcome, a.err = x.service.append(ctx, x.w, a.batch)
	}
}

// answerAgain sends the answers of the batches that were folded again.
func (x *exchange) answerAgain(ctx context.Context) error {
	for len(x.again) > 0 {
		a := x.again[0]
		x.again = x.again[1:]
		if err := x.answer(ctx, a); err != nil {
			return err
		}
	}
	return nil
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
	err = x.stream.Send(resp)
	<-x.slots
	return err
}

// finish sends the answers of what was received before the server began to drain, and returns the status that tells the
// producer to go elsewhere.
func (x *exchange) finish(ctx context.Context) error {
	const patience = 5 * time.Millisecond
	for {
		more := x.folding.Load() // read before the queue: what is folded now is queued before this turns false
		select {
		case a, open := <-x.queue:
			if !open {
				return errShuttingDown
			}
			if err := x.answer(ctx, a); err != nil {
				return err
			}
			if err := x.answerAgain(ctx); err != nil {
				return err
			}
		case <-time.After(patience):
			if !more {
				return errShuttingDown
			}
		}
	}
}
