package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/threadsvc/threadsvc/client"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/service/servicetest"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// follower reads a log in the background and checks that every version comes once and in order.
type follower struct {
	version chan uint64 // the last version that came
	err     chan error
}

func follow(ctx context.Context, c *client.Client, thread string, from uint64) *follower {
	f := &follower{version: make(chan uint64, 100_000), err: make(chan error, 1)}
	go func() {
		f.err <- func() error {
			next := from
			for r, err := range c.Follow(ctx, threadName(thread), from) {
				switch {
				case err != nil:
					return err
				case r.Entry != nil && r.Entry.GetVersion() == next:
					next++
					f.version <- r.Entry.GetVersion()
				case r.CaughtUp != next-1 || r.CaughtUp == 0:
					return fmt.Errorf("%v came, want version %d", r, next)
				}
			}
			return nil
		}()
	}()
	return f
}

// until waits until a version has come.
func (f *follower) until(t testing.TB, version uint64) {
	t.Helper()
	for {
		select {
		case v := <-f.version:
			if v == version {
				return
			}
		case err := <-f.err:
			t.Fatalf("waiting for version %d: %v", version, err)
		}
	}
}

// A log is followed over servers that stop and connections that break: each entry comes once.
func TestFollowGoesOn(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	writes := dial(t, servicetest.Start(t, servicetest.OpenStore(t, url), service.Config{}).Address, client.Config{})
	server := startRestartable(t, url)
	p := startProxy(t, server.address)
	run := must(writes.StartRun(t.Context(), request("t1", "r1")))(t)
	w := run.Write(t.Context(), client.WriterOptions{})
	appendAll(t, w, runStarted("t1", "r1"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := follow(ctx, dial(t, p.address, client.Config{}), "t1", 1)
	first.until(t, 2)
	others := []*follower{}
	for n := range 1000 {
		appendAll(t, w, numbered(n))
		switch {
		case n%400 == 399:
			server.stop()
			server.start()
		case rand.IntN(50) == 0:
			p.cut()
		case n%100 == 0:
			ok(t, w.Flush(t.Context()))
			others = append(others, follow(ctx, dial(t, p.address, client.Config{}), "t1", 1+rand.Uint64N(uint64(n+1))))
		}
	}
	ok(t, w.Close(t.Context()))
	for _, f := range append(others, first) {
		f.until(t, 1002)
	}
	cancel()
	if err := <-first.err; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

// A loop that is too slow for the server is cut off there, and sees everything nevertheless.
func TestSlowLoop(t *testing.T) {
	t.Parallel()
	node := servicetest.New(t, service.Config{ReaderTimeout: 20 * time.Millisecond})
	var streams atomic.Int64
	c := dial(t, node.Address, client.Config{}, counting(&streams), grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(64<<10))
	run := must(c.StartRun(t.Context(), request("t1", "r1")))(t)
	w := run.Write(t.Context(), client.WriterOptions{})
	appendAll(t, w, runStarted("t1", "r1"))
	large := `{"type":"CUSTOM","name":"n","value":"` + strings.Repeat("x", 1<<20) + `"}`
	next := uint64(1)
	for r, err := range c.Follow(t.Context(), threadName("t1"), 0) {
		ok(t, err)
		if r.Entry == nil {
			if next == 1+2+8 {
				break
			}
			appendAll(t, w, large, large, large, large, large, large, large, large)
			continue
		}
		if r.Entry.GetVersion() != next || r.Entry.GetPayloadContinues() || next > 2 && string(r.Entry.GetPayload()) != large {
			t.Fatalf("version %d came with %d bytes, want %d", r.Entry.GetVersion(), len(r.Entry.GetPayload()), next)
		}
		if next++; next == 1+2+8 {
			break
		}
		time.Sleep(60 * time.Millisecond)
	}
	ok(t, w.Close(t.Context()))
	if n := streams.Load(); n < 4 { // of the run, of its writer, and of the reader
		t.Errorf("%d streams: the reader was not cut off", n)
	}
}

func TestReadsWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	c := dial(t, servicetest.Start(t, servicetest.OpenStore(t, url), service.Config{MergeRate: -1}).Address, client.Config{})
	run := must(c.StartRun(t.Context(), request("t1", "r1")))(t)
	w := run.Write(t.Context(), client.WriterOptions{})
	for _, event := range []string{runStarted("t1", "r1"), numbered(1), numbered(2), runFinished("t1", "r1")} {
		appendAll(t, w, event)
		ok(t, w.Flush(t.Context()))
	}
	ok(t, w.Close(t.Context()))
	db := must(pgx.Connect(t.Context(), url))(t)
	must(db.Exec(t.Context(), `UPDATE log_segments SET codec = 1, entries = '\x00' WHERE first_version IN (3, 5)`))(t)
	ok(t, db.Close(t.Context()))
	var got []string
	for r, err := range c.ReadLog(t.Context(), threadName("t1"), 2) {
		ok(t, err)
		if r.Unreadable != nil {
			got = append(got, fmt.Sprint("unreadable ", r.Unreadable.GetFirstVersion()))
		} else {
			got = append(got, fmt.Sprint(r.Entry.GetVersion()))
		}
	}
	if strings.Join(got, ", ") != "2, unreadable 3, 4, unreadable 5" {
		t.Errorf("came %q", got)
	}
}

// Who follows a thread that was deleted does not go on with another one of its name, connected or not.
func TestFollowedThreadIsDeleted(t *testing.T) {
	t.Parallel()
	for _, connected := range []bool{true, false} {
		url := storetest.Database(t)
		c := dial(t, servicetest.Start(t, servicetest.OpenStore(t, url), service.Config{}).Address, client.Config{})
		server := startRestartable(t, url)
		record(t, c, "old")
		f := follow(t.Context(), dial(t, server.address, client.Config{}), "t1", 1)
		f.until(t, 3)
		if !connected {
			server.stop()
		}
		must(c.API().DeleteThread(t.Context(), &threadsvcv1.DeleteThreadRequest{Thread: threadName("t1")}))(t)
		must(c.API().CreateThread(t.Context(), &threadsvcv1.CreateThreadRequest{Thread: threadName("t1"), ReplaceDeleted: true}))(t)
		for i := range 3 {
			record(t, c, fmt.Sprint("new", i))
		}
		if !connected {
			server.start()
		}
		err := <-f.err
		if client.ReasonOf(err) != threadsvcv1.ErrorReason_ERROR_REASON_THREAD_NOT_FOUND || client.ErrorOf(err).Code() != codes.NotFound {
			t.Errorf("connected %v: %v", connected, err)
		}
		if len(f.version) > 0 {
			t.Errorf("connected %v: entries of the new thread came", connected)
		}
	}
}

// record writes a run of two events.
func record(t testing.TB, c *client.Client, id string) {
	t.Helper()
	run := must(c.StartRun(t.Context(), request("t1", id)))(t)
	w := run.Write(t.Context(), client.WriterOptions{})
	ok(t, w.AppendSSE(t.Context(), strings.NewReader(sse(runStarted("t1", id), runFinished("t1", id)))))
	ok(t, w.Close(t.Context()))
}

func TestReadingRefused(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	for r, err := range c.ReadLog(t.Context(), threadName("nobody"), 0) {
		if client.ReasonOf(err) != threadsvcv1.ErrorReason_ERROR_REASON_THREAD_NOT_FOUND || r.Entry != nil {
			t.Errorf("%v, %v", r, err)
		}
	}
	_, err := c.GetContext(t.Context(), threadName("nobody"))
	if e := client.ErrorOf(err); e == nil || e.Code() != codes.NotFound || !strings.Contains(err.Error(), "NotFound") || errors.Unwrap(e) == nil {
		t.Errorf("%v", err)
	}
	if client.ErrorOf(io.EOF) != nil || client.ErrorOf(nil) != nil || client.ReasonOf(io.EOF) != 0 {
		t.Error("an error of another kind has a reason")
	}
}

// An agent's answer that breaks off leaves what came before it, and the run open.
func TestAgentBreaksOff(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	run := must(c.StartRun(t.Context(), request("t1", "r1")))(t)
	w := run.Write(t.Context(), client.WriterOptions{})
	body := strings.ReplaceAll(sse(runStarted("t1", "r1"), numbered(1)), "\n", "\r\n") + `data: {"type":"CUS`
	if err := w.AppendSSE(t.Context(), strings.NewReader(body)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("append: %v", err)
	}
	huge := "data: " + strings.Repeat("x", client.MaxSSEEvent+1) + "\n\n"
	if err := w.AppendSSE(t.Context(), strings.NewReader(huge)); !errors.Is(err, client.ErrSSETooLarge) {
		t.Errorf("append: %v", err)
	}
	ok(t, w.AppendSSE(t.Context(), strings.NewReader("data: {\"type\":\"CUSTOM\",\ndata: \"name\":\"n\",\"value\":2}\n\n"+sse(runFinished("t1", "r1")))))
	ok(t, w.Close(t.Context()))
	wantEvents(t, c, "t1", "r1", []string{runStarted("t1", "r1"), numbered(1), "{\"type\":\"CUSTOM\",\n\"name\":\"n\",\"value\":2}", runFinished("t1", "r1")})
}
