package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/threadsvc/threadsvc/client"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/service/servicetest"
	"github.com/threadsvc/threadsvc/store/storetest"
)

func TestRunFromStartToEnd(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	req := request("t1", "r1")
	req.Messages = [][]byte{[]byte(`{"id":"u1","role":"user","content":"` + strings.Repeat("large ", 1<<20) + `"}`)}
	run := must(c.StartRun(t.Context(), req))(t)
	if uint64(len(run.Input)) != run.Start.GetInputSize() || !strings.Contains(string(run.Input), `"u1"`) {
		t.Errorf("an input of %d bytes, announced were %d", len(run.Input), run.Start.GetInputSize())
	}
	if again := must(c.StartRun(t.Context(), req))(t); !again.Start.GetRepeatedRequest() || string(again.Input) != string(run.Input) {
		t.Error("the same request gave another run")
	}
	var acks []uint64
	w := run.Write(t.Context(), client.WriterOptions{OnAck: func(p *threadsvcv1.Progress) { acks = append(acks, p.GetNextOffset()) }})
	events := []string{runStarted("t1", "r1")}
	for i := range 100 {
		events = append(events, numbered(i))
	}
	appendAll(t, w, events...)
	ok(t, w.Flush(t.Context()))
	if offset, version := w.Durable(); offset != 101 || version != 102 {
		t.Errorf("%d events are durable at version %d", offset, version)
	}
	last := make(chan []byte, 2)
	last <- []byte(`{"type":"STATE_SNAPSHOT","snapshot":{"n":1.10}}`)
	last <- []byte(runFinished("t1", "r1"))
	close(last)
	ok(t, w.AppendFrom(t.Context(), last))
	ok(t, w.Close(t.Context()))
	ok(t, w.Close(t.Context()))
	for i := 1; i < len(acks); i++ {
		if acks[i] < acks[i-1] {
			t.Errorf("acknowledged were %v", acks)
		}
	}
	if err := w.Append(t.Context(), []byte(`{}`)); !errors.Is(err, client.ErrClosed) {
		t.Errorf("append after close: %v", err)
	}
	wantEvents(t, c, "t1", "r1", append(events, `{"type":"STATE_SNAPSHOT","snapshot":{"n":1.10}}`, runFinished("t1", "r1")))
	if got := must(c.GetContext(t.Context(), threadName("t1")))(t); !strings.Contains(string(got.Input), `{"n":1.10}`) || got.Info.GetVersion() != 104 {
		t.Errorf("context at version %d", got.Info.GetVersion())
	}
}

// A stream that is recorded as it passes by opens its run by itself. Sending all of it again changes nothing.
func TestRecordedRun(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	events := []string{runStarted("t1", "r1"), numbered(1), runFinished("t1", "r1"), runStarted("t1", "r2"), numbered(2), runFinished("t1", "r2")}
	handle := &threadsvcv1.RunHandle{Thread: threadName("t1"), RunId: "r1"}
	for range 2 {
		w := c.Write(t.Context(), handle, client.WriterOptions{Lease: 30 * time.Millisecond})
		time.Sleep(100 * time.Millisecond) // no heartbeat before the run is open
		appendAll(t, w, events[:3]...)
		ok(t, w.Flush(t.Context()))
		time.Sleep(100 * time.Millisecond) // nor after it is over
		appendAll(t, w, events[3:]...)
		ok(t, w.Close(t.Context()))
	}
	wantEvents(t, c, "t1", "r1", events[:3])
	wantEvents(t, c, "t1", "r2", events[3:])
	w := c.Write(t.Context(), handle, client.WriterOptions{})
	appendAll(t, w, append(events[:4:4], numbered(3))...)
	refused := wantRefused(t, w.Close(t.Context()), threadsvcv1.ErrorReason_ERROR_REASON_OFFSET_MISMATCH)
	if refused.Offset != 4 {
		t.Errorf("refused was event %d", refused.Offset)
	}
}

