package service_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/threadsvc/threadsvc/client"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// agents are clients of the Go package that record one run after the other, each on a thread of its own, and one that has
// nothing to say for long and lives by heartbeats. Nothing that goes wrong beneath may reach them: any error fails the test.
type agents struct {
	t     *testing.T
	all   []*agent
	halt  chan struct{}
	work  sync.WaitGroup
	acked atomic.Int64

	mu   sync.Mutex
	last time.Time     // of the last acknowledgement of any
	gap  time.Duration // the longest time without one
}

// agent is one of them.
type agent struct {
	of     *agents
	thread string
	client *client.Client
	quiet  bool
	acked  atomic.Int64 // events, of all runs
	sent   [][]string   // the events of each run. Only its own goroutine touches it before the end
}

// startAgents starts n agents that talk, and one that is quiet.
func startAgents(t *testing.T, addresses []string, n int) *agents {
	t.Helper()
	as := &agents{t: t, halt: make(chan struct{})}
	for i := range n + 1 {
		c := must(client.Dial(strings.Join(addresses, ","), client.Config{RetryFor: time.Minute},
			grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
		t.Cleanup(func() { _ = c.Close() })
		as.all = append(as.all, &agent{of: as, thread: fmt.Sprint("agent-", i), client: c, quiet: i == n})
	}
	for _, a := range as.all {
		as.work.Go(func() {
			for run := 0; !as.halted(); run++ {
				if err := a.record(t.Context(), fmt.Sprint("run-", run)); err != nil {
					t.Errorf("%s: %v %s", a.thread, err, detailsOf(err))
					return
				}
			}
		})
	}
	t.Cleanup(func() { as.stop() })
	return as
}

func (as *agents) halted() bool {
	select {
	case <-as.halt:
		return true
	default:
		return false
	}
}

// stop lets the runs under way end.
func (as *agents) stop() {
	if !as.halted() {
		close(as.halt)
	}
	as.work.Wait()
}

// progress waits until every agent that talks has so many more events acknowledged.
func (as *agents) progress(events int64) {
	as.t.Helper()
	for _, a := range as.all[:len(as.all)-1] {
		for from, end := a.acked.Load(), time.Now().Add(time.Minute); a.acked.Load() < from+events; time.Sleep(5 * time.Millisecond) {
			if as.t.Failed() || time.Now().After(end) {
				as.t.Fatalf("%s does not get on", a.thread)
			}
		}
	}
}

// acknowledged notes the acknowledgement of n events, and how long nobody had one.
func (as *agents) acknowledged(n int64) {
	now := time.Now()
	as.mu.Lock()
	defer as.mu.Unlock()
	if !as.last.IsZero() {
		as.gap = max(as.gap, now.Sub(as.last))
	}
	as.last = now
	as.acked.Add(n)
}

// longestGap is the longest time without an acknowledgement since it was last asked for.
func (as *agents) longestGap() time.Duration {
	as.mu.Lock()
	defer as.mu.Unlock()
	gap := as.gap
	as.gap = 0
	return gap
}

// record writes a run of fifty events, or, quietly, one that takes longer than its lease.
func (a *agent) record(ctx context.Context, id string) error {
	const lease = 5 * time.Second
	run, err := a.client.StartRun(ctx, &threadsvcv1.StartRunRequest{Thread: threadName(a.thread), RunId: id, LeaseTtl: durationpb.New(lease)})
	if err != nil {
		return err
	}
	events := []string{runStarted(a.thread, id)}
	if !a.quiet {
		for i := range 50 {
			events = append(events, event("CUSTOM", "name", `"n"`, "value", fmt.Sprint(i)))
		}
	}
	events = append(events, runFinished(a.thread, id))
	a.sent = append(a.sent, events)
	before := uint64(0)
	w := run.Write(ctx, client.WriterOptions{Lease: lease, OnAck: func(p *threadsvcv1.Progress) {
		n := int64(p.GetNextOffset() - before)
		before = p.GetNextOffset()
		a.acked.Add(n)
		a.of.acknowledged(n)
	}})
	for i, e := range events {
		if err := w.Append(ctx, []byte(e)); err != nil {
			return err
		}
		a.rest(i)
	}
	return w.Close(ctx)
}

// rest is the time between two events. The quiet one says nothing before all is over.
func (a *agent) rest(i int) {
	switch {
	case !a.quiet:
		time.Sleep(3 * time.Millisecond)
	case i == 0:
		<-a.of.halt
	}
}

// check reads all logs, and counts the events that are missing and those that are there more than once. All runs have
// ended without an error, so every event was acknowledged.
func (as *agents) check(rpc threadsvcv1.ThreadServiceClient) (lost, doubled int) {
	as.t.Helper()
	for _, a := range as.all {
		entries, _, err := readLog(as.t.Context(), rpc, a.thread, 0)
		if err != nil {
			as.t.Fatal(err)
		}
		logged := map[string][]string{}
		for _, e := range entries {
			if e.GetKind() == threadsvcv1.EntryKind_ENTRY_KIND_EVENT {
				logged[e.GetRunId()] = append(logged[e.GetRunId()], string(e.GetPayload()))
			}
		}
		for i, sent := range a.sent {
			l, d := compareEvents(sent, logged[fmt.Sprint("run-", i)])
			lost, doubled = lost+l, doubled+d
		}
	}
	if lost+doubled > 0 {
		as.t.Errorf("%d events were lost, %d doubled", lost, doubled)
	}
	return lost, doubled
}

// compareEvents counts the events of a run that the log does not have in their place, and those that it has beyond them. A
// run's events all differ.
func compareEvents(sent, logged []string) (lost, doubled int) {
	times := map[string]int{}
	for _, e := range logged {
		times[e]++
	}
	for i, e := range sent {
		if times[e] == 0 || times[e] == 1 && (i >= len(logged) || logged[i] != e) {
			lost++
		}
		doubled += max(0, times[e]-1)
	}
	return lost, doubled
}

// The check finds what it is there to find.
func TestCompareEvents(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		logged        string
		lost, doubled int
	}{
		"all there": {"a b c", 0, 0}, "one lost": {"a c", 2, 0}, "last lost": {"a b", 1, 0}, "doubled": {"a a b c", 2, 1}, "none": {"", 3, 0}, "swapped": {"a c b", 2, 0},
	} {
		if lost, doubled := compareEvents([]string{"a", "b", "c"}, strings.Fields(c.logged)); lost != c.lost || doubled != c.doubled {
			t.Errorf("%s: %d lost, %d doubled, want %d and %d", name, lost, doubled, c.lost, c.doubled)
		}
	}
}
