package service_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store/storetest"
)

const (
	wait   = threadsvcv1.ActiveRunPolicy_ACTIVE_RUN_POLICY_WAIT
	reject = threadsvcv1.ActiveRunPolicy_ACTIVE_RUN_POLICY_REJECT
)

// startCall is a StartRun under way.
type startCall struct {
	run   string
	start *threadsvcv1.RunStart
	err   error
	done  chan struct{}
	leave context.CancelFunc
}

// call starts a run without waiting for the answer.
func (c *conversation) call(run string, options ...startOption) *startCall {
	ctx, cancel := context.WithCancel(c.t.Context())
	s := &startCall{run: run, done: make(chan struct{}), leave: cancel}
	go func() {
		defer close(s.done)
		s.start, _, s.err = startRun(ctx, c.client, c.request(run, options...))
	}()
	return s
}

// callInLine is call with the policy to wait, once the call is in the queue of the node.
func (c *conversation) callInLine(n *node, run string, options ...startOption) *startCall {
	c.t.Helper()
	before := n.service.Waiting()
	s := c.call(run, append(options, withPolicy(wait))...)
	for n.service.Waiting() == before {
		select {
		case <-s.done:
			c.t.Fatalf("%s did not wait: %v %s", run, s.err, detailsOf(s.err))
		case <-time.After(time.Millisecond):
		}
	}
	return s
}

func (s *startCall) answered(t testing.TB) {
	t.Helper()
	<-s.done
	if s.err != nil {
		t.Fatalf("%s: %v %s", s.run, s.err, detailsOf(s.err))
	}
}

