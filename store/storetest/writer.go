package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
)

// writer makes the commits of one thread, as a service would. A commit that was made is assumed to be written.
type writer struct {
	tenant, id string
	key        store.Key
	version    uint64
	hash       [32]byte
	fence      uint64
	stream     string
	next       uint64
	active     string
	runs       int64
}

const leaseTTL = time.Minute

func newWriter(tenant, id string) *writer {
	return &writer{tenant: tenant, id: id, key: store.KeyOf(tenant, id)}
}

// commit is a commit that appends one segment with the payloads as entries, or none.
func (w *writer) commit(payloads ...string) *store.Commit {
	c := &store.Commit{Key: w.key, ExpectVersion: w.version, ExpectFence: w.fence}
	if len(payloads) > 0 {
		c.Segments = []store.Segment{w.segment(agui.KindEvent, payloads...)}
	}
	return w.head(c)
}

// segment advances the log.
func (w *writer) segment(kind agui.Kind, payloads ...string) store.Segment {
	s := store.Segment{FirstVersion: w.version + 1, RunID: w.active, StreamID: w.stream, FirstOffset: w.next}
	for _, payload := range payloads {
		entry := agui.Entry{Kind: kind, Offset: w.next, Payload: []byte(payload)}
		stored := entry.Append(nil)
		s.Entries = append(s.Entries, stored...)
		w.hash = agui.Chain(w.hash, stored)
		w.version++
		if kind == agui.KindEvent {
			w.next++
		}
	}
	s.LastVersion, s.NextOffset = w.version, w.next
	return s
}

// head sets a commit's head to where the writer stands.
func (w *writer) head(c *store.Commit) *store.Commit {
	c.Version, c.Hash, c.Fence = w.version, w.hash, w.fence
	c.StreamID, c.NextOffset, c.ActiveRun, c.LeaseTTL, c.Runs = w.stream, w.next, w.active, leaseTTL, w.runs
	return c
}

// create makes the thread, with an input entry if given.
func (w *writer) create(inputs ...string) *store.Commit {
	c := &store.Commit{Key: w.key, Create: &store.NewThread{Tenant: w.tenant, ThreadID: w.id}}
	if len(inputs) > 0 {
		c.Segments = []store.Segment{w.segment(agui.KindInput, inputs...)}
	}
	return w.head(c)
}

// recreate is create for a thread that may have been deleted.
func (w *writer) recreate(inputs ...string) *store.Commit {
	c := w.create(inputs...)
	c.Create.ReplaceDeleted = true
	return c
}

// start opens a run with an input entry and a new fence.
func (w *writer) start(runID, input string) *store.Commit {
	c := &store.Commit{Key: w.key, ExpectVersion: w.version, ExpectFence: w.fence, RunStarted: true}
	w.fence, w.stream, w.next, w.active, w.runs = w.fence+1, runID, 0, runID, w.runs+1
	c.Opened = []store.Run{{
		RunID: runID, Ordinal: w.runs, StreamID: runID, InputHash: [32]byte{1, byte(w.runs)}, Fence: w.fence,
		FirstVersion: w.version + 1, Status: store.RunActive,
	}}
	c.Segments = []store.Segment{w.segment(agui.KindInput, input)}
	return w.head(c)
}

// finish ends the active run with the payload as its last event.
func (w *writer) finish(payload string) *store.Commit {
	c := &store.Commit{Key: w.key, ExpectVersion: w.version, ExpectFence: w.fence}
	c.Segments = []store.Segment{w.segment(agui.KindEvent, payload)}
	c.Updated = []store.Run{{
		RunID: w.active, Status: store.RunFinished, LastVersion: w.version, NextOffset: w.next,
		ProtocolVersion: agui.Value(`"1.1"`), Outcome: agui.Value(`{"type":"success"}`), Result: agui.Value(`1e400`),
	}}
	w.active = ""
	return w.head(c)
}

func message(position int64, body string) agui.StoredMessage {
	return agui.StoredMessage{Position: position, ID: fmt.Sprintf("m%d", position), Role: agui.RoleUser, Body: agui.Value(body)}
}

// must commits and fails the test unless all succeed.
func must(t testing.TB, s store.Store, commits ...*store.Commit) []store.Result {
	t.Helper()
	results := s.Commit(t.Context(), commits)
	for i, r := range results {
		if r.Err != nil {
			t.Fatalf("commit %d: %v", i, r.Err)
		}
	}
	return results
}

// ok fails the test on an error and passes a value on.
func ok[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func load(t testing.TB, s store.Store, key store.Key) *store.Loaded {
	t.Helper()
	return ok[*store.Loaded](t)(s.Load(t.Context(), key))
}

// logOf reads a whole log, page by page, and checks that it has no gaps.
func logOf(t testing.TB, s store.Store, key store.Key, from uint64, page int) []store.Segment {
	t.Helper()
	var all []store.Segment
	for {
		segments := ok[[]store.Segment](t)(s.Log(t.Context(), key, from, page))
		if len(segments) == 0 {
			return all
		}
		for _, segment := range segments {
			if len(all) > 0 && segment.FirstVersion != from {
				t.Fatalf("the log goes on with version %d, want %d", segment.FirstVersion, from)
			}
			all, from = append(all, segment), segment.LastVersion+1
		}
	}
}

// payloads are the payloads of the entries of segments.
func payloads(t testing.TB, segments []store.Segment) (texts []string) {
	t.Helper()
	for _, s := range segments {
		if s.Err != nil {
			t.Fatal(s.Err)
		}
		for _, e := range ok[[]agui.Entry](t)(agui.DecodeEntries(s.Entries)) {
			texts = append(texts, string(e.Payload))
		}
	}
	return texts
}
