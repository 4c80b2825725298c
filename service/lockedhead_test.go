package service_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/codes"

	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// lockHead holds the lock of a thread's head in a transaction that is not ended, as somebody with psql might.
func lockHead(t *testing.T, db *pgx.Conn, thread string) pgx.Tx {
	t.Helper()
	tx := must(db.Begin(t.Context()))(t)
	if tag := must(tx.Exec(t.Context(), `SELECT 1 FROM threads WHERE thread_id = $1 FOR UPDATE`, thread))(t); tag.RowsAffected() != 1 {
		t.Fatalf("%d heads are locked", tag.RowsAffected())
	}
	return tx
}

// A thread whose head is locked for long holds up no other thread, whatever group it is committed with; its own append is
// acknowledged once the lock is gone.
func TestLockedHeadHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	rpc := serveDatabase(t, url, service.Config{Committers: 1, StoreTimeout: time.Minute})
	db := connect(t, url)
	var all []*conversation
	for i := range 21 {
		c := converse(t, rpc, fmt.Sprint("t", i))
		c.open("r1", textStart("m"))
		all = append(all, c)
	}
	tx := lockHead(t, db, "t0")
	locked := make(chan error, 1)
	go func() {
		_, err := all[0].tryAppend(textDelta("m", "late"))
		locked <- err
	}()
	var others sync.WaitGroup
	for _, c := range all[1:] {
		others.Go(func() {
			for range 10 { // in many groups, all with the locked one in line
				if _, err := c.tryAppend(textDelta("m", "x")); err != nil {
					t.Errorf("%s: %v", c.thread, err)
				}
			}
		})
	}
	others.Wait()
	created := converse(t, rpc, "fresh") // a transaction of several statements
	created.record("r1", text("m", "hello")...)
	if got := all[0].context().Messages[0].Content; got != "" {
		t.Errorf("a reader is shown %q, which is not committed", got)
	}
	select {
	case err := <-locked:
		t.Fatalf("the locked thread's append ended with %v", err)
	default:
	}
	ok(t, tx.Rollback(t.Context()))
	ok(t, <-locked)
	all[0].append(textDelta("m", "!"))
	if got := all[0].context().Messages[0].Content; got != "late!" {
		t.Errorf("content %q", got)
	}
}

// An append that waits for a lock in vain is refused in time, with a status that says to send again.
func TestLockedHeadForTooLong(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	c := converse(t, serveDatabase(t, url, service.Config{StoreTimeout: 300 * time.Millisecond}), "t1")
	c.open("r1", textStart("m"))
	tx := lockHead(t, connect(t, url), "t1")
	_, err := c.tryAppend(textDelta("m", "x"))
	wantReason(t, err, codes.Unavailable, "DATABASE_UNAVAILABLE")

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = appendBatch(ctx, c.client, c.run, c.offset, textDelta("m", "x"))
	wantDeadline(t, err)
	ok(t, tx.Rollback(t.Context()))
	c.append(textDelta("m", "x"))
	c.append(textEnd("m"), runFinished("t1", "r1"))
	if got := c.context().Messages[0].Content; got != "x" {
		t.Errorf("content %q", got)
	}
}