// Whatever moment the connection breaks at, each event is stored once and in order.
func TestConnectionCutAtRandom(t *testing.T) {
	t.Parallel()
	const writers, events = 4, 2000
	node := servicetest.New(t, service.Config{})
	var all sync.WaitGroup
	for i := range writers {
		thread := fmt.Sprint("t", i)
		p := startProxy(t, node.Address)
		all.Go(func() {
			var streams atomic.Int64
			c := dial(t, p.address, client.Config{}, counting(&streams))
			run, err := c.StartRun(t.Context(), request(thread, "r1"))
			if err != nil {
				t.Error(err)
				return
			}
			w := run.Write(t.Context(), client.WriterOptions{BufferBytes: 20_000})
			sent := []string{runStarted(thread, "r1")}
			for n := range events {
				sent = append(sent, numbered(n))
			}
			sent = append(sent, runFinished(thread, "r1"))
			for _, event := range sent {
				if rand.IntN(100) == 0 {
					p.cut()
				}
				if err := w.Append(t.Context(), []byte(event)); err != nil {
					t.Error(err)
					break
				}
			}
			if err := w.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if n := streams.Load(); n < 4 {
				t.Errorf("%d streams: the connection was hardly ever cut", n)
			}
			wantEvents(t, dial(t, node.Address, client.Config{}), thread, "r1", sent)
		})
	}
	all.Wait()
}

// A writer outlasts the servers: of two, one is always stopped and started again.
func TestServersStopUnderAWriter(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	servers := []*restartable{startRestartable(t, url), startRestartable(t, url)}
	c := dial(t, servers[0].address+","+servers[1].address, client.Config{})
	var writers []*client.Writer
	const threads, rounds = 3, 4
	want := make([][]string, threads)
	put := func(event func(thread string) string) {
		for i, w := range writers {
			text := event(fmt.Sprint("t", i))
			want[i] = append(want[i], text)
			appendAll(t, w, text)
		}
	}
	for i := range threads {
		run := must(c.StartRun(t.Context(), request(fmt.Sprint("t", i), "r1")))(t)
		writers = append(writers, run.Write(t.Context(), client.WriterOptions{}))
	}
	put(func(thread string) string { return runStarted(thread, "r1") })
	for round := range rounds {
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			servers[round%2].stop()
		}()
		for n := range 100 {
			put(func(string) string { return numbered(round*100 + n) })
		}
		<-stopped
		servers[round%2].start()
	}
	put(func(thread string) string { return runFinished(thread, "r1") })
	for i, w := range writers {
		ok(t, w.Close(t.Context()))
		wantEvents(t, c, fmt.Sprint("t", i), "r1", want[i])
	}
}

// With a single server there is none for a while; the writer goes on when it is back, and so does a call.
func TestServerIsAwayForAWhile(t *testing.T) {
	t.Parallel()
	server := startRestartable(t, storetest.Database(t))
	c := dial(t, server.address, client.Config{})
	run := must(c.StartRun(t.Context(), request("t1", "r1")))(t)
	w := run.Write(t.Context(), client.WriterOptions{})
	appendAll(t, w, runStarted("t1", "r1"))
	ok(t, w.Flush(t.Context()))
	server.stop()
	appendAll(t, w, numbered(1), runFinished("t1", "r1"))
	called := make(chan error, 1)
	go func() {
		_, err := c.GetContext(t.Context(), threadName("t1"))
		called <- err
	}()
	time.Sleep(200 * time.Millisecond)
	server.start()
	ok(t, w.Close(t.Context()))
	ok(t, <-called)
	wantEvents(t, c, "t1", "r1", []string{runStarted("t1", "r1"), numbered(1), runFinished("t1", "r1")})
}

func TestWriterGivesUp(t *testing.T) {
	t.Parallel()
	c := dial(t, "127.0.0.1:1", client.Config{RetryFor: 100 * time.Millisecond})
	w := c.Write(t.Context(), &threadsvcv1.RunHandle{Thread: threadName("t1"), RunId: "r1"}, client.WriterOptions{Offset: 7})
	appendAll(t, w, numbered(1))
	err := w.Flush(t.Context())
	var failed *client.WriteError
	if !errors.As(err, &failed) || failed.Offset != 7 || failed.Durable != 7 || status.Code(err) != codes.Unavailable {
		t.Errorf("flush: %v", err)
	}
	if err := w.Append(t.Context(), []byte(numbered(2))); !errors.Is(err, failed) {
		t.Errorf("append: %v", err)
	}
	if err := w.AppendFrom(t.Context(), nil); !errors.Is(err, failed) {
		t.Errorf("append from a channel: %v", err)
	}
	_ = w.Close(t.Context())
	if _, err := c.StartRun(t.Context(), request("t1", "r1")); client.ErrorOf(err).Code() != codes.Unavailable {
		t.Errorf("start: %v", err)
	}
}

