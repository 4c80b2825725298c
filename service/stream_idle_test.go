package service_test

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// A stream whose batches are all answered keeps one goroutine, and however many wait for their producers, all of them are told
// when the server drains. This test counts the goroutines of the process, so it runs beside no other.
func TestIdleStreams(t *testing.T) {
	node := startNode(t, openStore(t, storetest.Database(t)), service.Config{})
	client := dial(t, node.address)
	const n = 50
	var producers []*producer
	for i := range n {
		c := converse(t, client, fmt.Sprint("t", i))
		c.start("r1")
		p := c.produce()
		p.send(0, runStarted(fmt.Sprint("t", i), "r1"))
		if _, err := p.ack(); err != nil {
			t.Fatal(err)
		}
		producers = append(producers, p)
	}
	var receivers, senders int
	for range 1000 { // a sender ends a moment after its last answer
		if receivers, senders = streamGoroutines(); senders == 0 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if receivers != n || senders != 0 {
		t.Errorf("%d idle streams have %d receivers and %d senders", n, receivers, senders)
	}
	node.service.Drain()
	for _, p := range producers {
		resp, err := p.stream.Recv()
		if err == nil {
			t.Fatalf("got %v, want the end of the stream", resp)
		}
		wantReason(t, err, codes.Unavailable, "SHUTTING_DOWN")
	}
}

// streamGoroutines counts the goroutines of AppendEvents.
func streamGoroutines() (receivers, senders int) {
	stacks := make([]byte, 16<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for _, stack := range bytes.Split(stacks, []byte("\n\n")) {
		switch s := string(stack); {
		case strings.Contains(s, "(*exchange).sendSafely("):
			senders++
		case strings.Contains(s, "(*Service).AppendEvents("):
			receivers++
		}
	}
	return receivers, senders
}
