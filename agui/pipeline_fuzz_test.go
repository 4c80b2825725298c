package agui_test

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/agui/conformance"
)

// fuzzLimits are such that no input can make a thread large.
var fuzzLimits = agui.Limits{Event: 4 << 10, Depth: 40, State: 4 << 10, Context: 16 << 10, PatchOps: 20, OpenItems: 50, Warnings: 5}

// FuzzPipeline applies the lines of any text as the events of one stream.
func FuzzPipeline(f *testing.F) {
	for _, c := range allCases(f) {
		f.Add(lines(&c))
	}
	f.Fuzz(func(t *testing.T, text []byte) { foldEverywhere(t, bytes.Split(text, []byte("\n"))) })
}

// FuzzSequence applies recorded events in any order: each pair of bytes names one.
func FuzzSequence(f *testing.F) {
	var events [][]byte
	for _, c := range allCases(f) {
		first, sequence := len(events), []byte(nil)
		events = append(events, bytes.Split(lines(&c), []byte("\n"))...)
		for i := first; i < len(events); i++ {
			sequence = append(sequence, byte(i>>8), byte(i))
		}
		f.Add(sequence)
	}
	f.Fuzz(func(t *testing.T, sequence []byte) {
		var stream [][]byte
		for ; len(sequence) > 1 && len(stream) < 200; sequence = sequence[2:] {
			at := int(sequence[0])<<8 | int(sequence[1])
			stream = append(stream, events[at%len(events)])
		}
		foldEverywhere(t, stream)
	})
}

// FuzzReplay reads any bytes as a log: nothing may panic, and what was read is a sound thread that can be stored.
func FuzzReplay(f *testing.F) {
	for _, c := range allCases(f) {
		th, log := agui.NewThread("t", fuzzLimits), []byte(nil)
		for i, line := range bytes.Split(lines(&c), []byte("\n")) {
			applied, _ := applyOrFail(th, uint64(i), line)
			log = append(log, applied.Stored...)
		}
		f.Add(log)
	}
	input := agui.Entry{Kind: agui.KindInput, Payload: []byte(`{"runId":"r","messages":[{"id":"a","role":"activity"}],"state":1,"statePatch":[]}`)}
	f.Add(input.Append(nil))
	f.Fuzz(func(t *testing.T, log []byte) {
		th, store := agui.NewThread("t", fuzzLimits), foldStore{}
		th.ReplayAll(log)
		th.RunInput(true)
		store.write(t, th)
		for _, event := range []string{`{"type":"ACTIVITY_DELTA","messageId":"a","activityType":"t","patch":[]}`, `{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"n"}`} {
			_, _ = th.Apply(0, []byte(event))
		}
		th.PendingToolCalls()
	})
}

// FuzzThreadIsItsLog is TestThreadIsItsLog driven by the fuzzer.
func FuzzThreadIsItsLog(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(threadIsItsLog))
}

func allCases(t testing.TB) []conformance.Case {
	t.Helper()
	cases, err := conformance.Own()
	if err != nil {
		t.Fatal(err)
	}
	const shared = "../../shared/conformance"
	if _, err := os.Stat(shared); err == nil {
		more, err := conformance.Load(shared)
		if err != nil {
			t.Fatal(err)
		}
		cases = append(cases, more...)
	}
	return cases
}

// foldEverywhere folds a stream. Nothing may panic or grow beyond the limits, and the log gives the thread again, replayed
// as a whole, entry by entry, and upon a stored fold. A refused event closes its run, and the stream goes on with the next.
func foldEverywhere(t *testing.T, stream [][]byte) {
	th, mirror := agui.NewThread("t", fuzzLimits), agui.NewThread("t", fuzzLimits)
	store, log, stored := foldStore{}, []byte(nil), 0
	for i, line := range stream {
		applied, ok := applyOrFail(th, uint64(i), line)
		log = append(log, applied.Stored...)
		if errs := mirror.ReplayAll(applied.Stored); len(errs) > 0 {
			t.Fatalf("replay of %q: %v", line, errs)
		}
		if i%4 == 3 {
			store.write(t, mirror)
			stored = len(log)
		}
		if !ok && th.Closed() {
			th.Await("")
			mirror.Await("")
		}
	}
	if most := fuzzLimits.Context + fuzzLimits.State + 2*fuzzLimits.Event; th.Size() > most {
		t.Fatalf("size %d", th.Size())
	}
	loaded := store.restore(t, "t", fuzzLimits)
	if errs := loaded.ReplayAll(log[stored:]); len(errs) > 0 {
		t.Fatalf("replay upon the fold: %v", errs)
	}
	for name, again := range map[string]*agui.Thread{"live": th, "mirror": mirror, "replayed": replay(t, "t", log, fuzzLimits), "loaded": loaded} {
		if th.Closed() != again.Closed() { // awaits another run, which only its first event records
			again.Await("")
		}
		if wrong := sound(again); wrong != "" {
			t.Fatalf("%s: %s", name, wrong)
		}
		if wrong := differ(th, again); wrong != "" {
			t.Fatalf("live and %s: %s", name, wrong)
		}
	}
}

// applyOrFail applies an event, or closes the run because of it. It reports whether the stream may go on.
func applyOrFail(th *agui.Thread, offset uint64, line []byte) (agui.Applied, bool) {
	applied, v := th.Apply(offset, line)
	if v == nil || !v.Fatal() {
		return applied, true
	}
	return th.Fail(offset, v), false
}

// lines is a case's stream, its thread renamed so that it is the fuzzed one.
func lines(c *conformance.Case) []byte {
	var text []byte
	for _, event := range c.Stream {
		var compact bytes.Buffer
		if json.Compact(&compact, event) == nil {
			event = compact.Bytes()
		}
		text = append(append(text, event...), '\n')
	}
	named, _ := json.Marshal(c.ThreadID())
	return bytes.TrimSuffix(bytes.ReplaceAll(text, named, []byte(`"t"`)), []byte("\n"))
}
