package service_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// Notes and fixes come by way of one server while the run streams by way of another, as fast as it can: not a single batch
// of it fails, nor does an amendment, and everything is in the log in its order.
func TestNoteOnAnotherServerWhileTheRunStreams(t *testing.T) {
	t.Parallel()
	const batches, amendments = 300, 12
	for name, delta := range map[string]int{"small": 1, "large": 40_000} { // large payloads are kept apart from the log
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHistorian(t, service.Config{})
			operator := converse(t, serveDatabase(t, h.url, service.Config{}), "t1")
			h.open("r1", stateSnapshot(`{"n":0,"fixes":[]}`), textStart("m"))
			reader := operator.follow(1)
			followed := make(chan error, 1)
			go func() { followed <- reader.until(3 + 2*batches + amendments + 2) }()
			sent := []string{runStarted("t1", "r1"), stateSnapshot(`{"n":0,"fixes":[]}`), textStart("m")}
			var acked atomic.Int64
			var done sync.WaitGroup
			done.Go(func() { // an amendment whenever the run has come some way
				for i := range amendments {
					for acked.Load() < int64(i*batches/amendments) && !t.Failed() {
						_, _ = operator.client.GetThread(t.Context(), &threadsvcv1.GetThreadRequest{Thread: threadName("t1")})
					}
					if _, err := operator.tryAmend(fmt.Sprint("a", i), note(fmt.Sprint("n", i)), fix(operations(add("/fixes/-", fmt.Sprint(i))))); err != nil {
						t.Errorf("amendment %d: %v %s", i, err, detailsOf(err))
					}
				}
			})
			p := h.produce()
			var events []string
			for i := range batches {
				events = append(events, textDelta("m", fmt.Sprint(i, ",", strings.Repeat("x", delta))), stateDelta(operations(replace("/n", fmt.Sprint(i)))))
			}
			done.Go(func() {
				for i := range batches {
					if err := p.stream.Send(&threadsvcv1.AppendEventsRequest{Batch: batch(uint64(3+2*i), events[2*i], events[2*i+1])}); err != nil {
						t.Error(err)
					}
				}
			})
			last := uint64(0)
			for i := range batches {
				progress, err := p.ack()
				if err != nil || progress.GetNextOffset() != uint64(5+2*i) || progress.GetVersion() < last {
					t.Fatalf("batch %d: %v, %v %s", i, progress, err, detailsOf(err))
				}
				last = progress.GetVersion()
				acked.Add(1)
			}
			done.Wait()
			p.end()
			h.offset = uint64(3 + 2*batches)
			h.append(textEnd("m"), runFinished("t1", "r1"))
			if got := h.events("r1"); !slices.Equal(got, append(append(sent, events...), textEnd("m"), runFinished("t1", "r1"))) {
				t.Errorf("the log has %d events", len(got))
			}
			if got := h.amendments(); len(got) != amendments || !slices.IsSortedFunc(got, func(a, b string) int { return len(a) - len(b) }) {
				t.Errorf("amendments %q", got)
			}
			h.wantState(fmt.Sprintf(`{"n":%d,"fixes":[0,1,2,3,4,5,6,7,8,9,10,11]}`, batches-1))
			if got := outline(h.context().Messages); len(got) != 1+amendments || got[0] != "assistant m" || got[amendments] != "user n11" {
				t.Errorf("messages %q", got)
			}
			log := h.log()
			if err := <-followed; err != nil {
				t.Fatal(err, detailsOf(err))
			}
			if err := reader.same(log); err != nil || len(log) != len(reader.entries) {
				t.Errorf("%d entries came of %d, %v", len(reader.entries), len(log), err)
			}
			h.settle()
			h.checkWhole()
			operator.stillWorks()
		})
	}
}

// The pace of a person: the run's batches come one by one, each after the ack of the one before, and so do those that have no
// stream.
func TestAmendmentsAlternateWithAppends(t *testing.T) {
	t.Parallel()
	sides := twoServers(t)
	sides[0].open("r1", stateSnapshot(`{"n":[]}`))
	p := sides[0].produce()
	for i := range uint64(10) {
		sides[1].amend(fmt.Sprint("a", i), fix(operations(add("/n/-", fmt.Sprint(2*i)))))
		p.send(i+2, stateDelta(operations(add("/n/-", fmt.Sprint(2*i+1)))))
		if progress, err := p.ack(); err != nil || progress.GetVersion() != 5+2*i {
			t.Fatalf("event %d: %v, %v %s", i, progress, err, detailsOf(err))
		}
	}
	p.end()
	for i := range 5 {
		sides[1].amend(fmt.Sprint("b", i), note(fmt.Sprint("n", i)))
		sides[0].offset = uint64(12 + i)
		sides[0].append(event("CUSTOM", "name", `"x"`, "value", fmt.Sprint(i)))
	}
	sides[1].run, sides[1].offset = sides[0].run, 17 // by way of the other server too
	sides[1].append(runFinished("t1", "r1"))
	sides[0].wantState(`{"n":[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19]}`)
	sides[0].stillWorks()
}