func (s *startCall) waits() bool {
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

// through takes the run that was answered to its end.
func (c *conversation) through(s *startCall) {
	c.t.Helper()
	c.run, c.offset = handle(c.thread, s.run, s.start.GetLease().GetFencingToken()), 0
	c.append(runStarted(c.thread, s.run), runFinished(c.thread, s.run))
}

// waitingNode is a conversation on a server of its own, with a lease that outlasts the test.
func waitingNode(t *testing.T, url string, cfg service.Config) (*conversation, *node) {
	t.Helper()
	n := startNode(t, openStore(t, url), cfg)
	return converse(t, dial(t, n.address), "t1"), n
}

// runIDs are the runs of a thread, oldest first.
func (c *conversation) runIDs() []string {
	c.t.Helper()
	var ids []string
	runs := must(c.client.ListRuns(c.t.Context(), &threadsvcv1.ListRunsRequest{Thread: threadName(c.thread)}))(c.t)
	for _, r := range slices.Backward(runs.GetRuns()) {
		ids = append(ids, r.GetRunId())
	}
	return ids
}

func TestWhoWaitsForARunGoesInTurn(t *testing.T) {
	t.Parallel()
	c, n := waitingNode(t, storetest.Database(t), service.Config{})
	c.open("r0")
	var calls []*startCall
	want := []string{"r0"}
	for i := range 6 {
		calls = append(calls, c.callInLine(n, fmt.Sprint("r", i+1)))
		want = append(want, calls[i].run)
	}
	c.append(runFinished("t1", "r0"))
	for i, call := range calls {
		call.answered(t)
		for _, later := range calls[i+1:] {
			if !later.waits() {
				t.Errorf("%s was answered before %s had ended", later.run, call.run)
			}
		}
		c.through(call)
	}
	if got := c.runIDs(); !slices.Equal(got, want) {
		t.Errorf("runs %q, want %q", got, want)
	}
	if n.service.Waiting() != 0 {
		t.Errorf("%d still wait", n.service.Waiting())
	}
	if marks := c.marks(); len(marks) > 0 {
		t.Errorf("marks %q, want each run to its end", marks)
	}
	c.stillWorks()
}

// Whoever comes later and does not wait is refused, also between two runs; who takes over goes first; the run itself may be
// asked for again.
func TestOthersComeWhileSomebodyWaits(t *testing.T) {
	t.Parallel()
	c, n := waitingNode(t, storetest.Database(t), service.Config{})
	start, _ := c.start("r1")
	c.append(runStarted("t1", "r1"))
	waiting := c.callInLine(n, "r2")
	again, _, err := startRun(t.Context(), c.client, c.request("r1", withPolicy(wait)))
	if err != nil || !again.GetRepeatedRequest() || again.GetLease().GetFencingToken() != start.GetLease().GetFencingToken() {
		t.Errorf("the active run asked for again: %v, %v", again, err)
	}
	_, _, err = startRun(t.Context(), c.client, c.request("r3", withPolicy(reject)))
	if meta := wantReason(t, err, codes.FailedPrecondition, "RUN_ACTIVE"); meta["active_run"] != "r1" {
		t.Errorf("metadata %v", meta)
	}
	version := uint64(1)
	_, _, err = startRun(t.Context(), c.client, c.request("r3", withPolicy(wait), func(r *threadsvcv1.StartRunRequest) { r.ExpectedVersion = &version }))
	wantReason(t, err, codes.Aborted, "VERSION_MISMATCH")

	c.start("r4", withPolicy(takeOver))
	if !waiting.waits() {
		t.Error("who waits was answered although another took over")
	}
	c.append(runStarted("t1", "r4"), runFinished("t1", "r4"))
	waiting.answered(t)
	c.through(waiting)
	if got := c.runIDs(); !slices.Equal(got, []string{"r1", "r4", "r2"}) {
		t.Errorf("runs %q", got)
	}
	c.stillWorks()
}

// A request that is made again while it waits does not wait for its own run.
func TestRequestMadeAgainWhileItWaits(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	c, n := waitingNode(t, url, service.Config{})
	elsewhere, other := waitingNode(t, url, service.Config{})
	c.open("r1")
	first, between, again := c.callInLine(n, "r2"), c.callInLine(n, "r3"), c.callInLine(n, "r2")
	across := elsewhere.callInLine(other, "r2")
	c.append(runFinished("t1", "r1"))
	for _, call := range []*startCall{first, again, across} {
		call.answered(t)
		if token := call.start.GetLease().GetFencingToken(); token != first.start.GetLease().GetFencingToken() {
			t.Errorf("token %d, want %d", token, first.start.GetLease().GetFencingToken())
		}
	}
	if !between.waits() {
		t.Error("who came between was answered while the run was active")
	}
	c.through(first)
	between.answered(t)
	c.through(between)
	if got := c.runIDs(); !slices.Equal(got, []string{"r1", "r2", "r3"}) {
		t.Errorf("runs %q", got)
	}
	c.stillWorks()
}

// The runs of two servers follow each other, also when the producer of the active one is lost.
func TestWaitForARunOnAnotherServer(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(c *conversation){
		"ends":     func(c *conversation) { c.append(runFinished("t1", "r1")) },
		"is ended": func(c *conversation) { c.end("r1", "") },
		"is erased": func(c *conversation) {
			must(c.client.DeleteThread(c.t.Context(), &threadsvcv1.DeleteThreadRequest{Thread: threadName("t1")}))(c.t)
		},
		"is expired": func(*conversation) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := storetest.Database(t)
			first, _ := waitingNode(t, url, service.Config{ReapInterval: -1})
			second, n := waitingNode(t, url, service.Config{ReapInterval: -1})
			ttl := time.Hour
			if name == "is expired" {
				ttl = time.Second
			}
			first.start("r1", func(r *threadsvcv1.StartRunRequest) { r.LeaseTtl = durationpb.New(ttl) })
			first.append(runStarted("t1", "r1"))
			waiting := second.callInLine(n, "r2")
			behind := second.callInLine(n, "r3")
			end(first)
			if name == "is erased" {
				for _, call := range []*startCall{waiting, behind} {
					<-call.done
					wantReason(t, call.err, codes.FailedPrecondition, "THREAD_DELETED")
				}
				first.recreate()
				first.stillWorks()
				return
			}
			waiting.answered(t)
			if !behind.waits() {
				t.Error("the next was answered too")
			}
			second.through(waiting)
			behind.answered(t)
			second.through(behind)
			first.stillWorks()
		})
	}
}

