package service_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// twoServers are conversations on one thread by way of two servers.
func twoServers(t *testing.T) [2]*conversation {
	t.Helper()
	url := storetest.Database(t)
	var sides [2]*conversation
	for i := range sides {
		sides[i] = converse(t, serveDatabase(t, url, service.Config{}), "t1")
	}
	return sides
}

func TestStreamAlternatesBetweenServers(t *testing.T) {
	t.Parallel()
	sides := twoServers(t)
	sides[0].start("r1")
	run := sides[0].run
	sent := []string{runStarted("t1", "r1"), textStart("m"), stateSnapshot(`{"n":[]}`)}
	for i := range 30 {
		sent = append(sent, textDelta("m", fmt.Sprint(i, ",")), stateDelta(operations(add("/n/-", fmt.Sprint(i)))))
	}
	sent = append(sent, textEnd("m"), runFinished("t1", "r1"))
	for i, e := range sent {
		p, err := appendBatch(t.Context(), sides[i%2].client, run, uint64(i), e)
		if err != nil || p.GetNextOffset() != uint64(i)+1 || p.GetVersion() != uint64(i)+2 {
			t.Fatalf("event %d: %v, %v %s", i, p, err, detailsOf(err))
		}
	}
	for _, side := range sides {
		if got := side.events("r1"); !slices.Equal(got, sent) {
			t.Errorf("the log has %q", got)
		}
	}
	sides[0].stillWorks()
}

// What one server remembers of a thread never decides once another has written it.
func TestServerThatDidNotSeeTheLastWrites(t *testing.T) {
	t.Parallel()
	sides := twoServers(t)
	version := func() uint64 {
		info, _ := sides[0].info()
		return info.GetVersion()
	}
	sides[0].record("r1", stateSnapshot(`{"n":1}`))
	sides[1].start("r2")
	old, run := sides[0].run, sides[1].run

	// A run that another server started, or continued, is appended to.
	p, err := appendBatch(t.Context(), sides[0].client, run, 0, runStarted("t1", "r2"), callStart("c1"))
	if err != nil || p.GetNextOffset() != 2 {
		t.Fatalf("the first server refuses the run: %v, %v %s", p, err, detailsOf(err))
	}
	must(appendBatch(t.Context(), sides[1].client, run, 2, callEnd("c1")))(t)
	must(appendBatch(t.Context(), sides[0].client, run, 3, interrupted("t1", "r2", "i1:c1")))(t)

	// Refusals are judged by what is committed.
	_, _, err = sides[1].tryStart("r3")
	wantReason(t, err, codes.FailedPrecondition, "INTERRUPTS_OPEN")
	_, err = appendBatch(t.Context(), sides[1].client, run, 9, textStart("m"))
	if meta := wantReason(t, err, codes.OutOfRange, "OFFSET_GAP"); meta["next_offset"] != "4" {
		t.Errorf("metadata %v, want next_offset 4", meta)
	}
	expected := version()
	start, _ := sides[1].start("r3", withResume(`[{"interruptId":"i1","status":"cancelled"}]`),
		func(r *threadsvcv1.StartRunRequest) { r.ExpectedVersion = &expected })
	if start.GetVersion() != expected+1 {
		t.Errorf("version %d after %d", start.GetVersion(), expected)
	}
	_, err = appendBatch(t.Context(), sides[0].client, old, 3, textStart("m"))
	wantReason(t, err, codes.FailedPrecondition, "RUN_CLOSED")
	sides[1].append(runStarted("t1", "r3"), runFinished("t1", "r3"))
	expected = version()
	sides[0].start("r4", func(r *threadsvcv1.StartRunRequest) { r.ExpectedVersion = &expected })

	// Nor is a thread remembered that another server erased.
	must(sides[1].client.DeleteThread(t.Context(), &threadsvcv1.DeleteThreadRequest{Thread: threadName("t1")}))(t)
	must(sides[0].client.CreateThread(t.Context(), &threadsvcv1.CreateThreadRequest{Thread: threadName("t1"), ReplaceDeleted: true}))(t)
	sides[1].stillWorks()
}

func TestProducerThatComesBack(t *testing.T) {
	t.Parallel()
	sides := twoServers(t)
	sides[0].open("r1", textStart("m"))
	events := []string{textDelta("m", "a"), textDelta("m", "b"), textDelta("m", "c"), textDelta("m", "d")}
	for i := range events { // each goes to the one server, unacknowledged, and again to the other, on a new stream
		side, other := sides[i%2], sides[1-i%2]
		other.run = sides[0].run
		must(appendBatch(t.Context(), side.client, sides[0].run, uint64(i)+2, events[i]))(t)
		p := other.produce()
		p.send(uint64(i)+2, events[i])
		if progress, err := p.ack(); err != nil || progress.GetNextOffset() != uint64(i)+3 {
			t.Errorf("event %d sent again: %v, %v %s", i, progress, err, detailsOf(err))
		}
		p.end()
	}
	if got := sides[0].context().Messages[0].Content; got != "abcd" {
		t.Errorf("content %q", got)
	}
}

