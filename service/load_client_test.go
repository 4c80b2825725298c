package service_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// loadClient records one run after the other on its threads, now on this node and now on that. It is one goroutine.
type loadClient struct {
	load    *load
	nodes   []threadsvcv1.ThreadServiceClient
	rpc     threadsvcv1.ThreadServiceClient // the node in use
	rnd     *rand.Rand
	script  *script
	name    string
	threads []*loadThread
	runs    int
	tune    func(*threadsvcv1.StartRunRequest) // changes the requests of runs, if it is set
}

func newLoadClient(l *load, nodes []threadsvcv1.ThreadServiceClient, seed uint64, name string) *loadClient {
	c := &loadClient{load: l, nodes: nodes, rnd: rand.New(rand.NewPCG(seed, 2)), script: newScript(seed, name), name: name}
	c.roam()
	return c
}

// roam goes to any of the nodes.
func (c *loadClient) roam() { c.rpc = c.nodes[c.rnd.IntN(len(c.nodes))] }

func dialAll(t testing.TB, addresses []string) []threadsvcv1.ThreadServiceClient {
	t.Helper()
	var nodes []threadsvcv1.ThreadServiceClient
	for _, address := range addresses {
		nodes = append(nodes, dialOften(t, address))
	}
	return nodes
}

// dialOften is dial with a client that tries to connect again at once.
func dialOften(t testing.TB, address string) threadsvcv1.ThreadServiceClient {
	t.Helper()
	conn := connectOften(t, address)
	t.Cleanup(func() { _ = conn.Close() })
	return threadsvcv1.NewThreadServiceClient(conn)
}

// connectOften returns a connection that the caller closes.
func connectOften(t testing.TB, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20), grpc.WaitForReady(true)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 1.5, Jitter: 0.5, MaxDelay: 100 * time.Millisecond},
			MinConnectTimeout: 5 * time.Second,
		}))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// errStopped says that the load was stopped before a call succeeded.
var errStopped = errors.New("the load was stopped")

func (c *loadClient) work(ctx context.Context) error {
	for !c.load.stopped() && ctx.Err() == nil {
		thread := c.threads[c.rnd.IntN(len(c.threads))]
		if err := c.look(ctx, thread); err != nil {
			return fmt.Errorf("%s: look at %s: %w", c.name, thread.id, err)
		}
		if err := c.record(ctx, thread); err != nil && !errors.Is(err, errStopped) {
			return fmt.Errorf("%s: %s: %w", c.name, thread.id, err)
		}
	}
	return nil
}

// record opens a run and sends its events. A few runs are abandoned in their midst.
func (c *loadClient) record(ctx context.Context, thread *loadThread) error {
	recorded := !thread.shared && c.rnd.IntN(6) == 0
	stream := c.newStream(thread, recorded)
	if c.rnd.IntN(12) == 0 {
		stream.limit = c.rnd.IntN(stream.limit)
	}
	if !recorded {
		var err error
		if stream, err = c.start(ctx, thread, stream); err != nil {
			return err
		}
	}
	return c.send(ctx, thread, stream)
}

func (c *loadClient) newStream(thread *loadThread, recorded bool) *sentStream {
	c.runs++
	id := fmt.Sprintf("%s-run%d", c.name, c.runs)
	s := &sentStream{id: id, recorded: recorded, events: c.script.stream(thread.id, id)}
	s.limit, s.history, s.plan = len(s.events), thread.history, planOf(s.events)
	thread.mu.Lock()
	thread.streams = append(thread.streams, s)
	thread.mu.Unlock()
	return s
}

// again makes a call until its outcome is known.
func (c *loadClient) again(ctx context.Context, timeout time.Duration, call func(ctx context.Context) error) error {
	for {
		callCtx, cancel := context.WithTimeout(ctx, timeout)
		err := call(callCtx)
		cancel()
		switch status.Code(err) {
		case codes.Unavailable, codes.DeadlineExceeded, codes.Aborted:
		default:
			return err
		}
		if c.load.stopped() || ctx.Err() != nil {
			return errStopped
		}
		c.roam()
		time.Sleep(time.Duration(c.rnd.IntN(50)) * time.Millisecond)
	}
}

// request is what starts the stream's run.
func (c *loadClient) request(thread *loadThread, s *sentStream) *threadsvcv1.StartRunRequest {
	req := &threadsvcv1.StartRunRequest{
		Thread: threadName(thread.id), RunId: s.id, LeaseTtl: durationpb.New(time.Hour),
		Messages: [][]byte{fmt.Appendf(nil, `{"id":%q,"role":"user","content":"%s"}`, c.script.id("u"), c.script.delta())},
	}
	if c.rnd.IntN(10) == 0 {
		req.StateChange = &threadsvcv1.StartRunRequest_State{State: fmt.Appendf(nil, `{"k1":"%s"}`, c.script.delta())}
	}
	if c.tune != nil {
		c.tune(req)
	}
	return req
}

