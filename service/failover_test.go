package service_test

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/embedded"
)

// pair is a primary and its synchronous standby.
type pair struct {
	primary, standby *embedded.Server
}

// startPair starts two Postgres servers with a migrated database.
func startPair(t *testing.T) *pair {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	p := &pair{}
	p.primary = startMember(ctx, t, nil)
	ok(t, p.primary.CreateDatabase(ctx, crashDatabase))
	ok(t, store.Migrate(ctx, p.primary.URL(crashDatabase)))
	p.standby = startMember(ctx, t, p.primary)
	ok(t, p.primary.Synchronous(ctx))
	return p
}

func startMember(ctx context.Context, t *testing.T, of *embedded.Server) *embedded.Server {
	t.Helper()
	dir := must(os.MkdirTemp("", "failover-test-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ok(t, os.Chmod(dir, 0o755))
	server := must(embedded.Start(ctx, embedded.Options{
		Dir: filepath.Join(dir, "db"), StandbyOf: of, NoSync: true, Settings: map[string]string{"synchronous_commit": "on"},
	}))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := server.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return server
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// url names both servers, the primary first.
func (p *pair) url(t *testing.T) string {
	t.Helper()
	u := must(url.Parse(p.primary.URL(crashDatabase)))(t)
	query := u.Query()
	other := must(url.Parse(p.standby.URL(crashDatabase)))(t).Query()
	query.Set("host", query.Get("host")+","+other.Get("host"))
	query.Set("port", query.Get("port")+","+other.Get("port"))
	u.RawQuery = query.Encode()
	return u.String()
}

// fail kills the primary and everything of it, and makes the standby the primary.
func (p *pair) fail(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ok(t, syscall.Kill(p.primary.PID(), syscall.SIGKILL)) // its backends find out and end by themselves
	ok(t, p.primary.Crash(ctx))
	ok(t, p.standby.Promote(ctx))
}

// The primary is killed under load and its synchronous standby promoted. Nobody tells the servers or the clients, and
// every event is there once. When the former primary comes back read-only, nothing is sent to it.
func TestFailover(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a while")
	}
	t.Parallel()
	p := startPair(t)
	var addresses []string
	for range 2 {
		addresses = append(addresses, startProcess(t, p.url(t)).address)
	}
	as := startAgents(t, addresses, 6)
	as.progress(60)
	as.longestGap()
	p.fail(t)
	as.progress(60)
	gap := as.longestGap()

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ok(t, p.primary.Demote())
	ok(t, p.primary.Restart(ctx))
	terminateAll(t, p.standby.URL(crashDatabase)) // so that connections are made anew, with the former primary first in the URL
	as.progress(60)
	as.stop()
	lost, doubled := as.check(dial(t, addresses[0]))
	t.Logf("failover: %d clients, %d events acked, %d lost, %d doubled, gap %.1f s", len(as.all), as.acked.Load(), lost, doubled, gap.Seconds())
}

// terminateAll ends all connections of a database, as an administrator may at any time.
func terminateAll(t testing.TB, url string) {
	t.Helper()
	conn := must(pgx.Connect(t.Context(), url))(t)
	defer func() { _ = conn.Close(context.Background()) }()
	execSQL(t, conn, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid()`)
}
