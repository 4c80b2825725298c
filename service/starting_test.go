package service_test

import (
	"testing"

	"google.golang.org/grpc/codes"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

func fromLastCompleted(r *threadsvcv1.StartRunRequest) {
	r.StartingState = threadsvcv1.StartingState_STARTING_STATE_LAST_COMPLETED
}

func withStatePatch(patch string) startOption {
	return func(r *threadsvcv1.StartRunRequest) {
		r.StateChange = &threadsvcv1.StartRunRequest_StatePatch{StatePatch: []byte(patch)}
	}
}

func withState(state string) startOption {
	return func(r *threadsvcv1.StartRunRequest) {
		r.StateChange = &threadsvcv1.StartRunRequest_State{State: []byte(state)}
	}
}

// What runs without an ordinary end did to the state can be taken back; which ends are ordinary is the same as for the sign
// that the state was touched by an incomplete run.
func TestRunStartsFromTheLastCompletedState(t *testing.T) {
	t.Parallel()
	change := stateDelta(operations(replace("/a", "2")))
	for name, tc := range map[string]struct {
		last func(c *conversation)
		want string
	}{
		"truncated":          {func(c *conversation) { c.open("r2", change); c.end("r2", "") }, `{"a":1}`},
		"active, taken over": {func(c *conversation) { c.open("r2", change) }, `{"a":1}`},
		"failed":             {func(c *conversation) { c.open("r2", change, event("RUN_ERROR", "message", `"no"`)) }, `{"a":1}`},
		"broken": {func(c *conversation) {
			c.open("r2", change)
			_, err := c.tryAppend(textEnd("nothing"))
			wantReason(c.t, err, codes.InvalidArgument, "PROTOCOL_VIOLATION")
		}, `{"a":1}`},
		"failed late": {func(c *conversation) {
			c.open("r2", change, runFinished("t1", "r2"), event("RUN_ERROR", "message", `"no"`))
		}, `{"a":1}`},
		"finished": {func(c *conversation) { c.record("r2", change) }, `{"a":2}`},
		"cancelled": {func(c *conversation) {
			c.open("r2", change, runFinished("t1", "r2", "outcome", `{"type":"cancelled"}`))
		}, `{"a":2}`},
		"interrupted and given up": {func(c *conversation) {
			c.open("r2", change, interrupted("t1", "r2", "i1"))
			c.end("r2", "")
		}, `{"a":2}`},
		"several": {func(c *conversation) {
			for _, run := range []string{"r2", "r3", "r4"} {
				c.open(run, stateSnapshot(`{"gone":true}`), textStart("m"+run))
				c.end(run, "")
			}
		}, `{"a":1}`},
		"finished with null, then ended": {func(c *conversation) {
			c.record("r2", stateSnapshot(`null`))
			c.open("r3", stateSnapshot(`{"gone":true}`))
			c.end("r3", "")
		}, ``},
		"brought a state": {func(c *conversation) {
			c.start("r2", withState(`{"brought":true}`))
			c.end("r2", "")
		}, `{"a":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newConversation(t)
			c.record("r1", stateSnapshot(`{"a":1}`))
			tc.last(c)
			messages := len(c.context().Messages)
			start, input := c.start("next", fromLastCompleted, withPolicy(takeOver))
			if string(input.State) != tc.want || start.GetStateTouchedByIncompleteRun() || len(input.Messages) != messages {
				t.Errorf("state %s, touched %v, %d messages; want %s and %d", input.State, start.GetStateTouchedByIncompleteRun(), len(input.Messages), tc.want, messages)
			}
			c.append(runStarted("t1", "next"), runFinished("t1", "next"))
			c.wantState(tc.want)
			c.stillWorks()
		})
	}
}

// Without a run that has ended ordinarily it is the state the thread was created with.
func TestRunStartsFromTheInitialState(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	must(c.client.CreateThread(t.Context(), &threadsvcv1.CreateThreadRequest{Thread: threadName("t1"), State: []byte(`{"tenant":"x"}`)}))(t)
	if _, input := c.start("r0", fromLastCompleted); string(input.State) != `{"tenant":"x"}` {
		t.Errorf("state %s before any run", input.State)
	}
	c.append(runStarted("t1", "r0"), stateSnapshot(`{"gone":1}`))
	if _, input := c.start("r1", fromLastCompleted, withPolicy(takeOver)); string(input.State) != `{"tenant":"x"}` {
		t.Errorf("state %s after one lost run", input.State)
	}
	bare := converse(t, c.client, "t2")
	if _, input := bare.start("r0", fromLastCompleted); string(input.State) != `{}` {
		t.Errorf("state %s of a new thread", input.State)
	}
	bare.append(runStarted("t2", "r0"), stateSnapshot(`{"gone":1}`))
	if _, input := bare.start("r1", fromLastCompleted, withPolicy(takeOver)); string(input.State) != `{}` {
		t.Errorf("state %s after the first run was lost", input.State)
	}
	bare.stillWorks()
}

// The change that comes with the run is applied to that state, all of it is one entry of the log, and the same request again
// gives the same run.
func TestStateChangeOnTheLastCompletedState(t *testing.T) {
	t.Parallel()
	sides := twoServers(t)
	sides[0].record("r1", stateSnapshot(`{"a":1.10,"b":[]}`))
	sides[0].open("r2", stateSnapshot(`{"gone":1}`))
	sides[0].end("r2", "")
	_, _, err := sides[1].tryStart("r3", fromLastCompleted, withStatePatch(operations(replace("/gone", "2"))))
	wantReason(t, err, codes.InvalidArgument, "INVALID_INPUT")

	patch := withStatePatch(operations(add("/b/-", "2")))
	first, input := sides[1].start("r3", fromLastCompleted, patch)
	if string(input.State) != `{"a":1.10,"b":[2]}` {
		t.Errorf("state %s", input.State)
	}
	log := sides[0].log()
	if last := log[len(log)-1]; last.GetKind() != threadsvcv1.EntryKind_ENTRY_KIND_INPUT || last.GetVersion() != first.GetVersion() {
		t.Errorf("the last entry is %v", last)
	}
	for i, side := range sides {
		again, text, err := side.tryStart("r3", fromLastCompleted, patch)
		if err != nil || !again.GetRepeatedRequest() || string(text) != string(input.text) {
			t.Errorf("server %d: again: %v, %s, %v; want %s", i, again, text, err, input.text)
		}
		_, _, err = side.tryStart("r3", patch)
		wantReason(t, err, codes.AlreadyExists, "RUN_EXISTS")
	}
	sides[0].append(runStarted("t1", "r3"), runFinished("t1", "r3"))
	sides[1].wantState(`{"a":1.10,"b":[2]}`)

	// A whole state leaves nothing to take back.
	sides[0].open("r4", stateSnapshot(`{"gone":1}`))
	if _, input := sides[1].start("r5", fromLastCompleted, withState(`7`), withPolicy(takeOver)); string(input.State) != `7` {
		t.Errorf("state %s", input.State)
	}
	sides[1].stillWorks()
}

func TestStartingStateNobodyKnows(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	_, _, err := c.tryStart("r1", func(r *threadsvcv1.StartRunRequest) { r.StartingState = 99 })
	if meta := wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST"); meta["field"] != "starting_state" {
		t.Errorf("metadata %v", meta)
	}
}
