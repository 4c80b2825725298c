package service_test

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/service/servicetest"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// throughProxy puts a proxy between a database and those who use the URL that is returned.
func throughProxy(t *testing.T, direct string) (proxied string, proxy *faultyProxy) {
	t.Helper()
	u := must(url.Parse(direct))(t)
	proxy = startProxy(t, "unix", u.Query().Get("host")+"/.s.PGSQL."+u.Query().Get("port"))
	through := url.URL{Scheme: u.Scheme, User: u.User, Host: proxy.address(), Path: u.Path, RawQuery: "sslmode=disable&connect_timeout=1"}
	return through.String(), proxy
}

func wantDeadline(t *testing.T, err error) {
	t.Helper()
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("error %v %s, want DEADLINE_EXCEEDED", err, detailsOf(err))
	}
}

// syncBuffer is a log that is read while it is written.
type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// readiness is a server, and what its readiness says.
type readiness struct {
	t      *testing.T
	log    *syncBuffer
	health grpc_health_v1.HealthClient
	rpc    threadsvcv1.ThreadServiceClient
}

func watchReadiness(t *testing.T, url string) *readiness {
	t.Helper()
	r := &readiness{t: t, log: &syncBuffer{}}
	node := servicetest.Start(t, openStore(t, url), service.Config{StoreTimeout: time.Second, Logger: textLogger(r.log)})
	conn := connection(t, node.Address)
	r.health, r.rpc = grpc_health_v1.NewHealthClient(conn), threadsvcv1.NewThreadServiceClient(conn)
	return r
}

// await waits until readiness is so, for the server and for each of its services.
func (r *readiness) await(want grpc_health_v1.HealthCheckResponse_ServingStatus) {
	r.t.Helper()
	for _, name := range []string{"", threadsvcv1.ThreadService_ServiceDesc.ServiceName, threadsvcv1.HistoryService_ServiceDesc.ServiceName} {
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			resp, err := r.health.Check(r.t.Context(), &grpc_health_v1.HealthCheckRequest{Service: name})
			if err == nil && resp.GetStatus() == want {
				break
			}
			if time.Now().After(end) {
				r.t.Fatalf("readiness of %q is %v (%v), want %v\n%s", name, resp, err, want, r.log)
			}
		}
	}
}

func (r *readiness) why(text string) {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); !strings.Contains(r.log.String(), text); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("the log does not say %q:\n%s", text, r.log)
		}
	}
}

const (
	serving    = grpc_health_v1.HealthCheckResponse_SERVING
	notServing = grpc_health_v1.HealthCheckResponse_NOT_SERVING
)

// Readiness goes down when the database is away, or takes no writes any more, says why, and comes back by itself.
func TestReadinessFollowsTheDatabase(t *testing.T) {
	t.Parallel()
	direct := storetest.Database(t)
	proxied, proxy := throughProxy(t, direct)
	r := watchReadiness(t, proxied)
	r.await(serving)
	c := converse(t, r.rpc, "t1")
	c.open("r1", textStart("m"))

	proxy.dig()
	r.await(notServing)
	r.why("not ready")
	r.why("unavailable")
	proxy.fill()
	r.await(serving)
	c.append(textDelta("m", "a"))

	db := connect(t, direct)
	name := must(url.Parse(direct))(t).Path[1:]
	execSQL(t, db, fmt.Sprintf(`ALTER DATABASE %s SET default_transaction_read_only = on`, name))
	terminateAll(t, direct)
	r.await(notServing)
	r.why("read-only")
	_, err := c.tryAppend(textDelta("m", "b"))
	wantReason(t, err, codes.Unavailable, "DATABASE_UNAVAILABLE")
	db = connect(t, direct)
	execSQL(t, db, `SET default_transaction_read_only = off`)
	execSQL(t, db, fmt.Sprintf(`ALTER DATABASE %s RESET default_transaction_read_only`, name))
	terminateAll(t, direct)
	r.await(serving)
	c.append(textDelta("m", "b"), textEnd("m"), runFinished("t1", "r1"))
	c.stillWorks()
}

// The packets between the server and its database are swallowed, then all its connections ended: calls fail by their
// deadline, none hangs, and the pool heals.
func TestDatabaseSocketSwallowsEverything(t *testing.T) {
	t.Parallel()
	direct := storetest.Database(t)
	proxied, proxy := throughProxy(t, direct)
	rpc := dial(t, startNode(t, openStore(t, proxied), service.Config{StoreTimeout: time.Second}).address)
	c := converse(t, rpc, "t1")
	c.open("r1", textStart("m"))

	proxy.dig()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	_, err := appendBatch(ctx, rpc, c.run, c.offset, textDelta("m", "a"))
	cancel()
	wantDeadline(t, err)
	_, err = c.tryAppend(textDelta("m", "a")) // without a deadline of the caller's: the server's own
	wantReason(t, err, codes.Unavailable, "DATABASE_UNAVAILABLE")
	_, _, err = getContext(t.Context(), rpc, "another")
	wantReason(t, err, codes.Unavailable, "DATABASE_UNAVAILABLE")
	proxy.fill()
	c.eventually(textDelta("m", "a"))

	for i := range 5 {
		terminateAll(t, direct)
		c.eventually(textDelta("m", fmt.Sprint(i)))
	}
	c.append(textEnd("m"), runFinished("t1", "r1"))
	if got := c.context().Messages[0].Content; got != "a01234" {
		t.Errorf("content %q", got)
	}
	c.stillWorks()
}

// eventually sends an event again while the database is said to be away.
func (c *conversation) eventually(event string) {
	c.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		_, err := c.tryAppend(event)
		if err == nil {
			return
		}
		wantReason(c.t, err, codes.Unavailable, "DATABASE_UNAVAILABLE")
		if time.Now().After(end) {
			c.t.Fatal("the pool does not heal")
		}
	}
}

// A writer that is stuck behind a lock keeps no reader waiting, of their own thread or another.
func TestReadsBesideAStuckWriter(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	rpc := serveDatabase(t, url, service.Config{StoreTimeout: time.Minute, Reads: 2})
	c := converse(t, rpc, "t1")
	c.record("r1", text("m", "hello")...)
	tx := lockHead(t, connect(t, url), "t1")
	ctx, cancel := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	writers.Go(func() {
		_, _ = rpc.UpdateThread(ctx, &threadsvcv1.UpdateThreadRequest{Thread: threadName("t1"), MetadataPatch: []byte(`{"a":1}`)})
	})
	time.Sleep(50 * time.Millisecond)
	for range 10 {
		soon, done := context.WithTimeout(t.Context(), 20*time.Second)
		if _, _, err := getContext(soon, rpc, "t1"); err != nil {
			t.Error(err, detailsOf(err))
		}
		if _, _, err := readLog(soon, rpc, "t1", 0); err != nil {
			t.Error(err, detailsOf(err))
		}
		done()
	}
	other := converse(t, rpc, "t2")
	other.record("r1", text("m", "hello")...)
	cancel()
	writers.Wait()
	ok(t, tx.Rollback(t.Context()))
	c.stillWorks()
}
