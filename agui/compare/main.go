// Compare writes random AG-UI threads, one JSON object to a line, with what this module's engine makes of them, for
// compare.mjs to fold again with the official client:
//
//	npm install && npm run compare
//
// Nothing of this is part of the service or of its tests.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"log"
	"os"
	"time"

	"pgregory.net/rapid"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/agui/aguitest"
)

// stream is what one producer sends: the input its run is started with, if there is one, and its events.
type stream struct {
	Input  json.RawMessage   `json:"input,omitempty"`
	Events []json.RawMessage `json:"events"`
	// Refused is the index of the event that breaks the protocol, -1 if none does.
	Refused int `json:"refused"`
}

// thread is a line of the output.
type thread struct {
	Seed     int               `json:"seed"`
	Streams  []*stream         `json:"streams"`
	State    json.RawMessage   `json:"state"`
	Messages []json.RawMessage `json:"messages"`
}

func main() {
	count := flag.Int("threads", 2000, "number of random threads")
	faults := flag.Int("faults", 0, "percentage of events that are likely to break the protocol")
	first := flag.Int("seed", 1, "seed of the first thread")
	flag.Parse()
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	generator := rapid.Custom(func(t *rapid.T) []aguitest.Step {
		return aguitest.Stream(t, aguitest.Options{Plain: true, Faults: *faults})
	})
	for seed := *first; seed < *first+*count; seed++ {
		if err := encoder.Encode(fold(seed, generator.Example(seed))); err != nil {
			log.Fatal(err)
		}
	}
}

// fold plays the steps to the engine.
func fold(seed int, steps []aguitest.Step) *thread {
	t, th := &thread{Seed: seed}, agui.NewThread("t", agui.DefaultLimits())
	var now *stream
	for _, step := range steps {
		switch {
		case step.Input != nil || step.Await != "":
			now = open(th, step)
			t.Streams = append(t.Streams, now)
		case step.Abandon:
			th.Truncate(agui.LeaseExpired)
		case step.End:
			th.End("")
		case now.Refused < 0:
			now.apply(th, step.Event)
		}
	}
	t.State = th.State(nil)
	for _, m := range th.Messages() {
		t.Messages = append(t.Messages, m.AppendTo(nil))
	}
	return t
}

// open starts a stream, after closing what the one before left open.
func open(th *agui.Thread, step aguitest.Step) *stream {
	if th.Running() {
		th.Truncate(agui.LeaseExpired)
	}
	s := &stream{Input: step.Input, Refused: -1, Events: []json.RawMessage{}}
	if step.Await != "" {
		th.Await(step.Await)
		return s
	}
	in, _, v := agui.DecodeInput(step.Input, agui.DefaultLimits())
	if v != nil {
		log.Fatalf("input: %v", v)
	}
	if len(th.OpenInterrupts()) == 0 {
		in.Resume = nil // the run it answers has failed
	}
	if _, err := th.Begin(agui.Start{Input: in, AllowUnanswered: true, Now: time.Unix(0, 0)}); err != nil {
		log.Fatalf("begin: %v", err)
	}
	return s
}

func (s *stream) apply(th *agui.Thread, event []byte) {
	offset := len(s.Events)
	if json.Valid(event) {
		s.Events = append(s.Events, event)
	} else {
		s.Events = append(s.Events, json.RawMessage("null")) // no transport would hand it over
	}
	if _, v := th.Apply(uint64(offset), event); v != nil {
		s.Refused = offset
		th.Fail(uint64(offset), v)
	}
}
