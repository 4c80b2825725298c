package service_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store/storetest"
)

type logStream = grpc.ServerStreamingClient[threadsvcv1.ReadLogResponse]

// reader follows a log and checks that every version comes once and in order.
type reader struct {
	stream   logStream
	next     uint64 // the version that has to come next
	entries  []*threadsvcv1.LogEntry
	missing  []*threadsvcv1.UnreadableRange
	caughtUp []uint64
	within   bool // the payload of the last entry goes on
}

func follow(ctx context.Context, client threadsvcv1.ThreadServiceClient, thread string, from uint64) (*reader, error) {
	stream, err := client.ReadLog(ctx, &threadsvcv1.ReadLogRequest{Thread: threadName(thread), FromVersion: from, Follow: true})
	return &reader{stream: stream, next: max(from, 1)}, err
}

// receive takes one message.
func (r *reader) receive() error {
	msg, err := r.stream.Recv()
	if err != nil {
		return err
	}
	if v := msg.GetCaughtUpVersion(); v != 0 {
		if r.caughtUp = append(r.caughtUp, v); v != r.next-1 {
			return fmt.Errorf("caught up at version %d, before %d has come", v, r.next)
		}
	}
	missing := msg.GetUnreadable()
	passOver := func() {
		for len(missing) > 0 && missing[0].GetFirstVersion() == r.next {
			r.missing, r.next = append(r.missing, missing[0]), missing[0].GetLastVersion()+1
			missing = missing[1:]
		}
	}
	defer passOver()
	for _, e := range msg.GetEntries() {
		passOver()
		if e.GetVersion() != r.next {
			return fmt.Errorf("version %d came, want %d", e.GetVersion(), r.next)
		}
		if n := len(r.entries); r.within {
			r.entries[n-1].Payload = append(r.entries[n-1].Payload, e.GetPayload()...)
		} else {
			r.entries = append(r.entries, e)
		}
		if r.within = e.GetPayloadContinues(); !r.within {
			r.next++
		}
	}
	return nil
}

// until takes messages until a version has come.
func (r *reader) until(version uint64) error {
	for r.next <= version {
		if err := r.receive(); err != nil {
			return fmt.Errorf("waiting for version %d: %w", version, err)
		}
	}
	return nil
}

// same compares what came with a log that starts at version 1.
func (r *reader) same(log []*threadsvcv1.LogEntry) error {
	for _, got := range r.entries {
		want := log[got.GetVersion()-1]
		if got.GetKind() != want.GetKind() || got.GetRunId() != want.GetRunId() || got.GetOffset() != want.GetOffset() ||
			!bytes.Equal(got.GetPayload(), want.GetPayload()) || !got.GetCommitTime().AsTime().Equal(want.GetCommitTime().AsTime()) {
			return fmt.Errorf("version %d came as %.300v, want %.300v", got.GetVersion(), got, want)
		}
	}
	return nil
}

func (c *conversation) follow(from uint64) *reader {
	c.t.Helper()
	return must(follow(c.t.Context(), c.client, c.thread, from))(c.t)
}

func (c *conversation) until(r *reader, version uint64) {
	c.t.Helper()
	if err := r.until(version); err != nil {
		c.t.Fatal(err, detailsOf(err))
	}
}

// Whoever begins to follow, at whatever moment, from whatever version and on whatever server, sees every entry from there
// on once. One of the servers has next to no memory for what followers share.
func TestFollowersMissNothingAtTheSeam(t *testing.T) {
	t.Parallel()
	const readers, batches, runs = 1000, 120, 3
	url := storetest.Database(t)
	var sides [2]*conversation
	for i, memory := range []int{4 << 10, 1 << 20} {
		sides[i] = converse(t, serveDatabase(t, url, service.Config{TailBytes: memory, TailPoll: 5 * time.Millisecond}), "t1")
	}
	writer := converse(t, sides[0].client, "t1")
	writer.start("r0")
	starts := map[int][]*conversation{}
	for i := range readers {
		at := rand.IntN(batches)
		starts[at] = append(starts[at], sides[i%2])
	}
	last, all := make(chan uint64, readers), make(chan *reader, readers)
	var following sync.WaitGroup
	for n := range batches {
		writer.client = sides[n/4%2].client // so that each server has to hear of what the other commits
		version := writer.numbers(n, batches/runs)
		for _, side := range starts[n] {
			from := rand.Uint64N(version + 2)
			following.Go(func() { all <- readAll(t, side, from, last) })
		}
	}
	log := sides[0].log()
	for range readers {
		last <- uint64(len(log))
	}
	following.Wait()
	close(all)
	for r := range all {
		if err := r.same(log); err != nil {
			t.Fatal(err)
		}
	}
}

