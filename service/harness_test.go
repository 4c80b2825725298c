package service_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/service/servicetest"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// newServer serves a database of the test's own within the test's process, and returns a client.
func newServer(t testing.TB, cfg service.Config) threadsvcv1.ThreadServiceClient {
	t.Helper()
	return serveDatabase(t, storetest.Database(t), cfg)
}

// serveDatabase adds a server to a database.
func serveDatabase(t testing.TB, url string, cfg service.Config) threadsvcv1.ThreadServiceClient {
	t.Helper()
	return dial(t, startNode(t, openStore(t, url), cfg).address)
}

func openStore(t testing.TB, url string) *store.Postgres { return servicetest.OpenStore(t, url) }

// node is a server within the test's process.
type node struct {
	address string
	service *service.Service
	// stop stops the server and returns what Serve did, when nothing of it runs any more. It is called when the test
	// ends, if it was not before.
	stop func() error
}

// startNode serves a store, which it takes over.
func startNode(t testing.TB, db store.Store, cfg service.Config) *node {
	t.Helper()
	n := servicetest.Start(t, db, cfg)
	return &node{address: n.Address, service: n.Service, stop: n.Stop}
}

func dial(t testing.TB, address string, options ...grpc.DialOption) threadsvcv1.ThreadServiceClient {
	t.Helper()
	return threadsvcv1.NewThreadServiceClient(connection(t, address, options...))
}

func connection(t testing.TB, address string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20), grpc.WaitForReady(true)))
	conn, err := grpc.NewClient(address, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// process is a server in a process of its own, which can be killed.
type process struct {
	t       testing.TB
	url     string
	address string
	cmd     *exec.Cmd

	movable string // the program with a clock that can be moved, if it is that one
	clock   io.Writer
	told    *bufio.Reader
	logged  io.Closer
}

// startProcess starts a server process on a database and waits until it serves.
func startProcess(t testing.TB, url string) *process {
	t.Helper()
	return startProgram(t, url, "")
}

// startProgram is startProcess with a program that buildMovable has built, unless it is empty.
func startProgram(t testing.TB, url, movable string) *process {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, url: url, address: listener.Addr().String(), movable: movable}
	_ = listener.Close()
	p.start()
	t.Cleanup(p.kill)
	return p
}

func (p *process) start() {
	p.t.Helper()
	for range 50 { // the port may not be free at once
		if p.movable != "" {
			if p.startMovable() {
				return
			}
			continue
		}
		p.cmd = exec.Command(os.Args[0])
		p.cmd.Env = append(os.Environ(), envServeDatabase+"="+p.url, envServeAddress+"="+p.address)
		p.cmd.Stderr = os.Stderr
		out, err := p.cmd.StdoutPipe()
		if err != nil {
			p.t.Fatal(err)
		}
		if err := p.cmd.Start(); err != nil {
			p.t.Fatal(err)
		}
		if line, _ := bufio.NewReader(out).ReadString('\n'); line == "serving\n" {
			return
		}
		_ = p.cmd.Wait()
		time.Sleep(20 * time.Millisecond)
	}
	p.t.Fatal("the server process does not serve")
}

// kill ends the process as a crash does.
func (p *process) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	_ = p.cmd.Wait()
	p.cmd = nil
	if p.logged != nil {
		_ = p.logged.Close()
	}
}

func threadName(id string) *threadsvcv1.ThreadName {
	return &threadsvcv1.ThreadName{Tenant: "test", ThreadId: id}
}

func handle(thread, run string, token uint64) *threadsvcv1.RunHandle {
	return &threadsvcv1.RunHandle{Thread: threadName(thread), RunId: run, FencingToken: token}
}

// startRun starts a run and returns the start and the whole RunAgentInput.
func startRun(ctx context.Context, c threadsvcv1.ThreadServiceClient, req *threadsvcv1.StartRunRequest) (*threadsvcv1.RunStart, []byte, error) {
	stream, err := c.StartRun(ctx, req)
	if err != nil {
		return nil, nil, err
	}
	first, err := stream.Recv()
	if err != nil {
		return nil, nil, err
	}
	input, err := readChunks(func() ([]byte, error) {
		msg, err := stream.Recv()
		return msg.GetInputChunk(), err
	})
	return first.GetStart(), input, err
}

func getContext(ctx context.Context, c threadsvcv1.ThreadServiceClient, thread string) (*threadsvcv1.ContextInfo, []byte, error) {
	stream, err := c.GetContext(ctx, &threadsvcv1.GetContextRequest{Thread: threadName(thread)})
	if err != nil {
		return nil, nil, err
	}
	first, err := stream.Recv()
	if err != nil {
		return nil, nil, err
	}
	input, err := readChunks(func() ([]byte, error) {
		msg, err := stream.Recv()
		return msg.GetInputChunk(), err
	})
	return first.GetInfo(), input, err
}

func readChunks(recv func() ([]byte, error)) ([]byte, error) {
	var text []byte
	for {
		chunk, err := recv()
		if errors.Is(err, io.EOF) {
			return text, nil
		}
		if err != nil {
			return nil, err
		}
		text = append(text, chunk...)
	}
}

// appendBatch appends events by AppendBatch.
func appendBatch(ctx context.Context, c threadsvcv1.ThreadServiceClient, run *threadsvcv1.RunHandle, offset uint64, events ...string) (*threadsvcv1.Progress, error) {
	req := &threadsvcv1.AppendBatchRequest{Run: run, Batch: batch(offset, events...)}
	resp, err := c.AppendBatch(ctx, req)
	return resp.GetProgress(), err
}

func batch(offset uint64, events ...string) *threadsvcv1.EventBatch {
	b := &threadsvcv1.EventBatch{Offset: offset}
	for _, event := range events {
		b.Events = append(b.Events, []byte(event))
	}
	return b
}

// readLog reads a thread's log.
func readLog(ctx context.Context, c threadsvcv1.ThreadServiceClient, thread string, from uint64) ([]*threadsvcv1.LogEntry, []*threadsvcv1.UnreadableRange, error) {
	stream, err := c.ReadLog(ctx, &threadsvcv1.ReadLogRequest{Thread: threadName(thread), FromVersion: from})
	if err != nil {
		return nil, nil, err
	}
	var entries []*threadsvcv1.LogEntry
	var unreadable []*threadsvcv1.UnreadableRange
	continues := false
	for {
		msg, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return entries, unreadable, nil
		}
		if err != nil {
			return nil, nil, err
		}
		for _, e := range msg.GetEntries() {
			if continues {
				last := entries[len(entries)-1]
				last.Payload = append(last.Payload, e.GetPayload()...)
			} else {
				entries = append(entries, e)
			}
			continues = e.GetPayloadContinues()
		}
		unreadable = append(unreadable, msg.GetUnreadable()...)
	}
}

// reasonOf returns the reason and the metadata of an error's ErrorInfo.
func reasonOf(err error) (string, map[string]string) {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.GetReason(), info.GetMetadata()
		}
	}
	return "", nil
}

// wantReason fails the test unless err has the code and the reason, and returns its metadata.
func wantReason(t testing.TB, err error, code codes.Code, reason string) map[string]string {
	t.Helper()
	got, meta := reasonOf(err)
	if status.Code(err) != code || got != reason {
		t.Fatalf("error %v with reason %q, want %v with %q", err, got, code, reason)
	}
	return meta
}

// must gives a result to a test, which fails if there is an error: must(f())(t).
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err, detailsOf(err))
		}
		return value
	}
}

func detailsOf(err error) string {
	reason, meta := reasonOf(err)
	return fmt.Sprint(reason, " ", meta)
}
