package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
	"github.com/threadsvc/threadsvc/store/yardstick"
)

func TestMain(m *testing.M) { storetest.Main(m) }

func noComplaints() string { return "" }

// launchHere serves within the test's process.
func launchHere(ctx context.Context, databaseURL string, _ []string) (*node, error) {
	db, err := store.Open(ctx, store.Options{URL: databaseURL, MaxConns: 8})
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := service.New(db, service.Config{})
	ctx, cancel := context.WithCancel(ctx)
	served := make(chan error, 1)
	server := service.NewServer(s, service.ServerConfig{DrainTimeout: 5 * time.Second})
	go func() { served <- server.Serve(ctx, listener) }()
	stop := func() error {
		cancel()
		err := <-served
		s.Close()
		db.Close()
		return err
	}
	return &node{address: listener.Addr().String(), stop: stop, complaints: noComplaints}, nil
}

// execute runs the command with a few small flags, those given, and a database of the test's own.
func execute(t *testing.T, launch launcher, args ...string) (string, error) {
	t.Helper()
	c := newCommand(launch)
	c.SilenceUsage, c.SilenceErrors = true, true
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&bytes.Buffer{})
	c.SetArgs(append([]string{"--threads=3", "--runs=2", "--tokens=10", "--yardstick-time=30s", "--settle=0s"}, args...))
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

type result struct {
	Repetitions  int
	Measurements []measurement
	Ratios       []struct {
		Label string
		Value float64
	}
}

func TestBenchMeasuresEverything(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	out, err := execute(t, launchHere, "--database-url", url, "--floor", "--naive", "--alone", "--single", "--repeat=2", "--json",
		"--against=batch=1,unacked=1")
	if err != nil {
		t.Fatal(err)
	}
	var got result
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range got.Measurements {
		names = append(names, m.Name)
		if m.Values["events_per_second"] <= 0 || m.Values["wal_per_event"] <= 0 || m.Values["ack_p99_ms"] < m.Values["ack_p50_ms"] {
			t.Errorf("%s: %v", m.Name, m.Values)
		}
	}
	if want := "threadsvc single batch=1,unacked=1 floor naive alone"; strings.Join(names, " ") != want || got.Repetitions != 2 {
		t.Errorf("%d repetitions of %v, want %s", got.Repetitions, names, want)
	}
	// In a run there are 10 tokens, 3 calls of 13, 20 deltas, 4 starts and ends, and the run's own two.
	values := got.Measurements[0].Values
	if values["events"] != 3*2*79 || values["rows_per_run"] <= 0 || values["context_bytes"] < 2048 || values["context_ms"] <= 0 || values["context_select_ms"] <= 0 || values["context_rows_ms"] <= 0 {
		t.Errorf("values %v", values)
	}
	if len(got.Ratios) < 8 {
		t.Errorf("ratios %v", got.Ratios)
	}
	if left := threadsIn(t, url); left != 0 {
		t.Errorf("%d threads were left", left)
	}
}

func threadsIn(t *testing.T, url string) int {
	t.Helper()
	pg, err := store.Open(t.Context(), store.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer pg.Close()
	heads, err := pg.Threads(t.Context(), store.ThreadQuery{Tenant: tenant, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	return len(heads)
}

func TestBenchComparesGrowth(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	out, err := execute(t, launchHere, "--database-url", url, "--growth", "--runs=30", "--snapshots=all", "--json", "--keep")
	if err != nil {
		t.Fatal(err)
	}
	var got result
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if v := got.Measurements[0].Values; v["growth_early"] <= 0 || v["growth_late"] <= 0 {
		t.Errorf("growth %v and %v", v["growth_early"], v["growth_late"])
	}
	if left := threadsIn(t, url); left != 3 {
		t.Errorf("%d threads are left, want 3", left)
	}
}

func TestBenchOnAServerThatRuns(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	n, err := launchHere(context.Background(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.stop() }()
	out, err := execute(t, nil, "--database-url", url, "--address", n.address, "--pace=500", "--batch=10", "--unacked=2")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"events/s", "bare SELECT of its rows", "n/a"} {
		if !strings.Contains(out, part) {
			t.Errorf("%q is missing in\n%s", part, out)
		}
	}
}

func TestWhatFailsEndsTheBenchmark(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	broken := errors.New("broken")
	_, err := execute(t, func(context.Context, string, []string) (*node, error) { return nil, broken }, "--database-url", url)
	if !errors.Is(err, broken) {
		t.Errorf("with a server that does not start: %v", err)
	}
	if _, err := execute(t, launchHere, "--database-url", "postgres://127.0.0.1:1/none?connect_timeout=1"); err == nil {
		t.Error("without a database there is no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := defaultOptions()
	o.DatabaseURL = url
	if _, err := runBench(ctx, &o, launchHere, &bytes.Buffer{}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

// liar answers every batch as it is told.
type liar struct {
	threadsvcv1.UnimplementedThreadServiceServer
	answer func(*threadsvcv1.EventBatch) *threadsvcv1.AppendEventsResponse
}

func (l *liar) AppendEvents(stream threadsvcv1.ThreadService_AppendEventsServer) error {
	for {
		request, err := stream.Recv()
		if err != nil {
			return nil
		}
		if err := stream.Send(l.answer(request.GetBatch())); err != nil {
			return err
		}
	}
}

func (l *liar) GetThread(context.Context, *threadsvcv1.GetThreadRequest) (*threadsvcv1.GetThreadResponse, error) {
	return &threadsvcv1.GetThreadResponse{Thread: &threadsvcv1.Thread{Version: 1}}, nil
}

func TestFalseAnswersAreFound(t *testing.T) {
	t.Parallel()
	progress := func(next uint64, warnings ...*threadsvcv1.Warning) *threadsvcv1.AppendEventsResponse {
		return &threadsvcv1.AppendEventsResponse{Progress: &threadsvcv1.Progress{NextOffset: next, Version: next, Warnings: warnings}}
	}
	for _, c := range []struct {
		want   string
		answer func(*threadsvcv1.EventBatch) *threadsvcv1.AppendEventsResponse
	}{
		{"is acknowledged, want", func(b *threadsvcv1.EventBatch) *threadsvcv1.AppendEventsResponse { return progress(b.GetOffset()) }},
		{"unexpected warning", func(b *threadsvcv1.EventBatch) *threadsvcv1.AppendEventsResponse {
			return progress(b.GetOffset()+uint64(len(b.GetEvents())), &threadsvcv1.Warning{Code: "X"})
		}},
		{"has version 1, but", func(b *threadsvcv1.EventBatch) *threadsvcv1.AppendEventsResponse {
			return progress(b.GetOffset() + uint64(len(b.GetEvents())))
		}},
	} {
		t.Run(c.want, func(t *testing.T) {
			t.Parallel()
			url := storetest.Database(t)
			address := serveLiar(t, &liar{answer: c.answer})
			_, err := execute(t, nil, "--database-url", url, "--address", address)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func serveLiar(t *testing.T, l *liar) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	threadsvcv1.RegisterThreadServiceServer(server, l)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return listener.Addr().String()
}

func TestSingleSplitsBatches(t *testing.T) {
	t.Parallel()
	batches := single([]yardstick.Batch{{Offset: 5, Events: [][]byte{[]byte("a"), []byte("b")}}, {Offset: 7, Events: [][]byte{[]byte("c")}}})
	if len(batches) != 3 || batches[1].Offset != 6 || string(batches[1].Events[0]) != "b" || batches[2].Offset != 7 {
		t.Errorf("batches %v", batches)
	}
}
