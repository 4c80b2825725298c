package storetest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
)

// testVersionAt: a time names the last version that was committed by then.
func testVersionAt(t *testing.T, s store.Store) {
	w := newWriter("tenant", "t1")
	results := must(t, s, w.create())
	wants := map[time.Time]uint64{results[0].CommittedAt: 0, results[0].CommittedAt.Add(-time.Hour): 0}
	must(t, s, w.start("r1", `{}`))
	for i := range 9 {
		at := must(t, s, w.commit(make([]string, i%3+1)...))[0].CommittedAt
		wants[at] = w.version
		wants[at.Add(time.Microsecond)] = w.version
		time.Sleep(2 * time.Millisecond) // two commits within one microsecond would have one time
	}
	wants[time.Now().Add(24*time.Hour)] = w.version
	for at, want := range wants {
		if got := ok[uint64](t)(s.VersionAt(t.Context(), w.key, at)); got != want {
			t.Errorf("version %d at %v, want %d", got, at, want)
		}
	}
	if _, err := s.VersionAt(t.Context(), store.KeyOf("other", "t1"), time.Now()); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a thread that nobody made: %v", err)
	}
}

func checkpoint(w *writer, state string) store.Checkpoint {
	return store.Checkpoint{Hash: w.hash, Fold: agui.Fold{
		Version: w.version, State: agui.Value(state), Tracking: []byte(`{}`),
		Messages: []agui.StoredMessage{message(7, `{"id":"m7"}`)},
	}}
}

// testCheckpoints: the last one at or before a version is found, and they never take more than the log.
func testCheckpoints(t *testing.T, s store.Store) {
	w := newWriter("tenant", "t1")
	must(t, s, w.create(), newWriter("other", "t1").create("{}"))
	if _, err := s.CheckpointAt(t.Context(), w.key, 99); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a checkpoint of nothing: %v", err)
	}
	must(t, s, w.start("r1", `{}`))
	if kept := ok[bool](t)(s.PutCheckpoint(t.Context(), w.key, checkpoint(w, Noise(1, 20_000)))); kept {
		t.Error("a checkpoint was kept that is larger than the log")
	}
	must(t, s, w.commit(Noise(2, 1000)))
	since := ok[store.LogSince](t)(s.SinceCheckpoint(t.Context(), w.key, w.version))
	if since.Version != 0 || since.Size != 0 || since.LogSize < 1000 || since.Grown != since.LogSize || !since.Room {
		t.Errorf("before the first checkpoint: %+v", since)
	}
	small := checkpoint(w, `{"a":1}`)
	put(t, s, w, small)
	put(t, s, w, small) // another node was at it too
	must(t, s, w.commit(Noise(3, 3000)))
	must(t, s, w.finish("{}"))
	big := checkpoint(w, `"`+Noise(2, 2000)+strings.Repeat("x", 40_000)+`"`)
	if kept := ok[bool](t)(s.PutCheckpoint(t.Context(), w.key, checkpoint(w, Noise(9, 99_000)))); kept {
		t.Error("a checkpoint was kept that is larger than the log")
	}
	since = ok[store.LogSince](t)(s.SinceCheckpoint(t.Context(), w.key, w.version))
	if since.Version != small.Fold.Version || since.Size != int64(len(small.Fold.Append(nil))) || since.Grown < 3000 {
		t.Errorf("after the first checkpoint: %+v", since)
	}
	must(t, s, w.start("r2", `{}`))
	must(t, s, w.commit(Noise(4, 60_000)))
	big = checkpoint(w, string(big.Fold.State))
	put(t, s, w, big)
	wantCheckpoints(t, s, w.key, map[uint64]*store.Checkpoint{
		small.Fold.Version - 1: nil, small.Fold.Version: &small, big.Fold.Version - 1: &small, big.Fold.Version: &big, 1 << 40: &big,
	})
	if since = ok[store.LogSince](t)(s.SinceCheckpoint(t.Context(), w.key, w.version)); since.Grown != 0 {
		t.Errorf("after the last checkpoint: %+v", since)
	}
	_ = ok[store.Erasure](t)(s.Delete(t.Context(), w.key))
	if _, err := s.CheckpointAt(t.Context(), w.key, 1<<40); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a checkpoint of an erased thread: %v", err)
	}
	if _, err := s.PutCheckpoint(t.Context(), w.key, small); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a checkpoint for an erased thread: %v", err)
	}
}

