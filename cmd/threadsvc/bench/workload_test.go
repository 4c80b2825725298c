package bench

import (
	"bytes"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/threadsvc/threadsvc/agui"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// workloads are of every kind that the flags allow.
func workloads() map[string]Workload {
	all := map[string]Workload{}
	for name, change := range map[string]func(*Workload){
		"default":     func(*Workload) {},
		"no calls":    func(w *Workload) { w.ToolCalls = 0 },
		"no text":     func(w *Workload) { w.Tokens = 0 },
		"nothing":     func(w *Workload) { w.Tokens, w.ToolCalls, w.Deltas, w.StateBytes = 0, 0, 0, 0 },
		"snapshots":   func(w *Workload) { w.Snapshots = "all" },
		"messages":    func(w *Workload) { w.Snapshots = "messages" },
		"state":       func(w *Workload) { w.Snapshots = "state" },
		"keep":        func(w *Workload) { w.KeepMessages = 5 },
		"large state": func(w *Workload) { w.StateBytes, w.Deltas = 400<<10, 3 }, // more than one event can set up
		"single":      func(w *Workload) { w.Batch = 1 },
		"many deltas": func(w *Workload) { w.Tokens, w.Deltas = 3, 50 },
	} {
		w := defaultOptions().Workload
		w.Threads, w.Runs = 2, 3
		change(&w)
		all[name] = w
	}
	return all
}

// TestWorkloadIsValidProtocol folds every thread: no event may be refused, changed or warned about, and what snapshots
// restate must be what the thread holds.
func TestWorkloadIsValidProtocol(t *testing.T) {
	t.Parallel()
	for name, w := range workloads() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := range w.Threads {
				foldScript(t, newScript(&w, "thread", i))
			}
		})
	}
}

func foldScript(t *testing.T, s *script) {
	t.Helper()
	thread := agui.NewThread(s.id, agui.DefaultLimits())
	offset := uint64(0)
	for range 4 {
		runID := s.uuid()
		thread.Await(runID)
		for _, event := range s.run(runID) {
			restatesState := offset > 1 && bytes.Contains(event, []byte(`"STATE_SNAPSHOT"`))
			if restatesState && !bytes.Contains(event, thread.State(nil)) {
				t.Fatalf("offset %d: the snapshot is not of the state", offset)
			}
			messages := thread.MessageCount()
			applied, violation := thread.Apply(offset, event)
			if violation != nil || len(applied.Warnings) > 0 {
				t.Fatalf("offset %d: violation %v, warnings %v, event %.300s", offset, violation, applied.Warnings, event)
			}
			restates := bytes.Contains(event, []byte(`"MESSAGES_SNAPSHOT"`)) && s.KeepMessages == 0
			if restates && thread.MessageCount() != messages {
				t.Fatalf("offset %d: the snapshot has other messages", offset)
			}
			offset++
		}
		if thread.Running() || !bytes.Equal(thread.State(nil), s.state()) || thread.MessageCount() != len(s.messages) {
			t.Fatalf("at the end of a run: running %v, %d messages, want %d", thread.Running(), thread.MessageCount(), len(s.messages))
		}
	}
	if got, want := len(s.state()), int(s.StateBytes); want > 100 && (got > want || got < want-100) {
		t.Errorf("the state has %d bytes, want about %d", got, want)
	}
}

func TestRunHasTheEventsOfTheFlags(t *testing.T) {
	t.Parallel()
	w := defaultOptions().Workload
	s := newScript(&w, "thread", 0)
	s.run("first")
	kinds := map[string]int{}
	for _, event := range s.run("second") {
		decoded, _, violation := agui.Decode(event, agui.DefaultLimits())
		if violation != nil {
			t.Fatal(violation)
		}
		kinds[string(decoded.Type)]++
	}
	for kind, want := range map[string]int{
		"RUN_STARTED": 1, "RUN_FINISHED": 1, "TEXT_MESSAGE_CONTENT": 200, "TEXT_MESSAGE_START": 4, "TEXT_MESSAGE_END": 4,
		"TOOL_CALL_START": 3, "TOOL_CALL_ARGS": 30, "TOOL_CALL_END": 3, "TOOL_CALL_RESULT": 3, "STATE_DELTA": 20,
	} {
		if kinds[kind] != want {
			t.Errorf("%d events %s, want %d", kinds[kind], kind, want)
		}
	}
}

