package service_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// Many threads are followed on one server while they are written by way of another: every follower sees every entry, and no
// notification is sent by the database, whose lock would put all commits of the database in one row.
func TestManyTailsSeeEveryEntryWithoutNotifications(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	cfg := service.Config{LeaseTTL: time.Hour} // no lease may end while the machine is slow: that is an entry
	writer := serveDatabase(t, url, cfg)
	reading := startNode(t, openStore(t, url), cfg).address
	readers := []threadsvcv1.ThreadServiceClient{dial(t, reading), dial(t, reading)}
	threads, rounds := 500, 5
	if testing.Short() {
		threads = 50
	}
	listener := connect(t, url) // what is sent stays in the queue while a listener does not look
	execSQL(t, listener, `LISTEN anything`)
	execSQL(t, listener, `BEGIN`)
	execSQL(t, listener, `SELECT 1`)

	var following, all sync.WaitGroup
	following.Add(threads)
	var written []*conversation
	for i := range threads {
		c := converse(t, writer, fmt.Sprint("t", i))
		c.start("r1")
		c.append(runStarted(c.thread, "r1"))
		written = append(written, c)
		all.Go(func() {
			r, err := follow(t.Context(), readers[i%2], c.thread, 1)
			for err == nil && len(r.caughtUp) == 0 {
				err = r.receive()
			}
			following.Done()
			if err == nil {
				err = r.until(uint64(2 + rounds))
			}
			if err != nil || len(r.entries) != 2+rounds {
				t.Errorf("%s: %v, %d entries", c.thread, err, len(r.entries))
			}
		})
	}
	following.Wait()
	const producers = 8 // each appends to some of the threads, round by round
	for i := range producers {
		all.Go(func() {
			for range rounds {
				for n := i; n < threads; n += producers {
					if _, err := written[n].tryAppend(event("CUSTOM", "name", `"n"`, "value", "1")); err != nil {
						t.Error(err, detailsOf(err))
					}
				}
			}
		})
	}
	all.Wait()

	usage := func() (used float64) {
		t.Helper()
		if err := listener.QueryRow(t.Context(), `SELECT pg_notification_queue_usage()`).Scan(&used); err != nil {
			t.Fatal(err)
		}
		return used
	}
	if used := usage(); used != 0 {
		t.Errorf("notifications were sent: %g of the queue is used", used)
	}
	execSQL(t, connect(t, url), `SELECT pg_notify('anything', n::text) FROM generate_series(1, 2500) n`)
	if usage() == 0 {
		t.Error("notifications would not have been noticed")
	}
}

// A commit that hangs in the database keeps every later one of its thread waiting, whoever makes it: no reader passes a
// version whose own commit is not done. Other threads go on.
func TestNoReaderPassesAVersionThatIsNotCommitted(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	slow, other := converse(t, serveDatabase(t, url, service.Config{}), "t1"), converse(t, serveDatabase(t, url, service.Config{}), "t1")
	slow.open("r1", textStart("m"))
	version := uint64(len(slow.log()))
	reader := other.follow(1)
	other.until(reader, version)

	db := connect(t, url)
	execSQL(t, db, `BEGIN`)
	execSQL(t, db, `LOCK TABLE warnings IN SHARE MODE`) // which is written after the head
	var both sync.WaitGroup
	both.Go(func() { slow.append(event("OF_THE_FUTURE")) })
	watch := connect(t, url)
	for deadline, count := time.Now().Add(time.Minute), 0; count == 0; time.Sleep(10 * time.Millisecond) {
		err := watch.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&count)
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the first commit does not wait: %v", err)
		}
	}
	second := make(chan uint64, 1)
	both.Go(func() { second <- other.amend("a1", note("n")).GetVersion() })
	select {
	case v := <-second:
		t.Fatalf("the second commit does not wait, and makes version %d", v)
	case <-time.After(500 * time.Millisecond): // however fast it is, it must not be done
	}
	for _, c := range []*conversation{slow, other} {
		if got := uint64(len(c.log())); got != version {
			t.Errorf("a reader has version %d, before what comes after version %d was committed", got, version)
		}
	}
	beside := converse(t, other.client, "t2")
	beside.record("r1", text("m", "goes on")...)
	_, err := converse(t, other.client, "t3").tryAmend("a", note("n"))
	wantReason(t, err, codes.NotFound, "THREAD_NOT_FOUND")
	execSQL(t, db, `COMMIT`)
	both.Wait()
	other.until(reader, version+2)
	log := other.log()
	if err, v := reader.same(log), <-second; err != nil || v != version+2 || len(reader.caughtUp) == 0 {
		t.Errorf("%v; the second commit is version %d, want %d", err, v, version+2)
	}
	if got := []string{log[version].GetRunId(), log[version+1].GetRunId()}; !slices.Equal(got, []string{"r1", ""}) {
		t.Errorf("runs %q", got)
	}
}
