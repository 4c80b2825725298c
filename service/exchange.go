package service

import (
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// answer is a batch of an AppendEvents stream on its way to be acknowledged.
type answer struct {
	batch   *threadsvcv1.EventBatch
	size    int // of the batch's events
	outcome *outcome
	err     error // of finding the thread
}

// exchange is one AppendEvents stream: a receiver, which is the goroutine that gRPC calls the handler on, and a sender as long
// as there are answers to send.
type exchange struct {
	service *Service
	stream  threadsvcv1.ThreadService_AppendEventsServer
	w       *writer    // nil before the first request; written by the receiver before there is a sender
	folding sync.Mutex // held while batches are folded into the thread and their answers are queued, together

	mu        sync.Mutex
	moved     sync.Cond // told to the receiver: an answer was sent, or the sender has ended
	queue     []*answer // not sent yet, oldest first; only the sender takes answers out
	queued    int       // the size of what is in queue
	sending   bool      // there is a sender
	receiving bool      // the receiver waits for the producer
	draining  bool      // the stream shall end
	ended     bool      // it was ended while the receiver waited for the producer
	broken    error     // why nothing can be sent any more
}

func newExchange(s *Service, stream threadsvcv1.ThreadService_AppendEventsServer) *exchange {
	x := &exchange{service: s, stream: stream}
	x.moved.L = &x.mu
	return x
}

// next waits for the producer's next request.
func (x *exchange) next() (*threadsvcv1.AppendEventsRequest, error) {
	if !x.setReceiving(true) {
		return nil, errShuttingDown
	}
	req, err := x.stream.Recv()
	if !x.setReceiving(false) {
		return nil, errShuttingDown
	}
	return req, err
}

// setReceiving notes whether the receiver waits for the producer. It returns false if it must not, or was ended meanwhile.
func (x *exchange) setReceiving(now bool) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if now && x.draining {
		return false
	}
	x.receiving = now
	return !x.ended
}

// awaitRoom waits until there is room for one more answer, to a batch of any size.
func (x *exchange) awaitRoom() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for x.full() && x.broken == nil {
		x.moved.Wait()
	}
	return x.broken
}

// full reports whether there is no room for another answer. mu must be held.
func (x *exchange) full() bool {
	return len(x.queue) > x.service.cfg.Window || x.queued > x.service.cfg.WindowBytes
}

// queueAnswer adds an answer and reports whether it needs a sender.
func (x *exchange) queueAnswer(a *answer) (start bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.broken != nil {
		return false
	}
	x.queue, x.queued = append(x.queue, a), x.queued+a.size
	start = !x.sending
	x.sending = true
	return start
}

// oldest is the answer to send next.
func (x *exchange) oldest() *answer {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.queue[0]
}

// unanswered are the batches that no answer was sent to, in order. They stay what they are while folding is held.
func (x *exchange) unanswered() []*answer {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.queue
}

// sent notes that the oldest answer was sent, and returns the next. If there is none the sender must end, and nobody may do
// anything for the stream until the producer sends more: then it is what ends a stream that shall end.
func (x *exchange) sent() (next *answer) {
	x.mu.Lock()
	x.queued -= x.queue[0].size
	x.queue[0] = nil
	if x.queue = x.queue[1:]; len(x.queue) > 0 {
		next = x.queue[0]
	} else {
		x.queue, x.sending = nil, false
	}
	x.moved.Signal()
	end := x.mustEnd()
	x.mu.Unlock()
	if end {
		x.hangUp(errShuttingDown)
	}
	return next
}

// fail notes that nothing can be sent any more, which ends the sender.
func (x *exchange) fail(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.queue, x.queued, x.sending, x.broken = nil, 0, false, err
	x.moved.Signal()
}

// finish waits until all answers are sent, after the receiver has ended with err, and returns what the stream ends with.
func (x *exchange) finish(err error) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for x.sending {
		x.moved.Wait()
	}
	if x.broken != nil {
		return x.broken
	}
	return err
}

// end makes the stream end once the answers are sent of what was folded.
func (x *exchange) end() {
	x.mu.Lock()
	x.draining = true
	end := x.mustEnd()
	x.mu.Unlock()
	if end {
		x.hangUp(errShuttingDown)
	}
}

// mustEnd reports whether the stream shall end and its receiver cannot find that out: it waits for the producer. mu must be
// held.
func (x *exchange) mustEnd() bool {
	end := x.draining && x.receiving && !x.sending && !x.ended
	x.ended = x.ended || end
	return end
}

// statusWriter is what gRPC's server streams are beside grpc.ServerTransportStream. WriteStatus tells the client the status and
// ends the stream, whose handler may be receiving.
type statusWriter interface {
	WriteStatus(*status.Status) error
}

// hangUp ends the stream while its receiver may wait for the producer, and nobody sends. A receiver that waits can be interrupted
// in no other way; where this one is missing, the stream lasts until the producer or the connection ends it.
func (x *exchange) hangUp(err error) {
	if w, ok := grpc.ServerTransportStreamFromContext(x.stream.Context()).(statusWriter); ok {
		_ = w.WriteStatus(statusOf(err, x.service.cfg.Logger)) // if it cannot be written, the connection is gone
	}
}

// exchanges are the AppendEvents streams that are open.
type exchanges struct {
	mu       sync.Mutex
	open     map[*exchange]struct{}
	draining bool
}

func newExchanges() *exchanges { return &exchanges{open: map[*exchange]struct{}{}} }

// enter adds a stream unless none may begin any more.
func (e *exchanges) enter(x *exchange) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.draining {
		e.open[x] = struct{}{}
	}
	return !e.draining
}

func (e *exchanges) leave(x *exchange) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.open, x)
}

// end lets no more streams begin and makes those end that are open.
func (e *exchanges) end() {
	e.mu.Lock()
	e.draining = true
	open := e.open
	e.open = map[*exchange]struct{}{}
	e.mu.Unlock()
	for x := range open {
		x.end()
	}
}
