package service_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// steeredStore does what a test wants before it loads or commits.
type steeredStore struct {
	store.Store
	load, commit atomic.Pointer[func() error]
}

func before(hook *atomic.Pointer[func() error]) error {
	if do := hook.Load(); do != nil {
		return (*do)()
	}
	return nil
}

func (s *steeredStore) Load(ctx context.Context, key store.Key) (*store.Loaded, error) {
	if err := before(&s.load); err != nil {
		return nil, err
	}
	return s.Store.Load(ctx, key)
}

func (s *steeredStore) Commit(ctx context.Context, commits []*store.Commit) []store.Result {
	if err := before(&s.commit); err != nil {
		results := make([]store.Result, len(commits))
		for i := range results {
			results[i].Err = err
		}
		return results
	}
	return s.Store.Commit(ctx, commits)
}

// steered is a server on such a store, and a conversation there whose thread it has not loaded; its run was started on another
// server.
func steered(t *testing.T) (*node, *steeredStore, *conversation) {
	t.Helper()
	url := storetest.Database(t)
	db := &steeredStore{Store: openStore(t, url)}
	n := startNode(t, db, service.Config{})
	c := converse(t, serveDatabase(t, url, service.Config{}), "t1")
	c.start("r1")
	c.client = dial(t, n.address)
	return n, db, c
}

// A panic while a stream's batch is folded ends that stream with INTERNAL, on whichever of its goroutines it happens, and does
// no harm to the server.
func TestPanicEndsTheStream(t *testing.T) {
	t.Parallel()
	panics := func() error { panic("folding") }
	for name, arm := range map[string]func(db *steeredStore){
		"receiver": func(db *steeredStore) { db.load.Store(&panics) },
		"sender": func(db *steeredStore) { // which folds again what another server has overtaken
			overtaken := func() error {
				db.load.Store(&panics)
				return store.ErrConflict
			}
			db.commit.Store(&overtaken)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, db, c := steered(t)
			arm(db)
			p := c.produce()
			p.send(0, runStarted("t1", "r1"))
			resp, err := p.stream.Recv()
			if err == nil {
				t.Fatalf("got %v, want the end of the stream", resp)
			}
			wantReason(t, err, codes.Internal, "INTERNAL")
			db.load.Store(nil)
			db.commit.Store(nil)
			c.stillWorks()
		})
	}
}

// A batch that is being folded or committed when the server begins to drain is acknowledged, and then the stream ends.
func TestDrainAcknowledgesWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]func(db *steeredStore, wait func() error){
		"folding": func(db *steeredStore, wait func() error) {
			var loads atomic.Int32
			first := func() error { // that of the stream's first request, which looks whether the thread is current
				if loads.Add(1) == 1 {
					return store.ErrUnavailable
				}
				return wait()
			}
			db.load.Store(&first)
		},
		"committing": func(db *steeredStore, wait func() error) { db.commit.Store(&wait) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, db, c := steered(t)
			held, goOn := make(chan struct{}), make(chan struct{})
			hold(db, func() error {
				close(held)
				<-goOn
				return nil
			})
			p := c.produce()
			p.send(0, runStarted("t1", "r1"))
			<-held
			n.service.Drain()
			time.Sleep(20 * time.Millisecond) // the streams are told meanwhile
			close(goOn)
			if progress, err := p.ack(); err != nil || progress.GetNextOffset() != 1 {
				t.Errorf("acknowledged %v, %v", progress, err)
			}
			resp, err := p.stream.Recv()
			if err == nil {
				t.Fatalf("got %v, want the end of the stream", resp)
			}
			wantReason(t, err, codes.Unavailable, "SHUTTING_DOWN")
		})
	}
}
