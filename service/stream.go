package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync/atomic"
	"time"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// answer is a batch of an AppendEvents stream on its way to be acknowledged.
type answer struct {
	outcome *outcome
	err     error // of finding the thread
}

// AppendEvents implements the contract. A receiver folds the batches as they come and queues their answers, and this
// goroutine sends the answers in order, each once its commit is done. The queue's length is the window: with that many
// answers outstanding nothing more is read from the stream, so what a producer can have in memory is bounded.
func (s *Service) AppendEvents(stream threadsvcv1.ThreadService_AppendEventsServer) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	answers := make(chan answer, s.cfg.Window)
	var folding atomic.Bool // a batch was received and its answer is not queued yet
	received := make(chan error, 1)
	s.streams.Add(1)
	go func() {
		defer s.streams.Done()
		defer close(answers)
		received <- s.receiveSafely(ctx, stream, answers, &folding)
	}()
	for {
		select {
		case a, open := <-answers:
			if !open {
				return s.streamStatus(<-received)
			}
			if err := s.answer(ctx, stream, a); err != nil {
				return s.streamStatus(err)
			}
		case <-s.drain:
			return s.streamStatus(s.finishStream(ctx, stream, answers, &folding))
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
func (s *Service) receiveSafely(ctx context.Context, stream threadsvcv1.ThreadService_AppendEventsServer, answers chan<- answer, folding *atomic.Bool) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("service: panic while receiving: %v\n%s", r, debug.Stack())
		}
	}()
	return s.receive(ctx, stream, answers, folding)
}

// receive folds the stream's batches until it ends or the context does. It returns io.EOF when the producer is done.
func (s *Service) receive(ctx context.Context, stream threadsvcv1.ThreadService_AppendEventsServer, answers chan<- answer, folding *atomic.Bool) error {
	var w *writer
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		switch {
		case w == nil:
			if w, err = streamWriterOf(req); err != nil {
				return err
			}
			s.refresh(ctx, w)
		case req.GetRun() != nil:
			return errField("run", "belongs into the first request only")
		case req.GetAckDelay() != nil:
			return errField("ack_delay", "belongs into the first request only")
		}
		if req.GetBatch() == nil {
			continue
		}
		folding.Store(true)
		out, err := s.append(ctx, w, req.GetBatch())
		if errors.Is(err, errShuttingDown) { // the stream ends with that, after the answers that are queued
			return err
		}
		select {
		case answers <- answer{out, err}:
		case <-ctx.Done():
			return ctx.Err()
		}
		folding.Store(false)
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
func (s *Service) answer(ctx context.Context, stream threadsvcv1.ThreadService_AppendEventsServer, a answer) error {
	resp := &threadsvcv1.AppendEventsResponse{}
	err := a.err
	if err == nil {
		resp.Progress = a.outcome.progress
		if err = a.outcome.wait(ctx); err == nil {
			err = withProgress(a.outcome.refused, resp.Progress)
		} else {
			resp.Progress = nil // nothing is known of it
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		resp.Error = statusOf(err, s.cfg.Logger).Proto()
	}
	return stream.Send(resp)
}

// finishStream sends the answers of what was received before the server began to drain, and returns the status that
// tells the producer to go elsewhere.
func (s *Service) finishStream(ctx context.Context, stream threadsvcv1.ThreadService_AppendEventsServer, answers <-chan answer, folding *atomic.Bool) error {
	const patience = 5 * time.Millisecond
	for {
		more := folding.Load() // read before the queue: what is folded now is queued before this turns false
		select {
		case a, open := <-answers:
			if !open {
				return errShuttingDown
			}
			if err := s.answer(ctx, stream, a); err != nil {
				return err
			}
		case <-time.After(patience):
			if !more {
				return errShuttingDown
			}
		}
	}
}
