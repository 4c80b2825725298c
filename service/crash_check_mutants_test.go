package service_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/threadsvc/threadsvc/agui"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
)

// soundThread makes a thread with a log of a few runs, all of whose events were acknowledged.
func soundThread(t *testing.T, seed uint64) (*loadThread, []logged) {
	t.Helper()
	known := &loadThread{id: "thread"}
	thread := agui.NewThread(known.id, agui.DefaultLimits())
	script := newScript(seed, "s")
	var log []logged
	for i := range 4 {
		id := fmt.Sprintf("run%d", i)
		stream := &sentStream{id: id, events: script.stream(known.id, id)}
		known.streams = append(known.streams, stream)
		applied := begin(t, thread, id)
		log = append(log, entriesOf(t, &applied)...)
		stream.input = thread.Version()
		for offset, event := range stream.events {
			applied, v := thread.Apply(uint64(offset), []byte(event.text))
			if v != nil {
				t.Fatalf("%s: %v", event.text, v)
			}
			log = append(log, entriesOf(t, &applied)...)
			stream.acked = offset + 1
			stream.acks = append(stream.acks, ack{stream.acked, thread.Version()})
		}
		hash := thread.Hash()
		known.see(sighting{thread.Version(), sha256.Sum256(thread.RunInput(false).Text), hash[:]})
	}
	return known, log
}

// begin announces a run that answers whatever is open.
func begin(t *testing.T, thread *agui.Thread, id string) agui.Applied {
	t.Helper()
	resume := "["
	for i, interrupt := range thread.OpenInterrupts() {
		var open struct{ ID string }
		if err := json.Unmarshal(interrupt, &open); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			resume += ","
		}
		resume += fmt.Sprintf(`{"interruptId":%q,"status":"cancelled"}`, open.ID)
	}
	text := fmt.Sprintf(`{"threadId":"thread","runId":%q,"resume":%s]}`, id, resume)
	input, _, v := agui.DecodeInput([]byte(text), agui.DefaultLimits())
	if v != nil {
		t.Fatal(v)
	}
	applied, err := thread.Begin(agui.Start{Input: input, Now: time.Now(), AllowUnanswered: true})
	if err != nil {
		t.Fatal(err)
	}
	return applied
}

func entriesOf(t *testing.T, applied *agui.Applied) []logged {
	t.Helper()
	entries := must(agui.DecodeEntries(applied.Stored))(t)
	var log []logged
	for _, e := range entries {
		log = append(log, logged{e, applied.RunID})
	}
	return log
}

// recordOf makes a record that agrees with itself, whatever the log holds: what a service would tell that had committed
// just this log. The fold is that of half of it.
func recordOf(t *testing.T, log []logged) *threadRecord {
	t.Helper()
	thread := agui.NewThread("thread", agui.DefaultLimits())
	r := &threadRecord{loaded: &store.Loaded{}}
	for i, e := range log {
		version, stored := uint64(i+1), e.Append(nil)
		thread.ReplayAll(stored)
		segment := store.Segment{FirstVersion: version, LastVersion: version, RunID: e.run, Entries: stored}
		r.segments = append(r.segments, segment)
		kind := map[agui.Kind]threadsvcv1.EntryKind{1: 1, 2: 2, 3: 3}[e.Kind]
		r.entries = append(r.entries, &threadsvcv1.LogEntry{Version: version, Kind: kind, RunId: e.run, Offset: e.Offset, Payload: slices.Clone(e.Payload)})
		if i == len(log)/2 {
			r.loaded.Fold = foldOf(thread)
		}
		if i > len(log)/2 {
			r.loaded.Tail = append(r.loaded.Tail, segment)
		}
	}
	hash := thread.Hash()
	r.loaded.Head = store.Head{Version: thread.Version(), Hash: hash}
	r.loaded.Fold.Input = thread.Input() // a load brings that of the last run
	r.head = &threadsvcv1.Thread{Version: thread.Version(), LogHash: hash[:]}
	r.info = &threadsvcv1.ContextInfo{Version: thread.Version()}
	r.context = thread.RunInput(false).Text
	for _, m := range thread.Messages() {
		r.messages = append(r.messages, m.AppendTo(nil))
	}
	return r
}

func TestCheckerAcceptsSoundThreads(t *testing.T) {
	t.Parallel()
	for seed := range uint64(15) {
		thread, log := soundThread(t, seed)
		for _, f := range checkThread(thread, recordOf(t, log)) {
			t.Errorf("seed %d: %s: %s", seed, f.kind, f.text)
		}
	}
}

// TestCheckerFindsWrongLogs gives the checker logs that are wrong in one place, of services that believe in them.
func TestCheckerFindsWrongLogs(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		want   findingKind
		change func(log []logged, at int) []logged
	}{
		{"removed", lost, func(log []logged, at int) []logged { return slices.Delete(log, at, at+1) }},
		{"removed with all after it", lost, func(log []logged, at int) []logged { return log[:at] }},
		{"doubled", doubled, func(log []logged, at int) []logged { return slices.Insert(log, at, log[at]) }},
		{"doubled later", doubled, func(log []logged, at int) []logged { return append(log, log[at]) }},
		{"swapped", doubled, func(log []logged, at int) []logged {
			log[at], log[at+1] = log[at+1], log[at]
			return log
		}},
		{"altered", lost, func(log []logged, at int) []logged {
			log[at].Payload = append(slices.Clone(log[at].Payload), ' ')
			return log
		}},
		{"under another offset", lost, func(log []logged, at int) []logged {
			log[at].Offset++
			return log
		}},
		{"of another run", differs, func(log []logged, at int) []logged {
			log[at].run = "unknown"
			return log
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(6) {
				thread, log := soundThread(t, seed)
				at := exactEntry(thread, log)
				wantFinding(t, seed, test.want, checkThread(thread, recordOf(t, test.change(log, at))))
			}
		})
	}
}

