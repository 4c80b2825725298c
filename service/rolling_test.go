package service_test

import (
	"errors"
	"io"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
)

// term ends the process as an orchestrator does, and fails the test unless it ends in order.
func (p *process) term() {
	p.t.Helper()
	ok(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("the server ended with %v", err)
	}
	p.cmd = nil
}

// Three servers are stopped and started again one after the other, under load. Nobody who appends by the client package
// notices; every event is there once.
func TestRollingRestart(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a while")
	}
	t.Parallel()
	db := startDatabase(t)
	var servers []*process
	var addresses []string
	for range 3 {
		servers = append(servers, startProcess(t, db.URL(crashDatabase)))
		addresses = append(addresses, servers[len(servers)-1].address)
	}
	as := startAgents(t, addresses, 6)
	for _, server := range servers {
		as.progress(40)
		server.term()
		as.progress(40) // by way of the others
		server.start()
	}
	as.progress(40)
	as.stop()
	lost, doubled := as.check(dial(t, addresses[0]))
	t.Logf("rolling restart: %d clients, %d events acked, %d lost, %d doubled, gap %v", len(as.all), as.acked.Load(), lost, doubled, as.longestGap())
}

// A stream of a server that stops gets the acknowledgement of all it sent, and then a status that says to go elsewhere.
func TestStreamOfAServerThatIsTold(t *testing.T) {
	t.Parallel()
	db := startDatabase(t)
	server := startProcess(t, db.URL(crashDatabase))
	c := converse(t, dial(t, server.address), "t1")
	c.start("r1")
	p := c.produce()
	p.send(0, runStarted("t1", "r1"), textStart("m"))
	if progress, err := p.ack(); err != nil || progress.GetNextOffset() != 2 {
		t.Fatal(progress, err)
	}
	for i := range 20 {
		p.send(uint64(2+i), textDelta("m", "x"))
	}
	if progress, err := p.ack(); err != nil || progress.GetNextOffset() != 3 {
		t.Fatal(progress, err)
	}
	done := make(chan struct{})
	go func() { defer close(done); server.term() }()
	acked := uint64(3)
	for {
		resp, err := p.stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				t.Fatal("the stream ended as if all were well")
			}
			wantReason(t, err, codes.Unavailable, "SHUTTING_DOWN")
			break
		}
		if resp.GetError() != nil || resp.GetProgress().GetNextOffset() != acked+1 {
			t.Fatalf("%v after offset %d", resp, acked)
		}
		acked++
	}
	<-done
	server.start()
	c.client = dial(t, server.address)
	if logged := uint64(len(c.events("r1"))); logged != acked {
		t.Errorf("%d events were acknowledged, the log has %d", acked, logged)
	}
}
