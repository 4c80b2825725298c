package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/threadsvc/threadsvc/client"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/service/servicetest"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

func TestMain(m *testing.M) {
	node, err := servicetest.Serve(storetest.NewMemory(), service.Config{}, "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	exampleAddress = node.Address
	storetest.Main(m)
}

// insecurely is the transport of tests.
var insecurely = grpc.WithTransportCredentials(insecure.NewCredentials())

// dial returns a client of one or several addresses.
func dial(t testing.TB, target string, cfg client.Config, opts ...grpc.DialOption) *client.Client {
	t.Helper()
	c := must(client.Dial(target, cfg, append(opts, insecurely)...))(t)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// counting counts the streams that a client opens.
func counting(streams *atomic.Int64) grpc.DialOption {
	return grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		streams.Add(1)
		return open(ctx, desc, conn, method, opts...)
	})
}

// newClient is a client of a server of the test's own.
func newClient(t testing.TB) *client.Client {
	t.Helper()
	return dial(t, servicetest.New(t, service.Config{}).Address, client.Config{})
}

// restartable is a server that can be stopped and started again at the same address, on the same database.
type restartable struct {
	t       testing.TB
	url     string
	address string
	node    *servicetest.Node
}

func startRestartable(t testing.TB, url string) *restartable {
	t.Helper()
	r := &restartable{t: t, url: url, address: "127.0.0.1:0"}
	r.start()
	t.Cleanup(r.stop)
	return r
}

func (r *restartable) start() {
	r.t.Helper()
	db := must(store.Open(context.Background(), store.Options{URL: r.url, MaxConns: 8}))(r.t)
	r.node = must(servicetest.Serve(db, service.Config{}, r.address))(r.t)
	r.address = r.node.Address
}

func (r *restartable) stop() {
	if r.node == nil {
		return
	}
	if err := r.node.Stop(); err != nil {
		r.t.Errorf("serve: %v", err)
	}
	r.node = nil
}

// proxy forwards connections to a server until they are cut.
type proxy struct {
	address string
	target  atomic.Pointer[string]
	mu      sync.Mutex
	conns   map[net.Conn]bool
	running sync.WaitGroup
}

func startProxy(t testing.TB, target string) *proxy {
	t.Helper()
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	p := &proxy{address: listener.Addr().String(), conns: map[net.Conn]bool{}}
	p.target.Store(&target)
	p.running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			p.running.Go(func() { p.forward(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		p.cut()
		p.running.Wait()
	})
	return p
}

func (p *proxy) forward(conn net.Conn) {
	defer conn.Close()
	server, err := net.Dial("tcp", *p.target.Load())
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	p.conns[conn], p.conns[server] = true, true
	p.mu.Unlock()
	back := make(chan struct{})
	go func() {
		defer close(back)
		_, _ = io.Copy(conn, server)
		_ = conn.Close()
	}()
	_, _ = io.Copy(server, conn)
	_ = server.Close()
	<-back
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
	delete(p.conns, server)
}

// cut breaks every connection.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		_ = conn.Close()
	}
}

// gatedStore is a store whose commits wait while the gate is shut, and fail while told to.
type gatedStore struct {
	store.Store
	gate    sync.RWMutex
	failing atomic.Bool
}

func (s *gatedStore) Commit(ctx context.Context, commits []*store.Commit) []store.Result {
	s.gate.RLock()
	defer s.gate.RUnlock()
	if !s.failing.Load() {
		return s.Store.Commit(ctx, commits)
	}
	results := make([]store.Result, len(commits))
	for i := range results {
		results[i].Err = store.ErrUnavailable
	}
	return results
}

// must gives a result to a test, which fails if there is an error: must(f())(t).
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func threadName(id string) *threadsvcv1.ThreadName {
	return &threadsvcv1.ThreadName{Tenant: "test", ThreadId: id}
}

func request(thread, run string) *threadsvcv1.StartRunRequest {
	return &threadsvcv1.StartRunRequest{Thread: threadName(thread), RunId: run}
}

func runStarted(thread, run string) string {
	return fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":%q}`, thread, run)
}

func runFinished(thread, run string) string {
	return fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":%q,"runId":%q}`, thread, run)
}

func numbered(n int) string { return fmt.Sprintf(`{"type":"CUSTOM","name":"n","value":%d}`, n) }

// append appends events and fails the test if one is not taken.
func appendAll(t testing.TB, w *client.Writer, events ...string) {
	t.Helper()
	for _, event := range events {
		ok(t, w.Append(t.Context(), []byte(event)))
	}
}

// wantEvents fails the test unless the events of a run in the log are the given ones, each once and in order.
func wantEvents(t testing.TB, c *client.Client, thread, run string, want []string) {
	t.Helper()
	var got []string
	version := uint64(0)
	for r, err := range c.ReadLog(t.Context(), threadName(thread), 0) {
		ok(t, err)
		if version++; r.Entry.GetVersion() != version {
			t.Fatalf("version %d came, want %d", r.Entry.GetVersion(), version)
		}
		if r.Entry.GetKind() == threadsvcv1.EntryKind_ENTRY_KIND_EVENT && r.Entry.GetRunId() == run {
			got = append(got, string(r.Entry.GetPayload()))
		}
	}
	if len(got) != len(want) {
		t.Errorf("the log has %d events of %s, want %d", len(got), run, len(want))
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("event %d is %s, want %s", i, got[i], want[i])
		}
	}
}

// wantRefused fails the test unless err is a WriteError with the reason, and returns it.
func wantRefused(t testing.TB, err error, reason threadsvcv1.ErrorReason) *client.WriteError {
	t.Helper()
	var refused *client.WriteError
	if !errors.As(err, &refused) || client.ReasonOf(err) != reason {
		t.Fatalf("error %v with reason %v, want %v", err, client.ReasonOf(err), reason)
	}
	return refused
}

// sizeOf reads a number that an error names.
func sizeOf(t testing.TB, err error, name string) uint64 {
	t.Helper()
	return must(strconv.ParseUint(client.ErrorOf(err).Metadata[name], 10, 64))(t)
}

// eventually waits until something is the case.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for range 3000 {
		if is() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("never: " + what)
}

// sse writes events as a text/event-stream.
func sse(events ...string) string {
	return "data: " + strings.Join(events, "\n\ndata: ") + "\n\n"
}
