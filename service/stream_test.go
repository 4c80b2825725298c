package service_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// producer is an AppendEvents stream.
type producer struct {
	t      testing.TB
	stream eventStream
}

// produce opens a stream for the conversation's run.
func (c *conversation) produce() *producer {
	c.t.Helper()
	p := &producer{t: c.t, stream: must(c.client.AppendEvents(c.t.Context()))(c.t)}
	if err := p.stream.Send(&threadsvcv1.AppendEventsRequest{Run: c.run}); err != nil {
		c.t.Fatal(err)
	}
	return p
}

func (p *producer) send(offset uint64, events ...string) {
	p.t.Helper()
	if err := p.stream.Send(&threadsvcv1.AppendEventsRequest{Batch: batch(offset, events...)}); err != nil {
		p.t.Fatal(err)
	}
}

// ack receives the next answer and returns what was refused, if anything was.
func (p *producer) ack() (*threadsvcv1.Progress, error) {
	p.t.Helper()
	resp, err := p.stream.Recv()
	if err != nil {
		p.t.Fatalf("the stream ended: %v %s", err, detailsOf(err))
	}
	return resp.GetProgress(), status.ErrorProto(resp.GetError())
}

// end closes the stream and reads it to its end.
func (p *producer) end() {
	p.t.Helper()
	if err := p.stream.CloseSend(); err != nil {
		p.t.Fatal(err)
	}
	if resp, err := p.stream.Recv(); !errors.Is(err, io.EOF) {
		p.t.Fatalf("want the end of the stream, got %v, %v", resp, err)
	}
}

func TestStreamGoesOnAfterARefusal(t *testing.T) {
	t.Parallel()
	c := converse(t, newServer(t, smallLimits()), "t1")
	c.start("r1")
	p := c.produce()
	sent := []struct {
		offset uint64
		events []string
		reason string
		next   uint64
	}{
		{0, []string{runStarted("t1", "r1"), textStart("m")}, "", 2},
		{7, []string{textDelta("m", "x")}, "OFFSET_GAP", 2},
		{2, []string{textDelta("m", strings.Repeat("x", 100_000))}, "LIMIT_EXCEEDED", 2},
		{1, []string{textStart("another")}, "OFFSET_MISMATCH", 2},
		{2, []string{textDelta("m", "a")}, "", 3},
		{0, []string{runStarted("t1", "r1"), textStart("m"), textDelta("m", "a"), textDelta("m", "b")}, "", 4},
		{4, nil, "", 4},
		{4, []string{textEnd("m"), textEnd("m")}, "PROTOCOL_VIOLATION", 5},
		{5, []string{runFinished("t1", "r1")}, "RUN_CLOSED", 5},
		{4, []string{textEnd("m")}, "", 5},
	}
	for _, batch := range sent { // all at once: the answers are in order all the same
		p.send(batch.offset, batch.events...)
	}
	for i, batch := range sent {
		progress, err := p.ack()
		reason, _ := reasonOf(err)
		if reason != batch.reason || progress.GetNextOffset() != batch.next || progress.GetVersion() < batch.next {
			t.Errorf("answer %d: %v with %v %s; want next offset %d with %q", i, progress, err, detailsOf(err), batch.next, batch.reason)
		}
		if err != nil {
			checkError(t, err)
		}
	}
	p.end()
	c.wantStatus("r1", threadsvcv1.RunStatus_RUN_STATUS_FAILED)
	c.wantMessages("assistant m")
	c.stillWorks()
}

func TestStreamsThatAreWrong(t *testing.T) {
	t.Parallel()
	client := newServer(t, service.Config{})
	for name, requests := range map[string]func(run *threadsvcv1.RunHandle) []*threadsvcv1.AppendEventsRequest{
		"run": func(*threadsvcv1.RunHandle) []*threadsvcv1.AppendEventsRequest {
			return []*threadsvcv1.AppendEventsRequest{{Batch: batch(0, secret)}}
		},
		"run.thread": func(*threadsvcv1.RunHandle) []*threadsvcv1.AppendEventsRequest {
			return []*threadsvcv1.AppendEventsRequest{{Run: &threadsvcv1.RunHandle{RunId: "r"}}}
		},
		"run.run_id": func(run *threadsvcv1.RunHandle) []*threadsvcv1.AppendEventsRequest {
			return []*threadsvcv1.AppendEventsRequest{{Run: &threadsvcv1.RunHandle{Thread: run.GetThread()}}}
		},
		"run named twice": func(run *threadsvcv1.RunHandle) []*threadsvcv1.AppendEventsRequest {
			return []*threadsvcv1.AppendEventsRequest{{Run: run, Batch: batch(0, runStarted(run.GetThread().GetThreadId(), "r1"))}, {Run: run}}
		},
	} {
		c := converse(t, client, name)
		c.start("r1")
		stream := must(client.AppendEvents(t.Context()))(t)
		sent := requests(c.run)
		for _, req := range sent {
			if err := stream.Send(req); err != nil {
				t.Fatal(err)
			}
		}
		acks := 0
		var err error
		for err == nil {
			if _, err = stream.Recv(); err == nil {
				acks++
			}
		}
		meta := wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST")
		checkError(t, err)
		if name == "run named twice" {
			if meta["field"] != "run" || acks != 1 {
				t.Errorf("%s: %v after %d acks, want those of what came before", name, meta, acks)
			}
		} else if meta["field"] != name {
			t.Errorf("%s: %v", name, meta)
		}
		c.stillWorks()
	}
}