// wantCheckpoints looks for the checkpoints of versions.
func wantCheckpoints(t *testing.T, s store.Store, key store.Key, wants map[uint64]*store.Checkpoint) {
	t.Helper()
	for version, want := range wants {
		got, err := s.CheckpointAt(t.Context(), key, version)
		switch {
		case want == nil && !errors.Is(err, store.ErrNotFound):
			t.Errorf("version %d: %v", version, err)
		case want != nil && (err != nil || got.Hash != want.Hash || string(got.Fold.Append(nil)) != string(want.Fold.Append(nil))):
			t.Errorf("version %d: %+v and %v", version, got.Fold.Version, err)
		}
	}
}

func put(t *testing.T, s store.Store, w *writer, c store.Checkpoint) {
	t.Helper()
	if kept := ok[bool](t)(s.PutCheckpoint(t.Context(), w.key, c)); !kept {
		t.Errorf("the checkpoint of version %d was not kept", c.Fold.Version)
	}
}

// testEvidence: what is stored beside the log comes back whole.
func testEvidence(t *testing.T, s store.Store) {
	w := newWriter("tenant", "t1")
	if _, err := s.Evidence(t.Context(), w.key); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("evidence of nothing: %v", err)
	}
	must(t, s, w.create())
	if e := ok[*store.Evidence](t)(s.Evidence(t.Context(), w.key)); e.Folded || e.State != nil || e.MetadataAltered || e.Head.Version != 0 {
		t.Errorf("evidence of a new thread: %+v", e)
	}
	must(t, s, w.start("r1", `{}`))
	c := w.commit(Noise(1, 3000), `{}`)
	c.Fold = &agui.Changes{
		Version: w.version, Tracking: []byte(`{"phase":2}`), Upserts: []agui.StoredMessage{message(1, `{"id":"m1"}`), message(9, `{"id":"m9"}`)},
		State: agui.StateChange{Replaced: agui.Value(`{"a":1}`)},
	}
	must(t, s, c)
	put(t, s, w, checkpoint(w, `{"a":1}`))
	base := w.version
	c = w.commit(`{}`)
	patch := agui.StatePatch{Version: w.version, Patch: agui.Value(`[{"op":"add","path":"/b","value":2}]`)}
	c.Fold = &agui.Changes{Version: w.version, Tracking: []byte(`{}`), Deletes: []int64{9}, State: agui.StateChange{Patches: []agui.StatePatch{patch}}}
	must(t, s, c)
	e := ok[*store.Evidence](t)(s.Evidence(t.Context(), w.key))
	if !e.Folded || e.FoldVersion != w.version || string(e.Tracking) != `{}` || string(e.State) != `{"a":1,"b":2}` || len(e.Faults) > 0 || e.MetadataAltered {
		t.Errorf("evidence %+v", e)
	}
	if len(e.Messages) != 1 || string(e.Messages[0].Body) != `{"id":"m1"}` || len(e.Checkpoints) != 1 || e.Checkpoints[0] != base {
		t.Errorf("evidence %+v", e)
	}
	if e.Base.Patch != nil && (e.Base.Version != base || len(e.Patches) != 1 || e.Patches[0].Version != w.version || string(e.Patches[0].Patch) != string(patch.Patch)) {
		t.Errorf("the state's parts: %+v", e)
	}
}

// testNames: all threads are listed, page by page.
func testNames(t *testing.T, s store.Store) {
	wants := map[store.Name]bool{}
	for _, tenant := range []string{"", "a", "b"} {
		for _, id := range []string{"t1", "t2", "t3"} {
			w := newWriter(tenant, id)
			must(t, s, w.create())
			wants[store.Name{Key: w.key, Tenant: tenant, ThreadID: id}] = true
		}
	}
	var after store.Key
	for len(wants) > 0 {
		names := ok[[]store.Name](t)(s.Names(t.Context(), after, 4))
		if len(names) == 0 {
			t.Fatalf("never listed: %v", wants)
		}
		for _, name := range names {
			if !wants[name] {
				t.Fatalf("%v was listed", name)
			}
			delete(wants, name)
			after = name.Key
		}
	}
}