// What is not durable is bounded: appending waits, and goes on when there is room.
func TestBackpressure(t *testing.T) {
	t.Parallel()
	slow := &gatedStore{Store: servicetest.OpenStore(t, storetest.Database(t))}
	c := dial(t, servicetest.Start(t, slow, service.Config{}).Address, client.Config{})
	run := must(c.StartRun(t.Context(), request("t1", "r1")))(t)
	w := run.Write(t.Context(), client.WriterOptions{BufferBytes: 10_000})
	appendAll(t, w, runStarted("t1", "r1"))
	ok(t, w.Flush(t.Context()))
	slow.gate.Lock()
	sent, size := []string{runStarted("t1", "r1")}, 0
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		event := numbered(len(sent))
		err := w.Append(ctx, []byte(event))
		cancel()
		if err != nil {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			break
		}
		sent, size = append(sent, event), size+len(event)
	}
	slow.gate.Unlock()
	if size > 10_000 || size < 9_000 {
		t.Errorf("%d bytes were taken, the buffer has 10,000", size)
	}
	sent = append(sent, numbered(len(sent)), `{"type":"CUSTOM","name":"large","value":"`+strings.Repeat("x", 50_000)+`"}`, runFinished("t1", "r1"))
	appendAll(t, w, sent[len(sent)-3:]...)
	ok(t, w.Close(t.Context()))
	wantEvents(t, c, "t1", "r1", sent)
}

func TestDatabaseFailsForAWhile(t *testing.T) {
	t.Parallel()
	db := &gatedStore{Store: servicetest.OpenStore(t, storetest.Database(t))}
	c := dial(t, servicetest.Start(t, db, service.Config{}).Address, client.Config{})
	run := must(c.StartRun(t.Context(), request("t1", "r1")))(t)
	w := run.Write(t.Context(), client.WriterOptions{})
	sent := []string{runStarted("t1", "r1")}
	appendAll(t, w, sent...)
	for round := range 3 {
		db.failing.Store(true)
		for n := range 200 {
			sent = append(sent, numbered(round*200+n))
			appendAll(t, w, sent[len(sent)-1])
		}
		time.Sleep(50 * time.Millisecond)
		db.failing.Store(false)
		ok(t, w.Flush(t.Context()))
	}
	ok(t, w.Close(t.Context()))
	wantEvents(t, c, "t1", "r1", sent)
}

// A run that is silent keeps its lease for as long as its writer is there.
func TestSilentRunKeepsItsLease(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	req := request("t1", "r1")
	req.LeaseTtl = durationpb.New(time.Second)
	run := must(c.StartRun(t.Context(), req))(t)
	w := run.Write(t.Context(), client.WriterOptions{})
	last := run.Start.GetLease().GetExpiresAt().AsTime()
	for renewed := 0; renewed < 3; {
		resp := must(c.API().GetThread(t.Context(), &threadsvcv1.GetThreadRequest{Thread: threadName("t1")}))(t)
		if expires := resp.GetThread().GetLeaseExpireTime().AsTime(); expires.After(last) {
			last = expires
			renewed++
		}
		time.Sleep(20 * time.Millisecond)
	}
	appendAll(t, w, runStarted("t1", "r1"), runFinished("t1", "r1"))
	ok(t, w.Close(t.Context()))
	wantEvents(t, c, "t1", "r1", []string{runStarted("t1", "r1"), runFinished("t1", "r1")})
}