func TestStreamThatStopsHalfWay(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	c.start("r1")
	ctx, cancel := context.WithCancel(t.Context())
	stream := must(c.client.AppendEvents(ctx))(t)
	if err := stream.Send(&threadsvcv1.AppendEventsRequest{Run: c.run, Batch: batch(0, runStarted("t1", "r1"), textStart("m"), textDelta("m", "par"))}); err != nil {
		t.Fatal(err)
	}
	resp := must(stream.Recv())(t)
	cancel()
	if _, err := stream.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("want the end of the stream, got %v", err)
	}
	c.wantStatus("r1", threadsvcv1.RunStatus_RUN_STATUS_ACTIVE)
	c.offset = resp.GetProgress().GetNextOffset()
	p := c.produce() // the producer comes back
	p.send(c.offset, textDelta("m", "tial"), textEnd("m"), runFinished("t1", "r1"))
	if _, err := p.ack(); err != nil {
		t.Fatal(err)
	}
	p.end()
	if got := c.context().Messages[0].Content; got != "partial" {
		t.Errorf("content %q", got)
	}
}

// A producer that does not read what is acknowledged is stopped by flow control, so that the server keeps little of it,
// and goes on when it reads.
func TestProducerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	server := startNode(t, openStore(t, storetest.Database(t)), service.Config{Window: 4})
	client := dial(t, server.address, grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<10))
	c := converse(t, client, "t1")
	c.open("r1")
	p := c.produce()
	// What is stripped makes the answers as large as the events.
	name := strings.Repeat("n", 8<<10)
	nth := func(i int) string {
		return event("CUSTOM", "name", `"n"`, "value", fmt.Sprint(i), fmt.Sprint(i)+name, "1")
	}
	const batches = 2000
	var sent atomic.Int64
	failed := make(chan error, 1)
	go func() { failed <- p.sendAll(batches, nth, &sent) }()
	for before := int64(-1); before != sent.Load(); time.Sleep(300 * time.Millisecond) {
		before = sent.Load()
	}
	if n := sent.Load(); n*int64(len(name)) > 6<<20 {
		t.Errorf("%d batches were taken before an answer was read", n)
	}
	for i := range batches {
		progress, err := p.ack()
		if err != nil || progress.GetNextOffset() != uint64(i)+2 || len(progress.GetWarnings()) != 1 {
			t.Fatalf("answer %d: %.300v, %v", i, progress, err)
		}
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	p.end()
	c.offset = batches + 1
	c.append(runFinished("t1", "r1"))
	if n := len(c.events("r1")); n != batches+2 {
		t.Errorf("the log has %d events, want %d", n, batches+2)
	}
}

// sendAll sends the first n events, one to a batch and counting them, and closes the stream.
func (p *producer) sendAll(n int, nth func(int) string, sent *atomic.Int64) error {
	for i := range n {
		if err := p.stream.Send(&threadsvcv1.AppendEventsRequest{Batch: batch(uint64(i)+1, nth(i))}); err != nil {
			return err
		}
		sent.Add(1)
	}
	return p.stream.CloseSend()
}

func TestHeartbeatRenewsTheLease(t *testing.T) {
	t.Parallel()
	c, db := ownDatabase(t, service.Config{LeaseTTL: time.Hour})
	c.open("r1")
	expireLeases(t, db)
	p := c.produce()
	p.send(1)
	if progress, err := p.ack(); err != nil || progress.GetNextOffset() != 1 || progress.GetVersion() != 2 {
		t.Errorf("heartbeat: %v, %v", progress, err)
	}
	_, _, err := c.tryStart("r2")
	meta := wantReason(t, err, codes.FailedPrecondition, "RUN_ACTIVE")
	expires, parseErr := time.Parse(time.RFC3339Nano, meta["lease_expires_at"])
	if parseErr != nil || time.Until(expires) < 50*time.Minute || meta["active_run"] != "r1" {
		t.Errorf("metadata %v, want a lease of an hour", meta)
	}
	if entries := c.log(); len(entries) != 2 {
		t.Errorf("the heartbeat is in the log: %v", entries)
	}
	p.send(1, runFinished("t1", "r1"))
	if _, err := p.ack(); err != nil {
		t.Fatal(err)
	}
	p.end()
}

func TestManyStreamsOnOneThread(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	c.start("r1")
	events := []string{runStarted("t1", "r1"), textStart("m")}
	for i := range 100 {
		events = append(events, textDelta("m", fmt.Sprint(i, ",")))
	}
	events = append(events, textEnd("m"), runFinished("t1", "r1"))
	var producers []*producer
	for range 4 { // a client that sends everything several times over
		producers = append(producers, c.produce())
	}
	for i, e := range events {
		for _, p := range producers {
			p.send(uint64(i), e)
		}
		for _, p := range producers {
			if progress, err := p.ack(); err != nil || progress.GetNextOffset() != uint64(i)+1 {
				t.Fatalf("event %d: %v, %v", i, progress, err)
			}
		}
	}
	for _, p := range producers {
		p.end()
	}
	if got := c.events("r1"); !slices.Equal(got, events) {
		t.Errorf("the log has %d events, want each of %d once", len(got), len(events))
	}
}
