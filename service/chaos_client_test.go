package service_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// chaosClient is a load client that shares all of its threads, and that ends runs, deletes threads, abandons its streams
// and tries tokens that are no longer good. It is one goroutine.
type chaosClient struct {
	*loadClient
	round *chaosRound
}

// chaosCounts counts what clients did.
type chaosCounts struct {
	runs, byLibrary, ends, deletes, abandoned, probes, reads atomic.Int64
	undeleted                                                atomic.Int64 // threads that were there after their deletion
}

// tune gives a request any of the policies, and sometimes a lease that expires soon.
func (c *chaosClient) tune(req *threadsvcv1.StartRunRequest) {
	req.Policy = threadsvcv1.ActiveRunPolicy(c.rnd.IntN(4))
	req.LeaseTtl = durationpb.New(time.Duration(1+c.rnd.IntN(5)) * time.Second)
	if c.rnd.IntN(8) == 0 {
		req.StartingState = threadsvcv1.StartingState_STARTING_STATE_LAST_COMPLETED
	}
}

func (c *chaosClient) work(ctx context.Context) error {
	for !c.load.stopped() && ctx.Err() == nil {
		if err := c.step(ctx); err != nil && status.Code(err) != codes.Canceled {
			return fmt.Errorf("%s: %w %s", c.name, err, detailsOf(err))
		}
	}
	return nil
}

func (c *chaosClient) step(ctx context.Context) error {
	thread := c.threads[c.rnd.IntN(len(c.threads))]
	switch c.rnd.IntN(10) {
	case 0:
		return c.end(ctx, thread)
	case 1:
		return c.throwAway(ctx)
	case 2:
		c.round.counts.reads.Add(1)
		return ignoreStopped(c.look(ctx, thread))
	}
	c.round.counts.runs.Add(1)
	if c.rnd.IntN(3) == 0 {
		c.round.counts.byLibrary.Add(1)
		return ignoreStopped(c.recordByLibrary(ctx, thread))
	}
	return ignoreStopped(c.record(ctx, thread))
}

// record starts a run and sends its events. Some streams are left in their midst and taken up again. When the run is lost
// to another, its token must be good for nothing.
func (c *chaosClient) record(ctx context.Context, thread *loadThread) error {
	s, err := c.start(ctx, thread, c.newStream(thread, false))
	if err != nil {
		return err
	}
	if c.rnd.IntN(4) == 0 {
		c.round.counts.abandoned.Add(1)
		left, cancel := context.WithTimeout(ctx, time.Duration(c.rnd.IntN(10_000))*time.Microsecond)
		err = c.attempt(left, thread, s)
		cancel()
		if reason, _ := reasonOf(err); reason == "PROTOCOL_VIOLATION" || reason == "OFFSET_GAP" || reason == "OFFSET_MISMATCH" {
			return err
		}
	}
	if err := c.send(ctx, thread, s); err != nil {
		return err
	}
	if s.acked < s.limit {
		return c.probe(ctx, thread, s)
	}
	return nil
}

// probe appends what was not acknowledged of a lost run, with the run's token. It may all have been received before the run
// was lost, and is acknowledged then, as it always is; the log tells whether it really came before.
func (c *chaosClient) probe(ctx context.Context, thread *loadThread, s *sentStream) error {
	c.round.counts.probes.Add(1)
	last := &threadsvcv1.EventBatch{Offset: uint64(s.acked)}
	for _, event := range s.events[s.acked:s.limit] {
		last.Events = append(last.Events, []byte(event.text))
	}
	return c.again(ctx, callTimeout, func(ctx context.Context) error {
		op := s.append(last)
		resp, err := c.rpc.AppendBatch(ctx, &threadsvcv1.AppendBatchRequest{Run: handle(thread.id, s.id, s.token), Batch: last})
		s.history.settle(op, progressOf(resp.GetProgress(), err))
		if reason, _ := reasonOf(err); reason == "RUN_CLOSED" || reason == "LEASE_LOST" {
			return nil
		}
		if err != nil {
			return err
		}
		return c.acknowledge(s, last, resp.GetProgress())
	})
}

// end ends whatever run of the thread this client knows of.
func (c *chaosClient) end(ctx context.Context, thread *loadThread) error {
	thread.mu.Lock()
	n := len(thread.streams)
	id := ""
	if n > 0 {
		id = thread.streams[n-1].id
	}
	thread.mu.Unlock()
	if id == "" {
		return nil
	}
	c.round.counts.ends.Add(1)
	ask := asked{kind: opEnd, run: id}
	op, attempts := thread.history.call(ask), 0
	var resp *threadsvcv1.EndRunResponse
	err := c.again(ctx, callTimeout, func(ctx context.Context) (err error) {
		attempts++
		ask.call = thread.history.now()
		resp, err = c.rpc.EndRun(ctx, &threadsvcv1.EndRunRequest{Thread: threadName(thread.id), RunId: id, Reason: "chaos"})
		return err
	})
	got := outcomeOf(err)
	if attempts == 1 { // or an earlier attempt may have ended it, at another version
		got.version = resp.GetVersion()
	} else if got.verdict == refused { // or it may still end a run that is started after the refusal
		op = thread.history.call(ask)
	}
	thread.history.settle(op, got)
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return ignoreStopped(err)
}

// throwAway makes a thread with a run, deletes it, and looks whether it is gone everywhere.
func (c *chaosClient) throwAway(ctx context.Context) error {
	thread := &loadThread{id: c.script.id("gone"), shared: true}
	if err := c.record(ctx, thread); err != nil {
		return ignoreStopped(err)
	}
	err := c.again(ctx, callTimeout, func(ctx context.Context) error {
		_, err := c.rpc.DeleteThread(ctx, &threadsvcv1.DeleteThreadRequest{Thread: threadName(thread.id)})
		return err
	})
	if err != nil && status.Code(err) != codes.NotFound { // an earlier attempt may have deleted it
		return ignoreStopped(err)
	}
	c.round.counts.deletes.Add(1)
	for range c.nodes {
		err := c.again(ctx, callTimeout, func(ctx context.Context) error {
			c.roam()
			_, err := c.rpc.GetThread(ctx, &threadsvcv1.GetThreadRequest{Thread: threadName(thread.id)})
			return err
		})
		if err == nil {
			c.round.counts.undeleted.Add(1)
		} else if status.Code(err) != codes.NotFound {
			return ignoreStopped(err)
		}
	}
	return nil
}

// ignoreStopped drops the error that says no more than that the load was stopped.
func ignoreStopped(err error) error {
	if errors.Is(err, errStopped) {
		return nil
	}
	return err
}
