package service

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
)

const (
	// firstPoll and lastPoll are how often the first of a thread's queue looks whether the run has ended on another server:
	// ever less often, the longer it waits.
	firstPoll, lastPoll = 100 * time.Millisecond, time.Second
	// maxAnswerTime is how long before its caller's deadline a wait is given up, so that the caller hears why.
	maxAnswerTime = 500 * time.Millisecond
	// maxWaitingBytes bounds what the requests of all who wait take.
	maxWaitingBytes = 256 << 20
)

// waitRoom holds the calls that wait for the active runs of threads, in a queue for each thread: who came first is first.
type waitRoom struct {
	perThread, most int

	mu     sync.Mutex
	queues map[store.Key][]*waiter
	count  int
	bytes  int
}

// waiter is a call in the queue of a thread.
type waiter struct {
	room  *waitRoom
	key   store.Key
	runID string
	bytes int
	// wake says that the call has become the first, or that a run of the thread has ended. It holds one token.
	wake chan struct{}
	// started is set when the very run has been started, by the same request made before.
	started atomic.Bool
}

func newWaitRoom(perThread, most int) *waitRoom {
	return &waitRoom{perThread: perThread, most: most, queues: map[store.Key][]*waiter{}}
}

// join puts a call at the end of the thread's queue, or returns nil if there is no room.
func (r *waitRoom) join(key store.Key, req *threadsvcv1.StartRunRequest) *waiter {
	w := &waiter{room: r, key: key, runID: req.GetRunId(), bytes: proto.Size(req), wake: make(chan struct{}, 1)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queues[key]) >= r.perThread || r.count >= r.most || r.count > 0 && r.bytes+w.bytes > maxWaitingBytes {
		return nil
	}
	r.queues[key] = append(r.queues[key], w)
	r.count++
	r.bytes += w.bytes
	return w
}

// leave takes a call out of its queue; nil is none.
func (w *waiter) leave() {
	if w == nil {
		return
	}
	w.room.mu.Lock()
	defer w.room.mu.Unlock()
	queue := w.room.queues[w.key]
	for i, other := range queue {
		if other == w {
			queue = append(queue[:i:i], queue[i+1:]...)
			w.room.count--
			w.room.bytes -= w.bytes
			break
		}
	}
	w.room.queues[w.key] = queue
	if len(queue) == 0 {
		delete(w.room.queues, w.key)
		return
	}
	queue[0].nudge()
}

func (w *waiter) nudge() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// ended tells the first of a thread's queue that a run has ended.
func (r *waitRoom) ended(key store.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if queue := r.queues[key]; len(queue) > 0 {
		queue[0].nudge()
	}
}

// started tells the calls that wait for the start of a run that it was started: they need not wait for its end.
func (r *waitRoom) started(key store.Key, runID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.queues[key] {
		if w.runID == runID {
			w.started.Store(true)
			w.nudge()
		}
	}
}

// before returns the run that is first in a thread's queue, unless it is w's; empty if there is none.
func (r *waitRoom) before(key store.Key, w *waiter) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if queue := r.queues[key]; len(queue) > 0 && queue[0] != w {
		return queue[0].runID
	}
	return ""
}

func (w *waiter) first() bool { return w.room.before(w.key, w) == "" }

// awaitTurn waits until the call is the first of its queue and the thread has no active run, as far as can be told. holder is
// the refusal that made it wait, which names the run to wait for.
func (s *Service) awaitTurn(ctx context.Context, w *waiter, holder *refusal) error {
	turnCtx, cancel := beforeDeadline(ctx)
	defer cancel()
	for interval := firstPoll; ; interval = min(interval*5/4, lastPoll) {
		if w.started.Load() {
			return nil
		}
		if w.first() {
			free, now, err := s.vacant(turnCtx, w)
			if free || err != nil && turnCtx.Err() == nil {
				return err
			}
			if now != nil {
				holder = now
			}
		}
		select {
		case <-w.wake:
			interval = firstPoll
		case <-time.After(interval + rand.N(interval/4)):
		case <-s.drain:
			return errShuttingDown
		case <-turnCtx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return errCancelled
			}
			return &refusal{errDeadline.reason, "the deadline passed while another run was active", holder.meta}
		}
	}
}

// beforeDeadline is the context, ending so much before its deadline that the caller can still be told.
func beforeDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-min(time.Until(deadline)/4, maxAnswerTime)))
}

// vacant reports whether the thread has no active run, or one whose lease has ended by the database's clock, or the very run
// that waits, and who holds the lease otherwise. A database that is away for a while does not end the wait.
func (s *Service) vacant(ctx context.Context, w *waiter) (free bool, holder *refusal, err error) {
	head, err := s.head(ctx, w.key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return true, nil, nil
	case errors.Is(err, store.ErrUnavailable):
		return false, nil, nil
	case err != nil:
		return false, nil, err
	}
	free = head.ActiveRun == "" || head.LeaseExpired || head.ActiveRun == w.runID
	return free, errRunActive(&head), nil
}

// activeRun returns the refusal that says that another run is active, nil if err is none.
func activeRun(err error) *refusal {
	var refused *refusal
	if errors.As(err, &refused) && refused.reason == threadsvcv1.ErrorReason_ERROR_REASON_RUN_ACTIVE {
		return refused
	}
	return nil
}

// queueUp waits for the turn of a call that was refused because of holder, in the place it has or at the end of the queue.
func (s *Service) queueUp(ctx context.Context, call *startCall, holder *refusal) error {
	if call.place == nil {
		call.place = s.waiting.join(call.key, call.req)
	}
	if call.place == nil {
		return &refusal{threadsvcv1.ErrorReason_ERROR_REASON_WAIT_QUEUE_FULL, "too many calls wait already", holder.meta}
	}
	return s.awaitTurn(ctx, call.place, holder)
}
