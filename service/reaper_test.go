package service_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

const often = 20 * time.Millisecond

// reaping is a server that closes expired runs at once.
func reaping() service.Config { return service.Config{ReapInterval: often, ReapGrace: -1} }

// truncated waits until the run is closed by somebody.
func (c *conversation) truncated(run string) *threadsvcv1.Run {
	c.t.Helper()
	for {
		last := must(c.client.GetThread(c.t.Context(), &threadsvcv1.GetThreadRequest{Thread: threadName(c.thread)}))(c.t).GetThread().GetLastRun()
		if last.GetRunId() != run {
			c.t.Fatalf("the last run is %v, want %s", last, run)
		}
		if last.GetStatus() != threadsvcv1.RunStatus_RUN_STATUS_ACTIVE {
			return c.wantStatus(run, threadsvcv1.RunStatus_RUN_STATUS_TRUNCATED)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// A run whose producer is gone does not stay active: it is closed as truncated without anybody asking, by one of the servers.
func TestRunOfALostProducerIsClosed(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	var sides []*conversation
	for range 3 {
		sides = append(sides, converse(t, serveDatabase(t, url, reaping()), "t1"))
	}
	db := connect(t, url)
	const threads = 20
	for i := range threads {
		c := converse(t, sides[i%3].client, fmt.Sprint("t", i))
		c.open("r1", stateSnapshot(`{"a":1}`), textStart("m1"), textDelta("m1", "par"))
	}
	expireLeases(t, db)
	for i := range threads {
		c := converse(t, sides[(i+1)%3].client, fmt.Sprint("t", i))
		if run := c.truncated("r1"); run.GetEndTime() == nil || run.GetLastVersion() != 6 {
			t.Errorf("thread %d: %v", i, run)
		}
		if marks := c.marks(); !slices.Equal(marks, []string{"RUN_TRUNCATED LEASE_EXPIRED"}) {
			t.Errorf("thread %d: marks %q", i, marks)
		}
		info, input := c.info()
		if !info.GetStateTouchedByIncompleteRun() || input.Messages[0].Content != "par" {
			t.Errorf("thread %d: touched %v, messages %v", i, info.GetStateTouchedByIncompleteRun(), input.Messages)
		}
		c.stillWorks()
	}
}

// The producer that was only slow learns that its run is over, whichever server it talks to.
func TestProducerOfAReapedRunIsRefused(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	first := converse(t, serveDatabase(t, url, service.Config{ReapInterval: -1}), "t1")
	first.open("r1", textStart("m"))
	expireLeases(t, connect(t, url))
	second := converse(t, serveDatabase(t, url, reaping()), "t1")
	second.truncated("r1")
	for _, side := range []*conversation{first, second} {
		for _, events := range [][]string{{textDelta("m", "late")}, nil} {
			_, err := appendBatch(t.Context(), side.client, first.run, 2, events...)
			if reason, meta := reasonOf(err); reason != "RUN_CLOSED" || meta["status"] != "TRUNCATED" {
				t.Errorf("a late batch: %v %s", err, detailsOf(err))
			}
		}
	}
	first.stillWorks()
}

// As long as a heartbeat comes the run is not closed, and closing can be switched off.
func TestRunsThatAreNotClosed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		interval time.Duration
		prepare  func(c *conversation, db *pgx.Conn)
	}{
		"with a lease":           {often, func(*conversation, *pgx.Conn) {}},
		"without a reaper":       {-1, func(c *conversation, db *pgx.Conn) { expireLeases(c.t, db) }},
		"that are over":          {often, func(c *conversation, _ *pgx.Conn) { c.append(runFinished("t1", "r1")) }},
		"that wait for a person": {often, func(c *conversation, _ *pgx.Conn) { c.append(interrupted("t1", "r1", "i1")) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, db := ownDatabase(t, service.Config{ReapInterval: tc.interval, ReapGrace: -1})
			c.open("r1")
			tc.prepare(c, db)
			// Another thread, whose run is closed by hand or by the reaper, says that several rounds have passed.
			other := converse(t, c.client, "t2")
			for range 3 {
				run := fmt.Sprint("r", time.Now().UnixNano())
				other.open(run)
				if tc.interval < 0 {
					other.end(run, "")
					continue
				}
				execSQL(t, db, `UPDATE threads SET lease_expires_at = now() - interval '1 second' WHERE thread_id = 't2'`)
				other.truncated(run)
			}
			if marks := c.marks(); len(marks) > 0 {
				t.Errorf("marks %q", marks)
			}
		})
	}
}

// A thread that cannot be loaded keeps none of the others from being closed, be there ever so many before them.
func TestUnreadableThreadsDoNotStopTheReaper(t *testing.T) {
	t.Parallel()
	c, db := ownDatabase(t, reaping())
	const broken = 70 // more than a page
	for i := range broken {
		bad := converse(t, c.client, fmt.Sprint("bad", i))
		bad.record("r1", stateSnapshot(`"hunter2"`))
		bad.open("r2")
	}
	execSQL(t, db, `UPDATE states SET codec = 4, doc = '\xff'`)
	c.open("r1", textStart("m"))
	execSQL(t, db, `UPDATE threads SET lease_expires_at = now() - interval '1 hour', version = version + 1 WHERE thread_id LIKE 'bad%'`)
	expireGood := `UPDATE threads SET lease_expires_at = now() - interval '1 second' WHERE thread_id = 't1'`
	execSQL(t, db, expireGood)
	c.truncated("r1")
	var active int
	if err := db.QueryRow(t.Context(), `SELECT count(*) FROM threads WHERE active_run IS NOT NULL`).Scan(&active); err != nil || active != broken {
		t.Errorf("%d runs are active (%v), want the %d that cannot be read", active, err, broken)
	}
	c.stillWorks()
}

// awayStore is a store that fails to be asked for expired leases, once, and notes when it is asked.
type awayStore struct {
	store.Store
	asked chan time.Time
	times int
}

func (s *awayStore) Expired(ctx context.Context, after store.ExpiredLease, limit int) ([]store.ExpiredLease, error) {
	if s.times++; s.times <= cap(s.asked) {
		s.asked <- time.Now()
	}
	if s.times == 1 {
		return nil, store.ErrUnavailable
	}
	return s.Store.Expired(ctx, after, limit)
}

// After a start, and after the database was away, producers have time to come back before runs whose leases have ended
// meanwhile are closed.
func TestProducersMayComeBackAfterAnOutage(t *testing.T) {
	t.Parallel()
	const grace = 300 * time.Millisecond
	url := storetest.Database(t)
	away := &awayStore{Store: openStore(t, url), asked: make(chan time.Time, 2)}
	started := time.Now()
	c := converse(t, dial(t, startNode(t, away, service.Config{ReapInterval: often, ReapGrace: grace}).address), "t1")
	first, second := <-away.asked, <-away.asked
	if first.Sub(started) < grace || second.Sub(first) < grace {
		t.Errorf("asked %v after the start and again %v after a failure, want at least %v", first.Sub(started), second.Sub(first), grace)
	}
	c.open("r1")
	expireLeases(t, connect(t, url))
	c.truncated("r1")
	c.stillWorks()
}

// Who follows a log, or reads it, sees how the run ended as an ordinary entry of it.
func TestLogTellsOfAReapedRun(t *testing.T) {
	t.Parallel()
	c, db := ownDatabase(t, reaping())
	c.open("r1")
	expireLeases(t, db)
	run := c.truncated("r1")
	log := c.log()
	last := log[len(log)-1]
	if last.GetKind() != threadsvcv1.EntryKind_ENTRY_KIND_MARK || last.GetVersion() != run.GetLastVersion() || last.GetRunId() != "r1" || last.GetCommitTime() == nil {
		t.Errorf("the last entry is %v", last)
	}
}