// testImport: a thread is made as it is given, or not at all.
func testImport(t *testing.T, s store.Store) {
	w := newWriter("tenant", "t1")
	_ = w.create()
	c := w.start("r1", `{}`)
	segment := w.segment(agui.KindEvent, Noise(1, 9000), `{}`)
	at := time.Unix(1_700_000_000, 5000).UTC()
	segment.CommittedAt, c.Segments[0].CommittedAt = at.Add(time.Second), at
	head := store.Head{
		Key: w.key, Tenant: "tenant", ThreadID: "t1", Version: w.version, Hash: w.hash, Fence: 7, StreamID: "r1", NextOffset: w.next,
		ActiveRun: "r1", LeaseTTL: time.Minute, Runs: 1, CreatedAt: at, LastRunAt: at.Add(time.Hour),
		Metadata: store.Metadata{Text: []byte(`{"a":"b"}`), Labels: []string{"a\x00b"}},
	}
	run := c.Opened[0]
	run.StartedAt = at
	warning := store.Warning{Version: 2, RunID: "r1", Warning: agui.Warning{Code: agui.EventUnknown, Removed: agui.Value(`1`)}, RemovedBytes: 99, RaisedAt: at}
	feed := func(fail error) func(store.Importer) error {
		return func(to store.Importer) error {
			changes := agui.Changes{Version: w.version, Tracking: []byte(`{}`), Upserts: []agui.StoredMessage{message(1, `{}`)}}
			changes.State.Replaced = agui.Value(`{"a":1}`)
			return errors.Join(to.Segment(&c.Segments[0]), to.Segment(&segment), to.Run(&run), to.Warning(&warning), to.Fold(&changes), fail)
		}
	}
	broken := errors.New("broken")
	if err := s.Import(t.Context(), head, false, feed(broken)); !errors.Is(err, broken) {
		t.Errorf("an import that failed: %v", err)
	}
	if _, err := s.Head(t.Context(), w.key); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("after an import that failed: %v", err)
	}
	if err := s.Import(t.Context(), head, false, feed(nil)); err != nil {
		t.Fatal(err)
	}
	if err := s.Import(t.Context(), head, false, feed(nil)); !errors.Is(err, store.ErrConflict) {
		t.Errorf("imported twice: %v", err)
	}
	wantImported(t, s, w, &head)
}

// wantImported compares a thread with what was imported.
func wantImported(t *testing.T, s store.Store, w *writer, head *store.Head) {
	t.Helper()
	at := head.CreatedAt
	loaded := load(t, s, w.key)
	if got := loaded.Head; got.Hash != w.hash || got.Fence != 7 || !got.CreatedAt.Equal(at) || !got.LastRunAt.Equal(head.LastRunAt) || got.LeaseExpired ||
		got.LeaseExpiresAt.IsZero() || string(got.Metadata.Text) != `{"a":"b"}` || len(got.Metadata.Labels) != 1 {
		t.Errorf("head %+v", got)
	}
	if string(loaded.Fold.State) != `{"a":1}` || len(loaded.Fold.Messages) != 1 || len(loaded.Tail) != 0 || !loaded.LastRun.StartedAt.Equal(at) {
		t.Errorf("loaded %+v", loaded)
	}
	log := logOf(t, s, w.key, 1, 1<<20)
	if texts := payloads(t, log); len(texts) != 3 || texts[1] != Noise(1, 9000) {
		t.Errorf("log %.40q", texts)
	}
	if last := log[len(log)-1]; !last.CommitTime(3).Equal(at.Add(time.Second)) || !log[0].CommitTime(1).Equal(at) {
		t.Errorf("times %v %v", log[0].CommitTime(1), last.CommitTime(3))
	}
	if rows := ok[[]store.Warning](t)(s.Warnings(t.Context(), w.key, store.WarningPlace{}, 5)); len(rows) != 1 || rows[0].RemovedBytes != 99 || !rows[0].RaisedAt.Equal(at) {
		t.Errorf("warnings %+v", rows)
	}
}