func TestServersStartARunAtOnce(t *testing.T) {
	t.Parallel()
	sides := twoServers(t)
	for round := range 10 {
		thread := fmt.Sprint("t", round)
		var won [2]bool
		var both sync.WaitGroup
		for i, side := range sides {
			side.thread = thread
			both.Go(func() {
				_, _, err := side.tryStart(fmt.Sprint("r", i))
				won[i] = err == nil
				if reason, meta := reasonOf(err); err != nil && (reason != "RUN_ACTIVE" || meta["active_run"] != fmt.Sprint("r", 1-i)) {
					t.Errorf("round %d: server %d: %v %s", round, i, err, detailsOf(err))
				}
			})
		}
		both.Wait()
		if won[0] == won[1] {
			t.Fatalf("round %d: won %v, want exactly one", round, won)
		}
		winner := sides[0]
		if won[1] {
			winner = sides[1]
		}
		winner.append(runStarted(thread, winner.run.GetRunId()), runFinished(thread, winner.run.GetRunId()))
		sides[round%2].stillWorks()
	}
}

func TestWriterThatWasTakenOverIsRefusedEverywhere(t *testing.T) {
	t.Parallel()
	sides := twoServers(t)
	sides[0].start("r1", withMessages(userMessage("u1", "hello")))
	sides[0].append(runStarted("t1", "r1"), textStart("m1"), textDelta("m1", "par"))
	old, oldOffset := sides[0].run, sides[0].offset

	start, _ := sides[1].start("r2", withPolicy(takeOver))
	if start.GetLease().GetFencingToken() <= old.GetFencingToken() {
		t.Errorf("token %d after %d", start.GetLease().GetFencingToken(), old.GetFencingToken())
	}
	sides[1].append(runStarted("t1", "r2"))
	for i, side := range sides {
		_, err := appendBatch(t.Context(), side.client, old, oldOffset, textDelta("m1", "tial"))
		if meta := wantReason(t, err, codes.FailedPrecondition, "RUN_CLOSED"); meta["status"] != "TRUNCATED" {
			t.Errorf("server %d: %v", i, meta)
		}
		_, err = appendBatch(t.Context(), side.client, old, oldOffset) // a heartbeat does not bring it back
		wantReason(t, err, codes.FailedPrecondition, "RUN_CLOSED")
		stolen := handle("t1", "r2", old.GetFencingToken())
		_, err = appendBatch(t.Context(), side.client, stolen, 1, textStart("m2"))
		wantReason(t, err, codes.FailedPrecondition, "LEASE_LOST")
	}
	sides[1].append(runFinished("t1", "r2"))
	for _, side := range sides {
		side.wantStatus("r1", threadsvcv1.RunStatus_RUN_STATUS_TRUNCATED)
		side.wantMessages("user u1", "assistant m1")
		if marks := side.marks(); !slices.Equal(marks, []string{"RUN_TRUNCATED TAKEN_OVER"}) {
			t.Errorf("marks %q", marks)
		}
	}
	sides[0].stillWorks()
}

func TestRunWhoseLeaseRanOut(t *testing.T) {
	t.Parallel()
	sides := twoServers(t)
	start, _ := sides[0].start("r1", func(r *threadsvcv1.StartRunRequest) { r.LeaseTtl = durationpb.New(time.Second) })
	sides[0].append(runStarted("t1", "r1"), stateSnapshot(`{"a":1}`), textStart("m1"), textDelta("m1", "par"))
	refused := 0
	for {
		_, _, err := sides[1].tryStart("r2")
		if err == nil {
			break
		}
		wantReason(t, err, codes.FailedPrecondition, "RUN_ACTIVE")
		refused++
		time.Sleep(50 * time.Millisecond)
	}
	if now := time.Now(); now.Before(start.GetLease().GetExpiresAt().AsTime()) {
		t.Errorf("the run was closed at %v, before its lease ended at %v", now, start.GetLease().GetExpiresAt().AsTime())
	}
	t.Logf("refused %d times", refused)
	sides[0].wantStatus("r1", threadsvcv1.RunStatus_RUN_STATUS_TRUNCATED)
	info, input := sides[0].info()
	if !info.GetStateTouchedByIncompleteRun() || string(input.State) != `{"a":1}` {
		t.Errorf("touched %v, state %s", info.GetStateTouchedByIncompleteRun(), input.State)
	}
	if len(input.Messages) != 1 || input.Messages[0].Content != "par" {
		t.Errorf("messages %v, want the partial one", input.Messages)
	}
	if marks := sides[0].marks(); !slices.Equal(marks, []string{"RUN_TRUNCATED LEASE_EXPIRED"}) {
		t.Errorf("marks %q", marks)
	}
	sides[0].stillWorks()
}

func TestServersWriteManyThreadsAtOnce(t *testing.T) {
	t.Parallel()
	sides := twoServers(t)
	var threads sync.WaitGroup
	for n := range 8 {
		threads.Go(func() {
			thread := fmt.Sprint("t", n)
			c := converse(t, sides[0].client, thread)
			c.start("r1")
			for i, e := range []string{runStarted(thread, "r1"), textStart("m"), textDelta("m", "a"), textDelta("m", "b"), textEnd("m"), runFinished(thread, "r1")} {
				c.client = sides[(n+i)%2].client
				c.append(e)
			}
			if got := c.context().Messages[0].Content; got != "ab" {
				t.Errorf("thread %d: %q", n, got)
			}
		})
	}
	threads.Wait()
}
