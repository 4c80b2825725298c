package service_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// This test is not parallel, so that the goroutines there are its own.
func TestServerLeavesNothingRunning(t *testing.T) {
	url := storetest.Database(t)
	before := goleak.IgnoreCurrent()
	server := startNode(t, openStore(t, url), service.Config{})
	conn := connection(t, server.address)
	c := converse(t, threadsvcv1.NewThreadServiceClient(conn), "t1")
	c.open("r1", textStart("m"))
	idle, busy := c.produce(), c.produce()
	busy.send(2, textDelta("m", "x"))
	if _, err := busy.ack(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	abandoned := must(c.client.AppendEvents(ctx))(t)
	if err := abandoned.Send(&threadsvcv1.AppendEventsRequest{Run: c.run, Batch: batch(3, secret)}); err != nil {
		t.Fatal(err)
	}
	cancel()
	follower := c.follow(0)
	c.until(follower, 3)
	if err := server.stop(); err != nil {
		t.Fatal(err)
	}
	wantReason(t, follower.until(100), codes.Unavailable, "SHUTTING_DOWN")
	for _, p := range []*producer{idle, busy} {
		_, err := p.stream.Recv()
		wantReason(t, err, codes.Unavailable, "SHUTTING_DOWN")
	}
	_ = conn.Close()
	var leaked error
	for range 100 {
		if leaked = goleak.Find(before); leaked == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Error(leaked)
}

// A server that stops acknowledges what it has taken, says where it stands, and another one goes on from there.
func TestServerStopsUnderLoad(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	server := startNode(t, openStore(t, url), service.Config{})
	client := dial(t, server.address)
	const producers = 4
	var conversations [producers]*conversation
	var idle [producers]*producer
	acked := make(chan uint64, producers)
	reached := make(chan struct{}, producers)
	for i := range conversations {
		thread := fmt.Sprint("t", i)
		c := converse(t, client, thread)
		c.start("r1")
		conversations[i], idle[i] = c, c.produce()
		stream := c.produce().stream
		go sendNumbered(stream, thread)
		go readNumbered(t, stream, thread, reached, acked)
	}
	for range producers {
		<-reached
	}
	if err := server.stop(); err != nil {
		t.Fatal(err)
	}
	for _, p := range idle {
		_, err := p.stream.Recv()
		wantReason(t, err, codes.Unavailable, "SHUTTING_DOWN")
	}
	acknowledged, logged := uint64(0), uint64(0)
	for range producers {
		acknowledged += <-acked
	}
	client = serveDatabase(t, url, service.Config{})
	for _, c := range conversations {
		c.client = client
		logged += c.finishNumbered()
	}
	if acknowledged > logged {
		t.Errorf("%d events were acknowledged, the logs have %d", acknowledged, logged)
	}
}

// finishNumbered checks the numbered events in the log, ends the run, and returns their number.
func (c *conversation) finishNumbered() uint64 {
	c.t.Helper()
	sent := c.events("r1")
	for i, e := range sent {
		if e != numbered(c.thread, uint64(i)) {
			c.t.Fatalf("%s: event %d is %s", c.thread, i, e)
		}
	}
	c.offset = uint64(len(sent))
	c.append(runFinished(c.thread, "r1"))
	return uint64(len(sent))
}

type eventStream = grpc.BidiStreamingClient[threadsvcv1.AppendEventsRequest, threadsvcv1.AppendEventsResponse]

// sendNumbered sends numbered events until the stream ends.
func sendNumbered(stream eventStream, thread string) {
	for offset := uint64(0); ; offset++ {
		if stream.Send(&threadsvcv1.AppendEventsRequest{Batch: batch(offset, numbered(thread, offset))}) != nil {
			return
		}
	}
}

// readNumbered reads the answers until the stream ends, tells when the first fifty have come, and at last how many.
func readNumbered(t *testing.T, stream eventStream, thread string, reached chan<- struct{}, acked chan<- uint64) {
	next := uint64(0)
	defer func() { acked <- next }()
	for {
		resp, err := stream.Recv()
		if err != nil {
			if reason, _ := reasonOf(err); reason != "SHUTTING_DOWN" || status.Code(err) != codes.Unavailable {
				t.Errorf("%s: the stream ended with %v, want SHUTTING_DOWN", thread, err)
			}
			return
		}
		if reason, _ := reasonOf(status.ErrorProto(resp.GetError())); reason == "SHUTTING_DOWN" {
			continue
		}
		if resp.GetError() != nil || resp.GetProgress().GetNextOffset() != next+1 {
			t.Errorf("%s: answer %v after %d", thread, resp, next)
		}
		if next++; next == 50 {
			reached <- struct{}{}
		}
	}
}

// numbered is the event of a stream at an offset.
func numbered(thread string, offset uint64) string {
	if offset == 0 {
		return runStarted(thread, "r1")
	}
	return event("CUSTOM", "name", `"n"`, "value", fmt.Sprint(offset))
}

func TestServerTellsWhetherItIsReady(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	server := startNode(t, openStore(t, url), service.Config{})
	conn := connection(t, server.address)
	client := grpc_health_v1.NewHealthClient(conn)
	watched := []grpc_health_v1.Health_WatchClient{}
	for _, name := range []string{"", threadsvcv1.ThreadService_ServiceDesc.ServiceName} {
		watched = append(watched, must(client.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: name}))(t))
	}
	await := func(want grpc_health_v1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		for _, watch := range watched {
			for must(watch.Recv())(t).GetStatus() != want {
			}
		}
	}
	await(grpc_health_v1.HealthCheckResponse_SERVING)
	c := converse(t, threadsvcv1.NewThreadServiceClient(conn), "t1")
	c.open("r1")

	back := takeAway(t, url)
	await(grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	for _, call := range []func() error{
		func() error { _, err := c.tryAppend(textStart("m")); return err },
		func() error { _, _, err := c.tryStart("r2"); return err },
		func() error { _, _, err := getContext(t.Context(), c.client, "t1"); return err },
	} {
		err := call()
		wantReason(t, err, codes.Unavailable, "DATABASE_UNAVAILABLE")
		checkError(t, err)
	}
	back()
	await(grpc_health_v1.HealthCheckResponse_SERVING)
	c.append(append(text("m", "x"), runFinished("t1", "r1"))...)
	c.stillWorks()
}

// takeAway makes a database unreachable and returns what makes it reachable again.
func takeAway(t *testing.T, url string) (back func()) {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	name := cfg.Database
	cfg.Database = "postgres"
	admin, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	back = sync.OnceFunc(func() {
		if _, err := admin.Exec(context.Background(), `ALTER DATABASE `+name+`_gone RENAME TO `+name); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		back()
		_ = admin.Close(context.Background())
	})
	execSQL(t, admin, `ALTER DATABASE `+name+` ALLOW_CONNECTIONS false`)
	execSQL(t, admin, `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = $1`, name)
	execSQL(t, admin, `ALTER DATABASE `+name+` RENAME TO `+name+`_gone`)
	execSQL(t, admin, `ALTER DATABASE `+name+`_gone ALLOW_CONNECTIONS true`)
	return back
}

func TestServerDescribesItself(t *testing.T) {
	t.Parallel()
	server := startNode(t, openStore(t, storetest.Database(t)), service.Config{})
	stream := must(grpc_reflection_v1.NewServerReflectionClient(connection(t, server.address)).ServerReflectionInfo(t.Context()))(t)
	if err := stream.Send(&grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{},
	}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range must(stream.Recv())(t).GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	if !slices.Contains(names, threadsvcv1.ThreadService_ServiceDesc.ServiceName) || !slices.Contains(names, "grpc.health.v1.Health") {
		t.Errorf("services %q", names)
	}
	_ = stream.CloseSend()
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

func TestRequestBeyondTheLimitDoesNoHarm(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	c.open("r1")
	_, err := c.tryAppend(event("CUSTOM", "name", `"n"`, "value", quote(strings.Repeat("x", 33<<20))))
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("want RESOURCE_EXHAUSTED, got %v", err)
	}
	c.append(runFinished("t1", "r1"))
	c.stillWorks()
}