// start announces the stream's run. If that is refused, it does what the refusal asks for and tries with a run of
// another id, since nobody knows whether an earlier attempt with the first one is still on its way.
func (c *loadClient) start(ctx context.Context, thread *loadThread, s *sentStream) (*sentStream, error) {
	req := c.request(thread, s)
	for {
		start, input, err := c.tryStart(ctx, req, s)
		if err == nil {
			s.token, s.input = start.GetLease().GetFencingToken(), start.GetVersion()
			thread.see(sighting{version: start.GetVersion(), context: sha256.Sum256(input)})
			return s, nil
		}
		if !c.comply(req, err) {
			return nil, fmt.Errorf("start %s: %w %s", s.id, err, detailsOf(err))
		}
		s = c.newStream(thread, false)
		req.RunId = s.id
	}
}

// tryStart makes a StartRun call until its outcome is known. It is one operation of the history; but if it is refused at
// last, attempts without an answer may still succeed.
func (c *loadClient) tryStart(ctx context.Context, req *threadsvcv1.StartRunRequest, s *sentStream) (start *threadsvcv1.RunStart, input []byte, err error) {
	ask := s.asks(req)
	op, attempts := s.history.call(ask), 0
	err = c.again(ctx, callTimeout, func(ctx context.Context) (err error) {
		attempts++
		ask.call = s.history.now()
		start, input, err = startRun(ctx, c.rpc, req)
		return err
	})
	got := outcomeOf(err)
	got.token, got.version = start.GetLease().GetFencingToken(), start.GetVersion()
	if got.verdict == refused && attempts > 1 {
		op = s.history.call(ask)
	}
	s.history.settle(op, got)
	return start, input, err
}

// comply changes a request so that it is not refused for the same reason again.
func (c *loadClient) comply(req *threadsvcv1.StartRunRequest, err error) bool {
	reason, meta := reasonOf(err)
	switch reason {
	case "RUN_ACTIVE":
		req.Policy = threadsvcv1.ActiveRunPolicy_ACTIVE_RUN_POLICY_TAKE_OVER
	case "INTERRUPTS_UNKNOWN":
		req.Resume = nil
	case "INTERRUPTS_OPEN":
		var answers []string
		for _, id := range strings.Split(meta["interrupt_ids"], ",") {
			answers = append(answers, fmt.Sprintf(`{"interruptId":%q,"status":"resolved","payload":%d}`, id, c.rnd.IntN(9)))
		}
		req.Resume = []byte("[" + strings.Join(answers, ",") + "]")
	case "TOOL_CALLS_UNANSWERED":
		if c.rnd.IntN(2) == 0 {
			req.UnansweredToolCalls = threadsvcv1.UnansweredToolCalls_UNANSWERED_TOOL_CALLS_ALLOW
			break
		}
		for _, id := range strings.Split(meta["tool_call_ids"], ",") {
			req.Messages = append(req.Messages, fmt.Appendf(nil, `{"id":%q,"role":"tool","toolCallId":%q,"content":"late"}`, c.script.id("r"), id))
		}
	default:
		return false
	}
	return true
}

// send sends the stream's events until all are acknowledged, or the run is lost to another client.
func (c *loadClient) send(ctx context.Context, thread *loadThread, s *sentStream) error {
	for s.acked < s.limit {
		err := c.again(ctx, streamTimeout, func(ctx context.Context) error { return c.attempt(ctx, thread, s) })
		reason, _ := reasonOf(err)
		switch {
		case err == nil:
		case (thread.shared || s.recorded) && (reason == "LEASE_LOST" || reason == "RUN_CLOSED"):
			return nil
		case s.recorded && s.acked == 0 && reason == "RUN_ACTIVE":
			return nil
		default:
			return fmt.Errorf("append to %s from %d: %w %s", s.id, s.acked, err, detailsOf(err))
		}
	}
	return nil
}

// attempt sends what is not acknowledged, and sometimes what is, as one batch or as a stream of them.
func (c *loadClient) attempt(ctx context.Context, thread *loadThread, s *sentStream) error {
	if c.rnd.IntN(6) == 0 {
		c.roam()
	}
	from := s.acked
	if c.rnd.IntN(4) == 0 {
		from = c.rnd.IntN(s.acked + 1)
	}
	run := handle(thread.id, s.id, s.token)
	if c.rnd.IntN(3) > 0 {
		return c.stream(ctx, run, s, from)
	}
	b := c.batch(s, from)
	op := s.append(b)
	resp, err := c.rpc.AppendBatch(ctx, &threadsvcv1.AppendBatchRequest{Run: run, Batch: b})
	s.history.settle(op, progressOf(resp.GetProgress(), err))
	if err != nil {
		return err
	}
	return c.acknowledge(s, b, resp.GetProgress())
}