// What a server remembers never decides once another one has written: versions, ids, and whether there is a thread.
func TestAmendmentsByWayOfAServerThatDidNotSeeTheLastWrites(t *testing.T) {
	t.Parallel()
	sides := twoServers(t)
	sides[0].record("r1")
	sides[1].amend("a1", note("n1"))
	version := uint64(len(sides[1].log()))
	sides[0].amend("a2", note("n2"), atVersion(version))
	_, err := sides[1].tryAmend("a3", note("n3"), atVersion(version))
	if meta := wantReason(t, err, codes.Aborted, "VERSION_MISMATCH"); meta["version"] != fmt.Sprint(version+1) {
		t.Errorf("metadata %v", meta)
	}
	if again := sides[1].amend("a2", note("n2")); again.GetVersion() != version+1 || !again.GetRepeatedRequest() {
		t.Errorf("%v", again)
	}
	_, err = sides[1].tryAmend("a2", note("n3"))
	wantReason(t, err, codes.AlreadyExists, "AMENDMENT_EXISTS")
	sides[0].amend("a4", fix(operations(add("/x", "1"))))
	sides[1].amend("a5", fix(operations(replace("/x", "2"))))
	must(sides[0].client.DeleteThread(t.Context(), &threadsvcv1.DeleteThreadRequest{Thread: threadName("t1")}))(t)
	_, err = sides[1].tryAmend("a6", note("n6"))
	wantReason(t, err, codes.NotFound, "THREAD_NOT_FOUND")
	sides[0].recreate()
	sides[1].amend("a1", note("n1")) // of a new thread
	if got := sides[0].amendments(); !slices.Equal(got, []string{"a1"}) {
		t.Errorf("amendments %q", got)
	}
}

// rivalStore lets another writer come first, just before a thread is committed, as often as it is told.
type rivalStore struct {
	store.Store
	rivals atomic.Int64
	write  atomic.Pointer[func()]
}

func (s *rivalStore) Commit(ctx context.Context, commits []*store.Commit) []store.Result {
	if write := s.write.Load(); write != nil && s.rivals.Add(-1) >= 0 {
		(*write)()
	}
	return s.Store.Commit(ctx, commits)
}

// An amendment that others always come before is made with the head held; a stream that others keep coming before folds its
// batches anew each time, those behind them too.
func TestWritersThatOthersComeBefore(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	rival := &rivalStore{Store: openStore(t, url)}
	c := converse(t, dial(t, startNode(t, rival, service.Config{}).address), "t1")
	other := converse(t, serveDatabase(t, url, service.Config{}), "t1")
	c.open("r1", textStart("m"))
	var n atomic.Int64
	write := func() { other.amend(fmt.Sprint("rival", n.Add(1)), note(fmt.Sprint("n", n.Load()))) }
	rival.write.Store(&write)

	rival.rivals.Store(1000)
	before := n.Load()
	c.amend("a1", note("mine"))
	if rivals := n.Load() - before; rivals != 2 {
		t.Errorf("others came first %d times, want 2", rivals)
	}
	rival.rivals.Store(5)
	p := c.produce()
	const batches = 30
	for i := range uint64(batches) { // all are on their way when the first fails
		p.send(i+2, textDelta("m", fmt.Sprint(i, ",")))
	}
	for i := range uint64(batches) {
		if progress, err := p.ack(); err != nil || progress.GetNextOffset() != i+3 {
			t.Fatalf("batch %d: %v, %v %s", i, progress, err, detailsOf(err))
		}
	}
	rival.rivals.Store(1000) // for ever: the producer is told at last
	p.send(batches+2, textEnd("m"))
	_, err := p.ack()
	wantReason(t, err, codes.Aborted, "CONTENTION")
	rival.rivals.Store(0)
	p.send(batches+2, textEnd("m"))
	p.send(batches+3, runFinished("t1", "r1"))
	for range 2 {
		if _, err := p.ack(); err != nil {
			t.Fatal(err, detailsOf(err))
		}
	}
	p.end()
	if got := len(c.events("r1")); got != batches+4 {
		t.Errorf("%d events", got)
	}
	c.stillWorks()
}
