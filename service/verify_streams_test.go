package service_test

import (
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/threadsvc/threadsvc/agui/aguitest"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
)

// Whatever producers send, faults included, nothing is found in what became of it: no false alarm.
func TestNothingIsFoundInWhatNobodyAltered(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{CheckpointBytes: 1 << 10, FoldBytes: 4 << 10})
	db := openStore(t, h.url)
	t.Cleanup(db.Close)
	var count atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		id := fmt.Sprint("random", count.Add(1))
		c := converse(t, h.client, id)
		for _, step := range aguitest.Stream(rt, aguitest.Options{ThreadID: id, Faults: rapid.SampledFrom([]int{0, 0, 3}).Draw(rt, "faults")}) {
			c.step(rt, step)
		}
		if c.run == nil {
			return
		}
		if findings := verify(t, db, store.KeyOf("test", id)); len(findings) > 0 {
			rt.Fatalf("%s: %v", id, findings)
		}
	})
	h.settle()
	for n := range count.Load() {
		if key := store.KeyOf("test", fmt.Sprint("random", n+1)); h.number(`SELECT count(*) FROM threads WHERE thread_key = $1`, keyOf(fmt.Sprint("random", n+1))) > 0 {
			if findings := verify(t, db, key); len(findings) > 0 {
				t.Errorf("random%d, merged: %v", n+1, findings)
			}
		}
	}
	t.Logf("%d threads, %d checkpoints", h.number(`SELECT count(*) FROM threads`), h.number(`SELECT count(*) FROM checkpoints`))
}

// step does what a generated step says. What is refused is passed over, as a producer would that goes on.
func (c *conversation) step(t *rapid.T, step aguitest.Step) {
	switch {
	case step.Input != nil:
		var input struct {
			RunID                         string
			Messages                      []json.RawMessage
			State, ForwardedProps, Resume json.RawMessage
		}
		if err := json.Unmarshal(step.Input, &input); err != nil {
			t.Fatal(err)
		}
		_, _, _ = c.tryStart(input.RunID, withUnanswered(allow), withPolicy(takeOver), func(r *threadsvcv1.StartRunRequest) {
			for _, m := range input.Messages {
				r.Messages = append(r.Messages, m)
			}
			if input.State != nil {
				r.StateChange = &threadsvcv1.StartRunRequest_State{State: input.State}
			}
			r.ForwardedProps, r.Resume = input.ForwardedProps, input.Resume
		})
	case step.Await != "":
		c.run, c.offset = handle(c.thread, step.Await, 0), 0
	case step.Event != nil && c.run != nil:
		_, _ = c.tryAppend(string(step.Event))
	}
}