// batch is the next piece of the stream's events; empty ones, which renew the lease, are among them.
func (c *loadClient) batch(s *sentStream, from int) *threadsvcv1.EventBatch {
	size := c.rnd.IntN(12)
	if s.recorded || c.rnd.IntN(2) == 0 {
		size = 1 + size/4
	}
	b := &threadsvcv1.EventBatch{Offset: uint64(from)}
	for _, event := range s.events[from:min(from+size, s.limit)] {
		b.Events = append(b.Events, []byte(event.text))
	}
	return b
}

// stream sends batches by AppendEvents, faster than they are acknowledged.
func (c *loadClient) stream(ctx context.Context, run *threadsvcv1.RunHandle, s *sentStream, from int) error {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := c.rpc.AppendEvents(ctx)
	if err != nil {
		cancel()
		return err
	}
	batches, pause := c.cut(s, from), time.Duration(c.rnd.IntN(3))*time.Millisecond
	ops := make(chan *chaosOp, len(batches))
	var sender sync.WaitGroup
	sender.Go(func() {
		defer close(ops)
		for i, b := range batches {
			req := &threadsvcv1.AppendEventsRequest{Batch: b}
			if i == 0 {
				req.Run = run
			}
			ops <- s.append(b)
			if stream.Send(req) != nil { // Recv tells why
				return
			}
			time.Sleep(pause)
		}
		_ = stream.CloseSend()
	})
	defer sender.Wait()
	defer cancel()
	for _, b := range batches {
		resp, err := stream.Recv()
		if err == nil {
			err = status.ErrorProto(resp.GetError())
		}
		s.history.settle(<-ops, progressOf(resp.GetProgress(), err))
		if err == nil {
			err = c.acknowledge(s, b, resp.GetProgress())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *loadClient) cut(s *sentStream, from int) []*threadsvcv1.EventBatch {
	var batches []*threadsvcv1.EventBatch
	for from < s.limit {
		b := c.batch(s, from)
		batches = append(batches, b)
		from += len(b.GetEvents())
	}
	return batches
}

// asks is the stream's start as the history has it.
func (s *sentStream) asks(req *threadsvcv1.StartRunRequest) asked {
	return asked{
		kind: opStart, run: s.id, plan: s.plan, ttl: int64(req.GetLeaseTtl().AsDuration()),
		takesOver: req.GetPolicy() == threadsvcv1.ActiveRunPolicy_ACTIVE_RUN_POLICY_TAKE_OVER,
		waits:     req.GetPolicy() == threadsvcv1.ActiveRunPolicy_ACTIVE_RUN_POLICY_WAIT,
	}
}

// append notes that a batch is sent.
func (s *sentStream) append(b *threadsvcv1.EventBatch) *chaosOp {
	if s.history == nil {
		return nil
	}
	s.sent++
	first := int(b.GetOffset())
	return s.history.call(asked{
		kind: opAppend, run: s.id, plan: s.plan, token: s.token, first: first, until: first + len(b.GetEvents()), order: s.sent,
	})
}

// acknowledge notes what is durable, which must cover the batch.
func (c *loadClient) acknowledge(s *sentStream, b *threadsvcv1.EventBatch, progress *threadsvcv1.Progress) error {
	next := int(progress.GetNextOffset())
	if end := int(b.GetOffset()) + len(b.GetEvents()); next < end || next > s.limit {
		return fmt.Errorf("a batch up to %d of %d was acknowledged up to %d", end, s.limit, next)
	}
	s.acks = append(s.acks, ack{next, progress.GetVersion()})
	if next > s.acked {
		c.load.acked.Add(int64(next - s.acked))
		s.acked = next
	}
	return nil
}

// look reads the thread now and then, and notes what it was told.
func (c *loadClient) look(ctx context.Context, thread *loadThread) error {
	if c.rnd.IntN(8) > 0 {
		return nil
	}
	existed := thread.existed()
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	op := thread.history.call(asked{kind: opRead})
	info, text, err := getContext(callCtx, c.rpc, thread.id)
	got := outcomeOf(err)
	got.version = info.GetVersion()
	thread.history.settle(op, got)
	switch status.Code(err) {
	case codes.OK:
		thread.see(sighting{info.GetVersion(), sha256.Sum256(text), info.GetLogHash()})
	case codes.NotFound:
		if existed {
			return fmt.Errorf("it existed: %w", err)
		}
	case codes.Unavailable, codes.DeadlineExceeded:
	default:
		return err
	}
	return nil
}
