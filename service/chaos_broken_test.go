package service_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// bug is what a store does otherwise than it should.
type bug struct {
	commit func(context.Context, store.Store, []*store.Commit) []store.Result // instead of the store's, if it is set
	load   func(*store.Loaded)                                                // changes what is loaded, if it is set
}

// brokenStore has a bug, which begins when broken is set.
type brokenStore struct {
	store.Store
	bug
	broken atomic.Bool
}

func (s *brokenStore) Commit(ctx context.Context, commits []*store.Commit) []store.Result {
	if s.commit != nil && s.broken.Load() {
		return s.commit(ctx, s.Store, commits)
	}
	return s.Store.Commit(ctx, commits)
}

func (s *brokenStore) Load(ctx context.Context, key store.Key) (*store.Loaded, error) {
	loaded, err := s.Store.Load(ctx, key)
	if err == nil && s.load != nil && s.broken.Load() {
		s.load(loaded)
	}
	return loaded, err
}

// forget says that it has committed, and has not.
func forget(_ context.Context, _ store.Store, commits []*store.Commit) []store.Result {
	results := make([]store.Result, len(commits))
	for i := range results {
		results[i].CommittedAt = time.Now()
	}
	return results
}

// commitAnyway makes commits follow what is there, whoever has written it.
func commitAnyway(ctx context.Context, s store.Store, commits []*store.Commit) []store.Result {
	for _, c := range commits {
		head, err := s.Head(ctx, c.Key)
		if err != nil || c.Create != nil {
			continue
		}
		later := head.Version - c.ExpectVersion
		c.ExpectVersion, c.ExpectFence, c.Version = head.Version, head.Fence, c.Version+later
		c.ActiveRun, c.Runs = head.ActiveRun, head.Runs
		for i := range c.Segments {
			c.Segments[i].FirstVersion += later
			c.Segments[i].LastVersion += later
		}
	}
	return s.Commit(ctx, commits)
}

// brokenPlay is a thread with a run of which three of ten events have been sent to a server that has a bug. Another server on
// the same database is sound.
type brokenPlay struct {
	*testing.T
	db            *brokenStore
	broken, sound threadsvcv1.ThreadServiceClient
	client        *loadClient
	thread        *loadThread
	run           *sentStream
}

func newBrokenPlay(t *testing.T, db *brokenStore) *brokenPlay {
	t.Helper()
	db.Store = storetest.NewMemory()
	p := &brokenPlay{
		T: t, db: db, broken: dial(t, startNode(t, db, service.Config{}).address),
		sound: dial(t, startNode(t, db.Store, service.Config{}).address),
	}
	l := newLoad()
	p.thread = l.thread("t1", true)
	p.thread.history = newHistory()
	p.client = newLoadClient(l, []threadsvcv1.ThreadServiceClient{p.broken}, 1, "c")
	p.run = p.client.newStream(p.thread, false)
	p.run.events = []sentEvent{{run: p.run.id, text: runStarted("t1", p.run.id)}}
	for i := range 8 {
		p.run.events = append(p.run.events, sentEvent{run: p.run.id, text: event("CUSTOM", "name", `"n"`, "value", fmt.Sprint(i))})
	}
	p.run.events = append(p.run.events, sentEvent{run: p.run.id, text: runFinished("t1", p.run.id)})
	p.run.plan, p.run.limit = planOf(p.run.events), len(p.run.events)
	p.run = must(p.client.start(t.Context(), p.thread, p.run))(t)
	p.append(p.broken, 0, 3)
	return p
}

// append sends events of the run and notes the answer.
func (p *brokenPlay) append(rpc threadsvcv1.ThreadServiceClient, from, until int) {
	p.Helper()
	op, progress, err := p.send(rpc, from, until)
	got := progressOf(progress, err)
	if got.verdict == unknown {
		p.Fatal(err)
	}
	p.run.history.settle(op, got)
}

// send is append without the note.
func (p *brokenPlay) send(rpc threadsvcv1.ThreadServiceClient, from, until int) (*chaosOp, *threadsvcv1.Progress, error) {
	b := &threadsvcv1.EventBatch{Offset: uint64(from)}
	for _, e := range p.run.events[from:until] {
		b.Events = append(b.Events, []byte(e.text))
	}
	op := p.run.append(b)
	resp, err := rpc.AppendBatch(p.Context(), &threadsvcv1.AppendBatchRequest{Run: handle("t1", p.run.id, p.run.token), Batch: b})
	return op, resp.GetProgress(), err
}

// read notes what the sound server says of the thread.
func (p *brokenPlay) read() uint64 {
	p.Helper()
	op := p.run.history.call(asked{kind: opRead})
	head := must(p.sound.GetThread(p.Context(), &threadsvcv1.GetThreadRequest{Thread: threadName("t1")}))(p.T)
	p.run.history.settle(op, answered{verdict: done, version: head.GetThread().GetVersion()})
	return head.GetThread().GetVersion()
}

// TestHistoryTellsOfBrokenServers asks servers with one bug each, and the same without it, by the clients of the chaos test, and
// gives what they are told to its checker.
func TestHistoryTellsOfBrokenServers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		bug  bug
		play func(p *brokenPlay)
	}{
		"ack before commit": {bug{commit: forget}, func(p *brokenPlay) {
			p.append(p.broken, 3, 5)
			p.read()
		}},
		"tail before commit": {bug{commit: forget}, func(p *brokenPlay) {
			version := p.read()
			ctx, cancel := context.WithTimeout(p.Context(), callTimeout)
			defer cancel()
			tail := must(follow(ctx, p.broken, "t1", 1))(p.T)
			for len(tail.caughtUp) == 0 { // from here on it is told what comes
				if err := tail.receive(); err != nil {
					p.Fatal(err)
				}
			}
			if _, _, err := p.send(p.broken, 3, 5); err != nil { // the client hears nothing of it
				p.Fatal(err)
			}
			if err := tail.until(version + 2); err != nil {
				p.Fatal(err)
			}
			p.run.history.saw(version + 2)
			p.read()
		}},
		"no fence check": {bug{commit: commitAnyway}, func(p *brokenPlay) {
			p.client.nodes = []threadsvcv1.ThreadServiceClient{p.sound}
			p.client.roam()
			must(p.client.start(p.Context(), p.thread, p.client.newStream(p.thread, false)))(p.T)
			p.append(p.broken, 3, 5)
		}},
		"no offset check": {bug{load: func(l *store.Loaded) { l.Head.NextOffset = 1 }}, func(p *brokenPlay) {
			fresh := dial(p.T, startNode(p.T, p.db, service.Config{}).address) // which has to load the thread
			p.append(fresh, 1, 3)
			p.read()
		}},
	} {
		for want, broken := range map[porcupine.CheckResult]bool{porcupine.Ok: false, porcupine.Illegal: true} {
			t.Run(fmt.Sprintf("%s/%v", name, broken), func(t *testing.T) {
				t.Parallel()
				p := newBrokenPlay(t, &brokenStore{bug: test.bug})
				p.db.broken.Store(broken)
				test.play(p)
				facts := &logFacts{next: map[string]int{p.run.id: 10}}
				if got := linearize(p.run.history.operations(facts), time.Minute); got != want {
					t.Errorf("%v, want %v: %s", got, want, obstacle(p.run.history.operations(facts)))
				}
			})
		}
	}
}
