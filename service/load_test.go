package service_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	callTimeout   = 20 * time.Second
	streamTimeout = 40 * time.Second
)

// load is a number of clients that record runs until they are stopped, whatever happens to the server and its database.
type load struct {
	threads []*loadThread
	acked   atomic.Int64 // events acknowledged so far

	stopping chan struct{}
	clients  sync.WaitGroup

	failing sync.Once
	failed  chan struct{} // closed once err is set
	err     error
}

// loadThread is a thread, and what its clients know of it.
type loadThread struct {
	id     string
	shared bool // by two clients, which take over from each other
	// history is what its clients asked and were told, if that is kept.
	history *history

	mu        sync.Mutex
	streams   []*sentStream
	sightings []sighting
}

// sentStream is a stream of events: what was to be sent, and what was acknowledged. It belongs to its client.
type sentStream struct {
	history  *history // the thread's
	plan     *streamPlan
	sent     int // the number of batches so far
	id       string
	recorded bool // not announced by StartRun
	events   []sentEvent
	limit    int // how many of the events are sent
	token    uint64
	input    uint64 // the version of its input; 0 unless StartRun was answered

	acked int
	acks  []ack
}

// ack is one acknowledgement: the next offset, and the thread's version.
type ack struct {
	next    int
	version uint64
}

// sighting is what a reader was told of a version: the digest of its context and, unless it is nil, the log's hash.
type sighting struct {
	version uint64
	context [32]byte
	hash    []byte
}

// startLoad starts clients of the nodes of a service, each with threads of its own and one that it shares with another
// client.
func startLoad(ctx context.Context, t testing.TB, addresses []string, clients, threads int, seed uint64) *load {
	t.Helper()
	l := newLoad()
	var shared *loadThread
	for i := range clients {
		c := newLoadClient(l, dialAll(t, addresses), seed+uint64(i), fmt.Sprintf("c%d", i))
		for j := range threads {
			c.threads = append(c.threads, l.thread(fmt.Sprintf("own-%d-%d", i, j), false))
		}
		if i%2 == 0 {
			shared = l.thread(fmt.Sprintf("shared-%d", i/2), true)
		}
		c.threads = append(c.threads, shared)
		l.clients.Go(func() {
			if err := c.work(ctx); err != nil {
				l.fail(err)
			}
		})
	}
	t.Cleanup(l.clients.Wait) // the test's context has ended then
	return l
}

func newLoad() *load {
	return &load{stopping: make(chan struct{}), failed: make(chan struct{})}
}

// fail notes the first error.
func (l *load) fail(err error) {
	l.failing.Do(func() {
		l.err = err
		close(l.failed)
	})
}

func (l *load) thread(id string, shared bool) *loadThread {
	thread := &loadThread{id: id, shared: shared}
	l.threads = append(l.threads, thread)
	return thread
}

// await waits until so many events more were acknowledged.
func (l *load) await(ctx context.Context, events int64) error {
	const stalled = 2 * time.Minute
	ctx, cancel := context.WithTimeout(ctx, stalled)
	defer cancel()
	for until := l.acked.Load() + events; l.acked.Load() < until; {
		select {
		case <-l.failed:
			return l.err
		case <-ctx.Done():
			return fmt.Errorf("%d events were acknowledged, and no %d more: %w", l.acked.Load(), events, ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// stop makes the clients end, wherever they are in their runs, and returns the first error.
func (l *load) stop() error {
	close(l.stopping)
	l.clients.Wait()
	return l.err
}

func (l *load) stopped() bool {
	select {
	case <-l.stopping:
		return true
	default:
		return false
	}
}

func (t *loadThread) see(s sighting) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sightings = append(t.sightings, s)
}

// existed reports whether anybody was told of the thread.
func (t *loadThread) existed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.sightings) > 0
}
