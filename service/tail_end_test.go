package service_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// slowReader is a follower that does not read what the thread gets until it has been cut off. It returns what it was
// sent, and why it ended.
func slowReader(c *conversation, node *node) (*reader, error) {
	c.t.Helper()
	narrow := dial(c.t, node.address, grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<10))
	for patience := 500 * time.Millisecond; ; patience *= 2 {
		r := must(follow(c.t.Context(), narrow, c.thread, 0))(c.t)
		var version uint64
		for range 20 {
			version = c.append(textDelta("m", strings.Repeat("x", 50_000))).GetVersion()
		}
		time.Sleep(patience)
		if err := r.until(version); err != nil {
			return r, errors.Unwrap(err)
		}
	}
}

// again opens the stream anew where the reader stands.
func (r *reader) again(c *conversation) (logStream, error) {
	rest, err := follow(c.t.Context(), c.client, c.thread, r.next)
	r.within = false
	return rest.stream, err
}

func TestSlowReaderIsCutOff(t *testing.T) {
	t.Parallel()
	node := startNode(t, openStore(t, storetest.Database(t)), service.Config{ReaderTimeout: 100 * time.Millisecond, TailBytes: 200_000})
	c := converse(t, dial(t, node.address), "t1")
	c.open("r1", textStart("m"))
	other := c.follow(0)
	read := make(chan error, 1)
	go func() {
		err := error(nil)
		for err == nil {
			// On a machine that is busy this one may be found too slow as well. It comes back as it was told to.
			if err = other.receive(); status.Code(err) == codes.Aborted {
				other.stream, err = other.again(c)
			}
		}
		read <- err
	}()
	slow, err := slowReader(c, node)
	meta := wantReason(t, err, codes.Aborted, "READER_TOO_SLOW")
	// What was on its way when it was cut off may have come beside.
	if from, err := strconv.ParseUint(meta["from_version"], 10, 64); err != nil || from > slow.next || from < 2 {
		t.Errorf("metadata %v, the next version is %d", meta, slow.next)
	}
	log := c.log()
	rest := c.follow(slow.next)
	c.until(rest, uint64(len(log)))
	if err := errors.Join(slow.same(log), rest.same(log)); err != nil || len(slow.entries)+len(rest.entries) != len(log) {
		t.Errorf("%d and %d entries of %d: %v", len(slow.entries), len(rest.entries), len(log), err)
	}
	if err := node.stop(); err != nil {
		t.Fatal(err)
	}
	wantReason(t, <-read, codes.Unavailable, "SHUTTING_DOWN")
	if len(other.entries) != len(log) {
		t.Errorf("the one who reads got %d entries of %d", len(other.entries), len(log))
	}
}

// What was not committed is never shown.
func TestFollowersSeeNothingBeforeItIsCommitted(t *testing.T) {
	t.Parallel()
	slow := &slowStore{Store: openStore(t, storetest.Database(t))}
	c := converse(t, dial(t, startNode(t, slow, service.Config{}).address), "t1")
	c.open("r1", textStart("m"))
	r := c.follow(0)
	for i := range 5 {
		slow.failing(true)
		_, err := c.tryAppend(textDelta("m", fmt.Sprint("lost", i)))
		wantReason(t, err, codes.Unavailable, "DATABASE_UNAVAILABLE")
		slow.failing(false)
		c.append(textDelta("m", fmt.Sprint("kept", i)))
	}
	log := c.log()
	c.until(r, uint64(len(log)))
	if err := r.same(log); err != nil {
		t.Error(err)
	}
	for _, e := range r.entries {
		if strings.Contains(string(e.GetPayload()), "lost") {
			t.Errorf("%s was shown", e.GetPayload())
		}
	}
}

// A thread that is deleted ends its followers, also if another one takes its name and has more entries at once.
func TestFollowersOfADeletedThread(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]int{"deleted": 0, "made again": 1, "made again and grown": 40} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sides := twoServers(t)
			sides[0].record("r1", text("m", "old")...)
			version := uint64(len(sides[0].log()))
			var readers []*reader
			for _, side := range sides {
				r := side.follow(0)
				side.until(r, version)
				readers = append(readers, r)
			}
			must(sides[0].client.DeleteThread(t.Context(), &threadsvcv1.DeleteThreadRequest{Thread: threadName("t1")}))(t)
			if again > 0 {
				sides[0].recreate()
				sides[0].start("r1", withMessages(userMessage("u", "new")))
			}
			for i := range again {
				sides[0].append(numbered("t1", uint64(i)))
			}
			for _, r := range readers {
				var err error
				for err == nil {
					err = r.receive()
				}
				wantReason(t, err, codes.NotFound, "THREAD_NOT_FOUND")
				if r.next != version+1 {
					t.Errorf("%d entries came, want %d", r.next-1, version)
				}
			}
			if again > 0 {
				sides[0].until(sides[1].follow(0), uint64(again))
			}
		})
	}
}

// A server that stops sends its followers everything that was acknowledged.
func TestFollowersOfAServerThatStops(t *testing.T) {
	t.Parallel()
	node := startNode(t, openStore(t, storetest.Database(t)), service.Config{})
	client := dial(t, node.address)
	c := converse(t, client, "t1")
	c.start("r1")
	r, idle := c.follow(0), c.follow(2)
	acked, reached := make(chan uint64, 1), make(chan struct{}, 1)
	stream := c.produce().stream
	go sendNumbered(stream, "t1")
	go readNumbered(t, stream, "t1", reached, acked)
	<-reached
	node.service.Drain()
	for _, r := range []*reader{r, idle} {
		var err error
		for err == nil {
			err = r.receive()
		}
		wantReason(t, err, codes.Unavailable, "SHUTTING_DOWN")
		if r.next < 2+50 {
			t.Errorf("version %d comes next, 50 events were acknowledged before", r.next)
		}
	}
	<-acked
	_, err := must(follow(t.Context(), client, "t1", 0))(t).stream.Recv()
	wantReason(t, err, codes.Unavailable, "SHUTTING_DOWN")
}

// Followers outlast a database that goes away, and see what another server writes when it is back.
func TestFollowersWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	var sides [2]*conversation
	for i := range sides {
		sides[i] = converse(t, serveDatabase(t, url, service.Config{TailPoll: time.Millisecond}), "t1")
	}
	sides[0].open("r1", textStart("m"))
	r := sides[1].follow(0)
	sides[1].until(r, 3)
	back := takeAway(t, url)
	_, err := sides[0].tryAppend(textDelta("m", "x"))
	wantReason(t, err, codes.Unavailable, "DATABASE_UNAVAILABLE")
	back()
	for err != nil {
		_, err = sides[0].tryAppend(textDelta("m", "x"))
	}
	sides[1].until(r, 4)
}

func TestFollowerWhoLeaves(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	c.record("r1")
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		r := must(follow(ctx, c.client, "t1", 0))(t)
		c.until(r, 1)
		cancel()
		if err := r.until(1000); err == nil || errors.Is(err, io.EOF) {
			t.Fatalf("ended with %v", err)
		}
	}
	c.stillWorks()
}