// TestCheckerFindsDroppedAndDoubledChunks changes an entry that was expanded from a chunk, which has no text of its own
// to be compared with.
func TestCheckerFindsDroppedAndDoubledChunks(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		thread, log := soundThread(t, seed)
		at := slices.IndexFunc(log, func(e logged) bool { return e.Flags&agui.FlagChunk != 0 })
		if at < 0 {
			continue
		}
		dropped := slices.Delete(slices.Clone(log), at, at+1)
		wantFinding(t, seed, differs, checkThread(thread, recordOf(t, dropped)))
		twice := slices.Insert(slices.Clone(log), at, log[at])
		wantFinding(t, seed, differs, checkThread(thread, recordOf(t, twice)))
	}
}

// TestCheckerFindsWrongRecords gives the checker sound logs, and something beside them that is wrong.
func TestCheckerFindsWrongRecords(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		want   findingKind
		change func(thread *loadThread, r *threadRecord)
	}{
		{"hash", differs, func(_ *loadThread, r *threadRecord) { r.head.LogHash[7] ^= 1 }},
		{"head version", differs, func(_ *loadThread, r *threadRecord) { r.head.Version++ }},
		{"gap between versions", differs, func(_ *loadThread, r *threadRecord) { r.segments[3].FirstVersion++ }},
		{"ReadLog's payload", differs, func(_ *loadThread, r *threadRecord) { r.entries[3].Payload[0] = ' ' }},
		{"ReadLog's versions", differs, func(_ *loadThread, r *threadRecord) { r.entries[3].Version++ }},
		{"unreadable entries", differs, func(_ *loadThread, r *threadRecord) {
			r.unreadable = []*threadsvcv1.UnreadableRange{{FirstVersion: 1, LastVersion: 1}}
		}},
		{"context", differs, func(_ *loadThread, r *threadRecord) { r.context[len(r.context)-2] = ' ' }},
		{"messages", differs, func(_ *loadThread, r *threadRecord) { r.messages = append(r.messages, []byte("{}")) }},
		{"stored state", differs, func(_ *loadThread, r *threadRecord) { r.loaded.Fold.State = agui.Value(`{"other":1}`) }},
		{"stored position", differs, func(_ *loadThread, r *threadRecord) { r.loaded.Fold.Messages[0].Position-- }},
		{"stored message", differs, func(_ *loadThread, r *threadRecord) {
			r.loaded.Fold.Messages = slices.Delete(r.loaded.Fold.Messages, 0, 1)
		}},
		{"stored tracking", differs, func(_ *loadThread, r *threadRecord) { r.loaded.Fold.Tracking = agui.Value(`{"phase":3}`) }},
		{"tail", differs, func(_ *loadThread, r *threadRecord) { r.loaded.Tail = r.loaded.Tail[1:] }},
		{"acknowledged event", lost, func(thread *loadThread, _ *threadRecord) {
			s := thread.streams[3]
			s.events = append(s.events, s.events[0])
			s.acked++
		}},
		{"acknowledged version", differs, func(thread *loadThread, _ *threadRecord) { thread.streams[1].acks[1].version-- }},
		{"acknowledged input", lost, func(thread *loadThread, _ *threadRecord) { thread.streams[1].input++ }},
		{"version shown", lost, func(thread *loadThread, r *threadRecord) {
			thread.see(sighting{version: r.head.GetVersion() + 1})
		}},
		{"context shown", lost, func(thread *loadThread, _ *threadRecord) { thread.sightings[0].context[0] ^= 1 }},
		{"hash shown", lost, func(thread *loadThread, _ *threadRecord) { thread.sightings[0].hash[0] ^= 1 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			thread, log := soundThread(t, 4)
			record := recordOf(t, log)
			test.change(thread, record)
			wantFinding(t, 4, test.want, checkThread(thread, record))
		})
	}
}

// exactEntry finds an entry in the midst of a run that holds the very text of its event, and so does the next one.
func exactEntry(thread *loadThread, log []logged) int {
	events := thread.streams[0].events
	is := func(e logged) bool {
		return e.caused() && e.run == thread.streams[0].id && int(e.Offset) < len(events) && string(e.Payload) == events[e.Offset].text
	}
	for i := range log {
		if is(log[i]) && is(log[i+1]) && log[i].Offset+1 == log[i+1].Offset {
			return i
		}
	}
	return 1 // RUN_STARTED, which comes after the input
}

func wantFinding(t *testing.T, seed uint64, want findingKind, findings []finding) {
	t.Helper()
	if !slices.ContainsFunc(findings, func(f finding) bool { return f.kind == want }) {
		t.Errorf("seed %d: found %v, which has nothing of the kind %q", seed, findings, want)
	}
}
