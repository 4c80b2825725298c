package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// serving waits until a server serves, and returns its address.
func (p *program) serving() string {
	p.t.Helper()
	p.await(&p.stderr, `"`+msgServing+`"`)
	for line := range strings.Lines(p.stderr.String()) {
		var record struct{ Msg, Address string }
		if json.Unmarshal([]byte(line), &record) == nil && record.Msg == msgServing {
			return record.Address
		}
	}
	p.t.Fatalf("no address in %s", &p.stderr)
	return ""
}

// stopped ends a server by SIGTERM and fails the test if that is not in order.
func (p *program) stopped() {
	p.t.Helper()
	must(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	if code := p.wait(); code != 0 {
		p.t.Fatalf("exit code %d after SIGTERM\n%s", code, &p.stderr)
	}
}

func clientOf(t *testing.T, address string) (threadsvcv1.ThreadServiceClient, *grpc.ClientConn) {
	t.Helper()
	conn, client, err := dial(address)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return client, conn
}

var aThread = &threadsvcv1.ThreadName{Tenant: "t", ThreadId: "kept"}

func TestServeKeepsData(t *testing.T) {
	t.Parallel()
	eachAccount(t, func(t *testing.T, a account) {
		dir := a.ownDir(t)
		args := []string{"serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--data-dir", filepath.Join(dir, "data")}
		first := a.start(t, dir, nil, args...)
		client, _ := clientOf(t, first.serving())
		_, err := client.CreateThread(t.Context(), &threadsvcv1.CreateThreadRequest{Thread: aThread, State: []byte(`{"n":1.10}`)})
		must(t, err)
		first.stopped()
		wantOutput(t, first.stderr.String(), `"draining"`, `"stopped"`, filepath.Join(dir, "data"))

		second := a.start(t, dir, nil, args...)
		client, conn := clientOf(t, second.serving())
		input, err := readContext(t.Context(), client, aThread)
		must(t, err)
		wantOutput(t, string(input), `"state":{"n":1.10}`)
		health := grpc_health_v1.NewHealthClient(conn)
		eventually(t, func() bool {
			resp, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
			return err == nil && resp.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING
		})
		second.stopped()
	})
}

// The place of the data comes from the environment when no flag names one.
func TestServeByEnvironment(t *testing.T) {
	t.Parallel()
	env := []string{"THREADSVC_DATABASE_URL=" + storetest.Database(t), "THREADSVC_LISTEN=127.0.0.1:0", "THREADSVC_LOG_FORMAT=json",
		"THREADSVC_LEASE_TTL=90s"}
	p := account{}.start(t, os.TempDir(), env, "serve")
	client, _ := clientOf(t, p.serving())
	start, _, err := startRun(t.Context(), client, &threadsvcv1.StartRunRequest{Thread: aThread, RunId: "r"})
	must(t, err)
	resp, err := client.GetThread(t.Context(), &threadsvcv1.GetThreadRequest{Thread: aThread})
	must(t, err)
	lease := start.GetLease().GetExpiresAt().AsTime().Sub(resp.GetThread().GetLastRunTime().AsTime())
	if lease.Seconds() < 89 || lease.Seconds() > 91 {
		t.Errorf("the lease lasts %v, want 90s", lease)
	}
	p.stopped()
}

// Servers that start at once on an empty database bring it up to date together.
func TestServersStartAtOnce(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	if code, _, stderr := execute(t, nil, "migrate", "down", "--steps", "1", "--database-url", url); code != 0 {
		t.Fatal(stderr)
	}
	var servers []*program
	for range 3 {
		servers = append(servers, account{}.start(t, os.TempDir(), nil,
			"serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--database-url", url, "--max-conns", "4"))
	}
	for i, p := range servers {
		client, _ := clientOf(t, p.serving())
		_, err := client.CreateThread(t.Context(), &threadsvcv1.CreateThreadRequest{
			Thread: &threadsvcv1.ThreadName{ThreadId: fmt.Sprint(i)},
		})
		must(t, err)
		p.stopped()
	}
}

// A server whose private Postgres ends cannot go on, and says so.
func TestServeEndsWithItsPostgres(t *testing.T) {
	t.Parallel()
	dir := account{}.ownDir(t)
	data := filepath.Join(dir, "data")
	p := account{}.start(t, dir, nil, "serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--data-dir", data)
	p.serving()
	var postmaster int
	text, err := os.ReadFile(filepath.Join(data, "data", "postmaster.pid"))
	must(t, err)
	_, err = fmt.Sscan(string(text), &postmaster)
	must(t, err)
	must(t, syscall.Kill(postmaster, syscall.SIGQUIT))
	if code := p.wait(); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	wantOutput(t, p.stderr.String(), "threadsvc: the private Postgres ended; "+filepath.Join(data, "postgres.log")+" says why\n")
}

// A call that is under way when the server is told to stop is still answered.
func TestServeDrains(t *testing.T) {
	t.Parallel()
	p := account{}.start(t, os.TempDir(), nil,
		"serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--database-url", storetest.Database(t))
	client, _ := clientOf(t, p.serving())
	start, _, err := startRun(t.Context(), client, &threadsvcv1.StartRunRequest{Thread: aThread, RunId: "r"})
	must(t, err)
	run := &producer{
		events: asBytes([]string{`{"type":"RUN_STARTED","threadId":"kept","runId":"r"}`}),
		run:    &threadsvcv1.RunHandle{Thread: aThread, RunId: "r", FencingToken: start.GetLease().GetFencingToken()},
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := run.open(ctx, client)
	must(t, err)
	must(t, run.play(stream, 1))
	must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	_, err = stream.Recv() // the stream is idle: the server ends it
	if reason, _ := reasonOf(err); reason != "SHUTTING_DOWN" {
		t.Errorf("the stream ended with %v", err)
	}
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d\n%s", code, &p.stderr)
	}
}

func TestServeErrors(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	dir := account{}.ownDir(t)
	must(t, os.WriteFile(filepath.Join(dir, "letter"), nil, 0o600))
	for name, c := range map[string]struct {
		env, args []string
		code      int
		want      string
	}{
		"port taken":         {nil, []string{"--listen", taken.Addr().String()}, exitFailed, taken.Addr().String() + " is taken by another program"},
		"no port":            {nil, []string{"--listen", "nowhere"}, exitFailed, `cannot listen on "nowhere"`},
		"URL malformed":      {nil, []string{"--database-url", "postgres://u:secret@h:port/d"}, exitFailed, "invalid port"},
		"database away":      {nil, []string{"--database-url", "postgres://u:secret@127.0.0.1:1/d"}, exitFailed, "database 127.0.0.1:1/d: store: the database is unavailable"},
		"away, not migrated": {nil, []string{"--migrate=false", "--database-url", "host=127.0.0.1 port=1 password=secret"}, exitFailed, "unavailable"},
		"no Postgres":        {[]string{"THREADSVC_PG_BIN=/nowhere"}, []string{"--data-dir", filepath.Join(dir, "new")}, exitFailed, "no PostgreSQL server programs"},
		"foreign directory":  {nil, []string{"--data-dir", dir}, exitFailed, "holds other files"},
		"unknown flag":       {nil, []string{"--nope"}, exitUsage, "See 'threadsvc serve --help'."},
		"argument":           {nil, []string{"now"}, exitUsage, "See 'threadsvc serve --help'."},
		"environment":        {[]string{"THREADSVC_MAX_CONNS=many"}, nil, exitUsage, "environment variable THREADSVC_MAX_CONNS"},
		"size":               {nil, []string{"--max-event-bytes", "4XB"}, exitUsage, "want a number of bytes"},
		"size beyond":        {nil, []string{"--max-event-bytes", "2GiB"}, exitUsage, "at most 1GiB"},
		"connections":        {nil, []string{"--max-conns", "0"}, exitUsage, "--max-conns is 0"},
		"lease":              {nil, []string{"--lease-ttl", "2h"}, exitUsage, "--lease-ttl is 2h0m0s"},
		"drain":              {nil, []string{"--drain-timeout", "-1s"}, exitUsage, "--drain-timeout is -1s"},
		"log format":         {nil, []string{"--log-format", "xml"}, exitUsage, "want one of text, json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"serve", "--log-level", "error"}, c.args...)
			if !slices.Contains(args, "--listen") {
				args = append(args, "--listen", "127.0.0.1:0")
			}
			if !slices.Contains(args, "--data-dir") { // never the machine's own
				args = append(args, "--data-dir", filepath.Join(dir, "never"))
			}
			code, stdout, stderr := execute(t, c.env, args...)
			if code != c.code || stdout != "" {
				t.Errorf("exit code %d, want %d; standard output %q", code, c.code, stdout)
			}
			wantOutput(t, stderr, c.want)
			if strings.Contains(stderr, "secret") || strings.Contains(stderr, "goroutine") || strings.Count(stderr, "\n") > 2 {
				t.Errorf("not a clear error:\n%s", stderr)
			}
		})
	}
}