// TestFramesAreRequests reads the frames as the server does.
func TestFramesAreRequests(t *testing.T) {
	t.Parallel()
	for name, w := range workloads() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := newPlan(t.Context(), w, "name")
			if err != nil {
				t.Fatal(err)
			}
			for i := range p.producers {
				checkFrames(t, &p.producers[i], w)
			}
		})
	}
}

func checkFrames(t *testing.T, p *producer, w Workload) {
	t.Helper()
	offset := uint64(0)
	for i, b := range p.batches {
		var request threadsvcv1.AppendEventsRequest
		if err := proto.Unmarshal(b.frame, &request); err != nil {
			t.Fatal(err)
		}
		got := request.GetBatch()
		if (request.GetRun() != nil) != (i == 0) || got.GetOffset() != offset || b.Offset != offset {
			t.Fatalf("batch %d: run %v, offset %d and %d, want %d", i, request.GetRun(), got.GetOffset(), b.Offset, offset)
		}
		if n := len(got.GetEvents()); n == 0 || n > w.Batch || !slices.EqualFunc(got.GetEvents(), b.Events, bytes.Equal) {
			t.Fatalf("batch %d has %d events, which may not be those of the plan", i, n)
		}
		offset += uint64(len(b.Events))
	}
	if len(p.ends) != w.Warmup+w.Runs || p.ends[len(p.ends)-1] != len(p.batches) {
		t.Fatalf("the ends %v of %d batches", p.ends, len(p.batches))
	}
	for _, end := range p.ends {
		last := p.batches[end-1].Events
		if !bytes.Contains(last[len(last)-1], []byte(`"RUN_FINISHED"`)) {
			t.Fatal("a run does not end with its batch")
		}
	}
}

func TestPlanDependsOnTheSeedAlone(t *testing.T) {
	t.Parallel()
	frames := func(seed uint64) (all []byte) {
		w := defaultOptions().Workload
		w.Threads, w.Runs, w.Seed = 3, 2, seed
		p, err := newPlan(t.Context(), w, "name")
		if err != nil {
			t.Fatal(err)
		}
		for _, producer := range p.producers {
			for _, b := range producer.batches {
				all = append(all, b.frame...)
			}
		}
		return all
	}
	if !bytes.Equal(frames(1), frames(1)) {
		t.Error("the same seed gives other events")
	}
	if bytes.Equal(frames(1), frames(2)) {
		t.Error("another seed gives the same events")
	}
}

func TestMeasuredLeavesTheWarmUpOut(t *testing.T) {
	t.Parallel()
	w := defaultOptions().Workload
	w.Threads, w.Warmup, w.Runs = 3, 2, 4
	p, err := newPlan(t.Context(), w, "name")
	if err != nil {
		t.Fatal(err)
	}
	events := 0
	for i, thread := range p.measured() {
		if want := p.producers[i].between(0, 2); thread.Batches[0].Offset != want[len(want)-1].Offset+uint64(len(want[len(want)-1].Events)) {
			t.Errorf("thread %d begins at offset %d", i, thread.Batches[0].Offset)
		}
		for _, b := range thread.Batches {
			events += len(b.Events)
		}
	}
	if events != p.events(2, 6) || p.perRun() != float64(events)/12 {
		t.Errorf("%d events, %d of the runs, %v per run", events, p.events(2, 6), p.perRun())
	}
}

func TestEventsOfRun(t *testing.T) {
	batches := make([]batch, 5)
	for i := range batches {
		batches[i].Events = make([][]byte, i+1)
	}
	s := stream{producer: &producer{batches: batches, ends: []int{2, 5}}}
	for i, want := range []int{3, 3, 12, 12, 12} {
		if got := s.eventsOfRun(i); got != want {
			t.Errorf("the run of batch %d has %d events, want %d", i, got, want)
		}
	}
}