func TestRefusalsEndTheWriter(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	unknown := `{"type":"TEXT_MESSAGE_CONTENT","messageId":"nobody","delta":"x"}`
	large := `{"type":"CUSTOM","name":"n","value":"` + strings.Repeat("x", 5<<20) + `"}`
	for name, refusal := range map[string]struct {
		events  []string
		change  func(*threadsvcv1.RunHandle)
		reason  threadsvcv1.ErrorReason
		offset  uint64
		durable uint64
	}{
		"violation":  {[]string{numbered(1), unknown, numbered(2), numbered(3)}, nil, threadsvcv1.ErrorReason_ERROR_REASON_PROTOCOL_VIOLATION, 2, 2},
		"large":      {[]string{numbered(1), numbered(2), large}, nil, threadsvcv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED, 3, 3},
		"lease lost": {[]string{numbered(1)}, func(h *threadsvcv1.RunHandle) { h.FencingToken-- }, threadsvcv1.ErrorReason_ERROR_REASON_LEASE_LOST, 0, 0},
		"no run":     {[]string{numbered(1)}, func(h *threadsvcv1.RunHandle) { h.RunId = "another" }, threadsvcv1.ErrorReason_ERROR_REASON_RUN_NOT_FOUND, 0, 0},
		"no name":    {[]string{numbered(1)}, func(h *threadsvcv1.RunHandle) { h.RunId = "" }, threadsvcv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := must(c.StartRun(t.Context(), request(name, "r1")))(t)
			if refusal.change != nil {
				refusal.change(run.Handle)
			}
			w := run.Write(t.Context(), client.WriterOptions{})
			for _, event := range append([]string{runStarted(name, "r1")}, refusal.events...) {
				_ = w.Append(t.Context(), []byte(event)) // the refusal may have come by now
			}
			<-w.Done()
			for _, err := range []error{w.Err(), w.Flush(t.Context()), w.Append(t.Context(), []byte(`{}`)), w.Close(t.Context())} {
				refused := wantRefused(t, err, refusal.reason)
				if refused.Offset != refusal.offset || refused.Durable != refusal.durable {
					t.Errorf("event %d was refused, %d are durable: %v", refused.Offset, refused.Durable, err)
				}
			}
		})
	}
}

func TestRunThatIsTakenOver(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	run := must(c.StartRun(t.Context(), request("t1", "r1")))(t)
	w := run.Write(t.Context(), client.WriterOptions{Lease: 100 * time.Millisecond})
	appendAll(t, w, runStarted("t1", "r1"))
	ok(t, w.Flush(t.Context()))
	req := request("t1", "r2")
	_, err := c.StartRun(t.Context(), req)
	if client.ReasonOf(err) != threadsvcv1.ErrorReason_ERROR_REASON_RUN_ACTIVE || client.ErrorOf(err).Metadata["active_run"] != "r1" {
		t.Errorf("start: %v", err)
	}
	req.Policy = threadsvcv1.ActiveRunPolicy_ACTIVE_RUN_POLICY_TAKE_OVER
	must(c.StartRun(t.Context(), req))(t)
	<-w.Done() // a heartbeat finds out
	if refused := wantRefused(t, w.Err(), threadsvcv1.ErrorReason_ERROR_REASON_RUN_CLOSED); refused.Offset != 1 {
		t.Errorf("%+v", refused)
	}
	_ = w.Close(t.Context())
}

// This test is not parallel, so that the goroutines there are its own.
func TestWriterLeavesNothingRunning(t *testing.T) {
	url := storetest.Database(t)
	before := goleak.IgnoreCurrent()
	node := servicetest.Start(t, servicetest.OpenStore(t, url), service.Config{})
	c := must(client.Dial(node.Address, client.Config{}, insecurely))(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	cause := errors.New("the agent is gone")
	for i := range 3 {
		thread := fmt.Sprint("t", i)
		run := must(c.StartRun(t.Context(), request(thread, "r1")))(t)
		w := run.Write(ctx, client.WriterOptions{})
		appendAll(t, w, runStarted(thread, "r1"))
		ok(t, w.Flush(t.Context()))
		switch i {
		case 0:
			ok(t, w.Close(t.Context()))
		case 1:
			ended, end := context.WithCancel(t.Context())
			end()
			appendAll(t, w, numbered(1))
			_ = w.Close(ended)
		case 2:
			cancel(cause)
			<-w.Done()
			if err := w.Close(t.Context()); !errors.Is(err, cause) {
				t.Errorf("the writer ended with %v", err)
			}
		}
	}
	for range c.Follow(t.Context(), threadName("t0"), 0) {
		break
	}
	ok(t, c.Close())
	ok(t, node.Stop())
	var leaked error
	for range 30 {
		if leaked = goleak.Find(before); leaked == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Error(leaked)
}
