package service_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/threadsvc/threadsvc/agui"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

const (
	changed     findingKind = "version gap or changed entry"
	interleaved findingKind = "active runs interleaved"
	stale       findingKind = "append accepted with an old token"
	tailWrong   findingKind = "tail wrong"
	miscalled   findingKind = "truncated run shown as completed"
	undeleted   findingKind = "deleted thread came back"
	unordered   findingKind = "history not linearizable"
)

// chaosKinds are all the kinds of findings, as they are reported.
var chaosKinds = []findingKind{lost, doubled, changed, interleaved, stale, tailWrong, differs, miscalled, undeleted, unordered}

// follower follows a thread's log and notes what it was shown.
type follower struct {
	thread  string
	history *history
	cancel  context.CancelFunc

	mu   sync.Mutex
	seen []seenEntry
}

type seenEntry struct {
	version uint64
	payload [32]byte
}

// see notes an entry.
func (f *follower) see(e *threadsvcv1.LogEntry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = append(f.seen, seenEntry{e.GetVersion(), sha256.Sum256(e.GetPayload())})
}

func (f *follower) reached() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.seen) == 0 {
		return 0
	}
	return f.seen[len(f.seen)-1].version
}

// await waits until the follower has seen the version, and ends it.
func (f *follower) await(version uint64, timeout time.Duration) {
	for end := time.Now().Add(timeout); f.reached() < version && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	f.cancel()
}

// follow reads by one call after the other, each from where the last one broke off. Within a call everything is taken as
// it comes.
func (f *follower) follow(ctx context.Context, c *loadClient) {
	for ctx.Err() == nil {
		c.roam()
		_ = f.call(ctx, c.rpc)
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(c.rnd.IntN(50)) * time.Millisecond):
		}
	}
}

func (f *follower) call(ctx context.Context, rpc threadsvcv1.ThreadServiceClient) error {
	stream, err := rpc.ReadLog(ctx, &threadsvcv1.ReadLogRequest{Thread: threadName(f.thread), FromVersion: f.reached() + 1, Follow: true})
	if err != nil {
		return err
	}
	var whole *threadsvcv1.LogEntry
	for {
		msg, err := stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		for _, e := range msg.GetEntries() {
			if whole != nil {
				whole.Payload = append(whole.Payload, e.GetPayload()...)
			} else {
				whole = e
			}
			if !e.GetPayloadContinues() {
				f.see(whole)
				whole = nil
			}
		}
		f.history.saw(f.reached())
	}
}

// chaosRecord is all that is known of a thread at the end of a round.
type chaosRecord struct {
	thread  *loadThread
	entries []*threadsvcv1.LogEntry
	runs    []*threadsvcv1.Run
	tails   [][]seenEntry
}

// checkChaos returns what is wrong with a thread beyond what checkThread finds.
func checkChaos(r *chaosRecord) []finding {
	c := &chaosChecker{record: r}
	c.checkEntries()
	c.checkOrder()
	for i, seen := range r.tails {
		c.checkTail(i, seen)
	}
	c.checkRuns()
	return c.findings
}

type chaosChecker struct {
	record   *chaosRecord
	findings []finding
}

func (c *chaosChecker) report(kind findingKind, format string, args ...any) {
	c.findings = append(c.findings, finding{kind, c.record.thread.id + ": " + fmt.Sprintf(format, args...)})
}

func (c *chaosChecker) checkEntries() {
	for i, e := range c.record.entries {
		if e.GetVersion() != uint64(i+1) {
			c.report(changed, "version %d comes after %d", e.GetVersion(), i)
		}
	}
}

// checkOrder checks that the entries of a run are together, and that none follows a higher token.
func (c *chaosChecker) checkOrder() {
	tokens := map[string]uint64{}
	for _, s := range c.record.thread.streams {
		tokens[s.id] = s.token // 0 if the start was not answered
	}
	over, active, highest := map[string]bool{}, "", uint64(0)
	for _, e := range c.record.entries {
		run := e.GetRunId()
		if run != active {
			over[active] = true
			active = run
		}
		if over[run] {
			c.report(interleaved, "run %s goes on at version %d after another", run, e.GetVersion())
		}
		if token := tokens[run]; token != 0 && token < highest {
			c.report(stale, "version %d was appended with token %d after %d", e.GetVersion(), token, highest)
		}
		highest = max(highest, tokens[run])
	}
}

// checkTail checks that a follower saw the log: all of it, in order, once.
func (c *chaosChecker) checkTail(n int, seen []seenEntry) {
	log := c.record.entries
	for i, s := range seen {
		switch {
		case s.version != uint64(i+1):
			c.report(tailWrong, "tail %d saw version %d after %d", n, s.version, i)
			return
		case i >= len(log):
			c.report(tailWrong, "tail %d saw version %d, which is not in the log", n, s.version)
			return
		case s.payload != sha256.Sum256(log[i].GetPayload()):
			c.report(tailWrong, "tail %d saw another version %d", n, s.version)
		}
	}
	if len(seen) < len(log) {
		c.report(tailWrong, "tail %d missed the versions from %d to %d", n, len(seen)+1, len(log))
	}
}

// checkRuns compares how each run is shown with what the log holds of it.
func (c *chaosChecker) checkRuns() {
	truncated, finished := map[string]bool{}, map[string]bool{}
	for _, e := range c.record.entries {
		switch {
		case e.GetKind() == threadsvcv1.EntryKind_ENTRY_KIND_MARK:
			var mark agui.Mark
			if json.Unmarshal(e.GetPayload(), &mark) == nil && mark.Type == agui.MarkRunTruncated {
				truncated[mark.RunID] = true
			}
		case bytes.Contains(e.GetPayload(), []byte(`"RUN_FINISHED"`)):
			finished[e.GetRunId()] = true
		}
	}
	completed := []threadsvcv1.RunStatus{threadsvcv1.RunStatus_RUN_STATUS_FINISHED, threadsvcv1.RunStatus_RUN_STATUS_INTERRUPTED, threadsvcv1.RunStatus_RUN_STATUS_CANCELLED}
	for _, run := range c.record.runs {
		id := run.GetRunId()
		if slices.Contains(completed, run.GetStatus()) && (truncated[id] || !finished[id]) {
			c.report(miscalled, "run %s is %v", id, run.GetStatus())
		}
		if truncated[id] != (run.GetStatus() == threadsvcv1.RunStatus_RUN_STATUS_TRUNCATED) {
			c.report(miscalled, "run %s is %v; truncated by a mark: %v", id, run.GetStatus(), truncated[id])
		}
	}
}

// historyLimit is how long the check of one thread's history may take. One that takes longer is counted as not decided: the
// work can grow with all orders of what overlaps, and how far a machine gets in a given time says nothing of the service.
const historyLimit = 30 * time.Second

// checkHistory looks for an order of all that was asked of a thread that explains the answers.
func (c *chaos) checkHistory(thread *loadThread, record *threadRecord) []finding {
	ops := thread.history.operations(factsOf(record.entries, thread.streams))
	c.operations += len(ops)
	began := time.Now()
	result := linearize(ops, historyLimit)
	c.slowest = max(c.slowest, time.Since(began))
	switch result {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		c.undecided++
		return nil
	}
	text := fmt.Sprintf("%s: %d operations: %s", thread.id, len(ops), result)
	return []finding{{unordered, text + obstacle(ops)}}
}
