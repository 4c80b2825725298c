package service_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
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

// A server that stops while a thread's head is locked ends its streams in time: what was sent is acknowledged or refused, in
// band, and the last word is to go elsewhere. Nor does a writer of metadata keep it.
func TestServerStopsWhileAHeadIsLocked(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	node := startNode(t, openStore(t, url), service.Config{StoreTimeout: time.Minute})
	c := converse(t, dial(t, node.address), "t1")
	c.open("r1", textStart("m"))
	other := converse(t, c.client, "t2")
	other.open("r1", textStart("m"))
	p, free := c.produce(), other.produce()
	tx := lockHead(t, connect(t, url), "t1")
	p.send(c.offset, textDelta("m", "x"))
	p.send(c.offset+1, textDelta("m", "y"))
	free.send(other.offset, textDelta("m", "x"))
	if _, err := free.ack(); err != nil {
		t.Fatal(err)
	}
	updated := make(chan error, 1)
	go func() {
		_, err := c.client.UpdateThread(t.Context(), &threadsvcv1.UpdateThreadRequest{Thread: threadName("t1"), MetadataPatch: []byte(`{"a":1}`)})
		updated <- err
	}()
	time.Sleep(50 * time.Millisecond)
	stopped := make(chan error, 1)
	go func() { stopped <- node.stop() }()
	refused := 0
	for {
		resp, err := p.stream.Recv()
		if err != nil {
			wantReason(t, err, codes.Unavailable, "SHUTTING_DOWN")
			break
		}
		if resp.GetProgress() != nil {
			t.Error("acknowledged")
		}
		wantReason(t, status.FromProto(resp.GetError()).Err(), codes.Unavailable, "SHUTTING_DOWN")
		refused++
	}
	if refused != 2 {
		t.Errorf("%d batches were refused in band", refused)
	}
	_, err := free.stream.Recv()
	wantReason(t, err, codes.Unavailable, "SHUTTING_DOWN")
	wantReason(t, <-updated, codes.Unavailable, "SHUTTING_DOWN")
	ok(t, <-stopped)
	ok(t, tx.Rollback(t.Context()))
	c.client = serveDatabase(t, url, service.Config{})
	if events := c.events("r1"); len(events) != 2 {
		t.Errorf("the log has %q", events)
	}
	c.append(textDelta("m", "x"))
}
