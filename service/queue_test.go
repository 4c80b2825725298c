package service_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// slowStore delays every commit, so that batches pile up behind it, and fails those it is told to.
type slowStore struct {
	store.Store
	mu   sync.Mutex
	fail bool
}

func (s *slowStore) Commit(ctx context.Context, commits []*store.Commit) []store.Result {
	time.Sleep(5 * time.Millisecond)
	s.mu.Lock()
	fail := s.fail
	s.mu.Unlock()
	if fail {
		results := make([]store.Result, len(commits))
		for i := range results {
			results[i].Err = store.ErrUnavailable
		}
		return results
	}
	return s.Store.Commit(ctx, commits)
}

func (s *slowStore) failing(fail bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

// A batch that is refused as a whole leaves nothing behind in the committer: those around it are committed once, each
// acknowledgement is for its own, and none is left waiting.
func TestRefusedBatchesAmongOthers(t *testing.T) {
	t.Parallel()
	cfg := smallLimits()
	cfg.Committers = 2
	c := converse(t, dial(t, startNode(t, &slowStore{Store: openStore(t, storetest.Database(t))}, cfg).address), "t1")
	c.start("r1")
	p := c.produce()
	large := textDelta("m", strings.Repeat("x", 100_000))
	p.send(0, runStarted("t1", "r1"), textStart("m"))
	next := uint64(2)
	want := []uint64{2}
	for range 40 {
		p.send(next, large) // refused: too large
		p.send(next)        // renews the lease
		p.send(next, large)
		p.send(next, textDelta("m", "a"))
		want = append(want, next, next, next, next+1)
		next++
	}
	for i, offset := range want {
		progress, _ := p.ack()
		if progress.GetNextOffset() != offset {
			t.Fatalf("answer %d: next offset %d, want %d", i, progress.GetNextOffset(), offset)
		}
	}
	p.send(next, textEnd("m"), runFinished("t1", "r1"))
	if _, err := p.ack(); err != nil {
		t.Fatal(err)
	}
	p.end()
	_, context, err := getContext(t.Context(), c.client, "t1")
	if err != nil || !strings.Contains(string(context), `"content":"`+strings.Repeat("a", 40)+`"`) {
		t.Errorf("context %s, %v; want each token once", context, err)
	}
}

// A lease renewal is acknowledged only when what it rests on is committed, also when a refused batch follows it.
func TestRenewalBesideARefusedBatchIsNotAcknowledgedEarly(t *testing.T) {
	t.Parallel()
	slow := &slowStore{Store: openStore(t, storetest.Database(t))}
	c := converse(t, dial(t, startNode(t, slow, smallLimits()).address), "t1")
	c.open("r1", textStart("m"))
	p := c.produce()
	slow.failing(true)
	at := c.offset
	p.send(at, textDelta("m", "lost"))
	p.send(at + 1)
	p.send(at+1, textDelta("m", strings.Repeat("x", 100_000)))
	for i := range 3 {
		if progress, err := p.ack(); err == nil || progress.GetNextOffset() > at {
			t.Errorf("answer %d: %v, %v; nothing was committed", i, progress, err)
		} else if reason, _ := reasonOf(err); i == 0 && reason != "DATABASE_UNAVAILABLE" {
			t.Errorf("answer %d: %v", i, err)
		}
	}
	slow.failing(false)
	p.send(at, textDelta("m", "kept"), textEnd("m"), runFinished("t1", "r1"))
	if _, err := p.ack(); err != nil {
		t.Error(err)
	}
	p.end()
}

// A batch of nothing but unknown events is acknowledged with as many warnings as an answer has room for.
func TestWarningsOfOneAnswerAreBounded(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	c.open("r1")
	progress := c.append(slices.Repeat([]string{`{"type":"OF_THE_FUTURE"}`}, 1500)...)
	if n := len(progress.GetWarnings()); n != 1000 {
		t.Errorf("%d warnings, want the first 1,000", n)
	}
	runs := must(c.client.ListRuns(t.Context(), &threadsvcv1.ListRunsRequest{Thread: threadName(c.thread)}))(t).GetRuns()
	if n := runs[0].GetWarningCount(); n != 1500 {
		t.Errorf("the run counts %d warnings, want 1,500", n)
	}
	c.append(runFinished(c.thread, "r1"))
}