// numbers appends the nth batch of events, in runs of perRun batches, and returns the version.
func (c *conversation) numbers(n, perRun int) uint64 {
	c.t.Helper()
	run := fmt.Sprint("r", n/perRun)
	var events []string
	if n%perRun == 0 {
		if n > 0 {
			c.append(runFinished(c.thread, c.run.GetRunId()))
			c.start(run)
		}
		events = append(events, runStarted(c.thread, run))
	}
	for i := range 1 + rand.IntN(3) {
		events = append(events, event("CUSTOM", "name", `"n"`, "value", fmt.Sprint(10*n+i)))
	}
	return c.append(events...).GetVersion()
}

// readAll follows a log from a version on until it ends with the version that last says.
func readAll(t *testing.T, c *conversation, from uint64, last <-chan uint64) *reader {
	r, err := follow(t.Context(), c.client, c.thread, from)
	if err == nil {
		err = r.receive() // an entry, or that there is none yet
	}
	if err == nil {
		err = r.until(<-last)
	}
	if err != nil {
		t.Errorf("from version %d: %v %s", from, err, detailsOf(err))
	}
	return r
}

func TestFollowOverRunsAndServers(t *testing.T) {
	t.Parallel()
	sides := twoServers(t)
	sides[0].record("r1", text("m1", "one")...)
	stored := uint64(len(sides[0].log()))
	var readers []*reader
	for _, side := range sides {
		r := side.follow(0)
		for len(r.caughtUp) == 0 {
			if err := r.receive(); err != nil {
				t.Fatal(err)
			}
		}
		if r.caughtUp[0] != stored {
			t.Errorf("caught up at %d, want %d", r.caughtUp[0], stored)
		}
		readers = append(readers, r)
	}
	sides[1].record("r2", text("m2", "two")...)
	sides[0].record("r3", append(text("m3", "three"), stateSnapshot(`{"n":1.10}`))...)
	sides[1].open("r4")
	sides[0].start("r5", withPolicy(takeOver)) // leaves a mark, and an input
	log := sides[0].log()
	for _, r := range readers {
		sides[0].until(r, uint64(len(log)))
		if err := r.same(log); err != nil || len(r.entries) != len(log) || len(r.caughtUp) != 1 {
			t.Errorf("%d entries, caught up %v: %v", len(r.entries), r.caughtUp, err)
		}
	}
	for from := range uint64(len(log) + 1) { // whoever comes back gets the rest
		rest := sides[from%2].follow(from + 1)
		for len(rest.caughtUp) == 0 {
			if err := rest.receive(); err != nil {
				t.Fatal(err)
			}
		}
		if err := rest.same(log); err != nil || len(rest.entries) != len(log)-int(from) {
			t.Errorf("from version %d: %d entries, %v", from+1, len(rest.entries), err)
		}
	}
}

// Large entries come in pieces, and what cannot be read is named, whether it is stored or comes later.
func TestFollowLargeAndUnreadableEntries(t *testing.T) {
	t.Parallel()
	c, db := ownDatabase(t, service.Config{TailBytes: 1 << 20})
	c.open("r1", textStart("m"), textDelta("m", strings.Repeat("x", 3<<20)))
	c.append(event("CUSTOM", "name", `"lost"`, "value", "1"))
	live := c.follow(0)
	c.until(live, 5)
	execSQL(t, db, `UPDATE log_segments SET codec = 1, entries = '\x00' WHERE first_version = 5`)
	c.append(textDelta("m", strings.Repeat("y", 2<<20)), textDelta("m", "z"))
	c.until(live, 7)
	later := c.follow(3)
	c.until(later, 7)
	if len(live.missing) != 0 || len(live.entries) != 7 || len(live.entries[5].GetPayload()) < 2<<20 {
		t.Errorf("%d entries, missing %v", len(live.entries), live.missing)
	}
	if len(later.missing) != 1 || later.missing[0].GetFirstVersion() != 5 || len(later.entries) != 4 {
		t.Errorf("%d entries, missing %v, want version 5", len(later.entries), later.missing)
	}
	if !bytes.Equal(later.entries[1].GetPayload(), live.entries[3].GetPayload()) {
		t.Error("the large entry came differently")
	}
}

func TestFollowRefusals(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	_, err := c.follow(0).stream.Recv()
	wantReason(t, err, codes.NotFound, "THREAD_NOT_FOUND")
	must(c.client.CreateThread(t.Context(), &threadsvcv1.CreateThreadRequest{Thread: threadName("t1")}))(t)
	empty := c.follow(0)
	for len(empty.caughtUp) == 0 {
		if err := empty.receive(); err != nil {
			t.Fatal(err)
		}
	}
	c.record("r1")
	version := uint64(len(c.log()))
	c.until(empty, version)
	_, err = c.follow(version + 2).stream.Recv()
	if meta := wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST"); meta["field"] != "from_version" {
		t.Errorf("metadata %v", meta)
	}
}