func TestWaitEndsWithTheCallersPatience(t *testing.T) {
	t.Parallel()
	c, n := waitingNode(t, storetest.Database(t), service.Config{})
	start, _ := c.start("r1")
	leaving, staying := c.callInLine(n, "r2"), c.callInLine(n, "r3")
	leaving.leave()
	<-leaving.done
	for n.service.Waiting() > 1 {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, _, err := startRun(ctx, c.client, c.request("r4", withPolicy(wait)))
	meta := wantReason(t, err, codes.DeadlineExceeded, "DEADLINE_EXCEEDED")
	if expiry, err := time.Parse(time.RFC3339Nano, meta["lease_expires_at"]); meta["active_run"] != "r1" || err != nil || expiry.Before(start.GetLease().GetExpiresAt().AsTime()) {
		t.Errorf("metadata %v, want the holder", meta)
	}
	c.append(runStarted("t1", "r1"), runFinished("t1", "r1"))
	staying.answered(t)
	c.through(staying)
	if got := c.runIDs(); !slices.Equal(got, []string{"r1", "r3"}) {
		t.Errorf("runs %q", got)
	}
	c.stillWorks()
}

func TestQueueOfThoseWhoWaitIsBounded(t *testing.T) {
	t.Parallel()
	c, n := waitingNode(t, storetest.Database(t), service.Config{WaitersPerThread: 2, Waiters: 3})
	other := converse(t, c.client, "t2")
	c.open("r1")
	other.open("r1")
	queue := []*startCall{c.callInLine(n, "r2"), c.callInLine(n, "r3")}
	_, _, err := startRun(t.Context(), c.client, c.request("r4", withPolicy(wait)))
	if meta := wantReason(t, err, codes.ResourceExhausted, "WAIT_QUEUE_FULL"); meta["active_run"] != "r1" || meta["lease_expires_at"] == "" {
		t.Errorf("metadata %v, want the holder", meta)
	}
	elsewhere := other.callInLine(n, "r2")
	_, _, err = startRun(t.Context(), c.client, other.request("r3", withPolicy(wait)))
	wantReason(t, err, codes.ResourceExhausted, "WAIT_QUEUE_FULL")
	queue[0].leave()
	<-queue[0].done
	for n.service.Waiting() > 2 {
		time.Sleep(time.Millisecond)
	}
	queue = append(queue[1:], c.callInLine(n, "r4"))
	c.append(runFinished("t1", "r1"))
	other.append(runFinished("t2", "r1"))
	elsewhere.answered(t)
	for _, call := range queue {
		call.answered(t)
		c.through(call)
	}
	c.stillWorks()
}

func TestServerThatDrainsLetsNobodyWait(t *testing.T) {
	t.Parallel()
	c, n := waitingNode(t, storetest.Database(t), service.Config{})
	c.open("r1")
	calls := []*startCall{c.callInLine(n, "r2"), c.callInLine(n, "r3")}
	n.service.Drain()
	for _, call := range calls {
		<-call.done
		wantReason(t, call.err, codes.Unavailable, "SHUTTING_DOWN")
	}
}

// A double submit, on two servers at once, by each policy: exactly one runs at a time, nothing interleaves, and the next
// message works.
func TestDoubleSubmitOnTwoServers(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]threadsvcv1.ActiveRunPolicy{"reject": reject, "wait": wait, "take over": takeOver} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sides := twoServers(t)
			for round := range 5 {
				var calls [2]*startCall
				for i, side := range sides {
					side.thread = fmt.Sprint("t", round)
					calls[i] = side.call(fmt.Sprint("r", i), withPolicy(policy), withMessages(userMessage(fmt.Sprint("u", i), "hi")))
				}
				var both sync.WaitGroup
				won := make(chan int, 2)
				for i, call := range calls {
					both.Go(func() {
						<-call.done
						if call.err != nil {
							if reason, meta := reasonOf(call.err); policy != reject || reason != "RUN_ACTIVE" || meta["active_run"] != calls[1-i].run {
								t.Errorf("round %d: %v %s", round, call.err, detailsOf(call.err))
							}
							return
						}
						won <- i
						if policy == reject { // who is refused must have met an active run
							<-calls[1-i].done
						}
						run := handle(sides[i].thread, call.run, call.start.GetLease().GetFencingToken())
						for offset, e := range []string{runStarted(sides[i].thread, call.run), textStart("m" + call.run), textEnd("m" + call.run), runFinished(sides[i].thread, call.run)} {
							if _, err := appendBatch(t.Context(), sides[i].client, run, uint64(offset), e); err != nil {
								if reason, _ := reasonOf(err); policy != takeOver || reason != "RUN_CLOSED" && reason != "LEASE_LOST" {
									t.Errorf("round %d: %v %s", round, err, detailsOf(err))
								}
								return
							}
						}
					})
				}
				both.Wait()
				if want := map[bool]int{true: 1, false: 2}[policy == reject]; len(won) != want {
					t.Fatalf("round %d: %d won, want %d", round, len(won), want)
				}
				wantOneAtATime(t, sides[0])
				sides[round%2].stillWorks()
			}
		})
	}
}

// wantOneAtATime fails if the entries of two runs interleave.
func wantOneAtATime(t *testing.T, c *conversation) {
	t.Helper()
	var order []string
	for _, e := range c.log() {
		if n := len(order); n == 0 || order[n-1] != e.GetRunId() {
			order = append(order, e.GetRunId())
		}
	}
	sorted := slices.Clone(order)
	slices.Sort(sorted)
	if len(slices.Compact(sorted)) != len(order) {
		t.Errorf("runs interleave: %q", order)
	}
}
