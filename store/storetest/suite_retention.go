package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
)

// finishFolded ends the active run and brings the stored fold up to date, with a state.
func (w *writer) finishFolded(state string) *store.Commit {
	c := w.finish(`{}`)
	c.Fold = &agui.Changes{Version: w.version, Tracking: []byte(`{}`), State: agui.StateChange{Replaced: agui.Value(state)}}
	return c
}

// runsOf takes a thread through runs, each of which says the same large thing, and returns the versions they end with.
func runsOf(t *testing.T, s store.Store, w *writer, n int) (ends []uint64) {
	t.Helper()
	must(t, s, w.create())
	for i := range n {
		must(t, s, w.start(fmt.Sprint("r", i), `{}`))
		c := w.commit(`"`+Noise(1, 6000)+`"`, `"`+Noise(10+i, 6000)+`"`)
		c.Warnings = []store.Warning{{Version: w.version, RunID: w.active, Warning: agui.Warning{Code: "C"}}}
		must(t, s, c)
		must(t, s, w.finishFolded(fmt.Sprintf(`{"n":%d}`, i)))
		ends = append(ends, w.version)
	}
	return ends
}

// cutAt cuts a thread where keep says, with a checkpoint of a given hash.
func cutAt(t *testing.T, s store.Store, w *writer, keep store.Keep, hash [32]byte) (store.Plan, error) {
	t.Helper()
	plan := ok[store.Plan](t)(s.PlanCut(t.Context(), w.key, keep))
	if plan.Cut.Version == 0 {
		return plan, nil
	}
	c := store.Checkpoint{Fold: agui.Fold{Version: plan.Cut.Version, State: agui.Value(`"` + Noise(1, 6000) + `"`)}, Hash: hash}
	if err := s.PutCut(t.Context(), w.key, c); err != nil {
		t.Fatal(err)
	}
	return plan, s.Cut(t.Context(), w.key, plan.Cut, hash)
}

func sweepAll(t *testing.T, s store.Store, key store.Key) {
	t.Helper()
	for more := true; more; {
		more = ok[bool](t)(s.Sweep(t.Context(), key, 2))
	}
}

// testPlanCut: each limit by itself, and the last run, which is always kept.
func testPlanCut(t *testing.T, s store.Store) {
	w := newWriter("tenant", "t1")
	if _, err := s.PlanCut(t.Context(), w.key, store.Keep{MaxRuns: 1}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a plan for nothing: %v", err)
	}
	ends := runsOf(t, s, w, 4)
	for name, c := range map[string]struct {
		keep store.Keep
		run  int64
	}{
		"nothing": {store.Keep{}, 0}, "more runs than there are": {store.Keep{MaxRuns: 4}, 0}, "two runs": {store.Keep{MaxRuns: 2}, 2},
		"no age": {store.Keep{MaxAge: time.Microsecond}, 3}, "a long age": {store.Keep{MaxAge: time.Hour}, 0},
		"one byte": {store.Keep{MaxBytes: 1}, 3}, "all bytes": {store.Keep{MaxBytes: 1 << 30}, 0},
		"the size of two runs": {store.Keep{MaxBytes: 25_000}, 2}, "the end of a run": {store.Keep{Before: ends[1]}, 2},
		"within a run": {store.Keep{Before: ends[1] - 1}, 1}, "the end": {store.Keep{Before: ends[3]}, 3},
		"what asks for most": {store.Keep{MaxRuns: 3, MaxBytes: 1}, 3}, "a grace": {store.Keep{MaxRuns: 1, Grace: time.Hour}, 0},
	} {
		plan := ok[store.Plan](t)(s.PlanCut(t.Context(), w.key, c.keep))
		want := uint64(0)
		if c.run > 0 {
			want = ends[c.run-1]
		}
		if plan.Cut.Run != c.run || plan.Cut.Version != want || plan.Head.Version != w.version {
			t.Errorf("%s: %+v, want run %d and version %d", name, plan.Cut, c.run, want)
		}
	}
	if plan := ok[store.Plan](t)(s.PlanCut(t.Context(), w.key, store.Keep{MaxAge: time.Hour})); plan.Next.Before(time.Now().Add(59 * time.Minute)) {
		t.Errorf("the next look is at %v", plan.Next)
	}
}

// testCut: a cut is made as planned or not at all; what lies before is refused, and the rest, the present included, stays.
func testCut(t *testing.T, s store.Store) {
	w := newWriter("tenant", "t1")
	ends := runsOf(t, s, w, 4)
	all, before := logOf(t, s, w.key, 1, 1<<20), load(t, s, w.key)
	plan, err := cutAt(t, s, w, store.Keep{Before: ends[1]}, [32]byte{7})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Cut(t.Context(), w.key, plan.Cut, [32]byte{7}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("the same cut again: %v", err)
	}
	for _, version := range []uint64{ends[0], ends[1]} {
		if err := s.PutCut(t.Context(), w.key, store.Checkpoint{Fold: agui.Fold{Version: version}}); !errors.Is(err, store.ErrConflict) {
			t.Errorf("the checkpoint of a cut at version %d: %v", version, err)
		}
	}
	next := ok[store.Plan](t)(s.PlanCut(t.Context(), w.key, store.Keep{MaxRuns: 1}))
	if err := s.Cut(t.Context(), w.key, next.Cut, [32]byte{7}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a cut without a checkpoint: %v", err)
	}
	head := ok[store.Head](t)(s.Head(t.Context(), w.key))
	if head.FirstVersion != ends[1] || head.FirstHash != [32]byte{7} || head.PrunedRuns != 2 || !head.FirstAt.Equal(plan.Cut.CommittedAt) || head.FirstAt.IsZero() {
		t.Errorf("head %+v", head)
	}
	if keys := ok[[]store.Key](t)(s.Unswept(t.Context(), 9)); len(keys) != 1 || keys[0] != w.key {
		t.Errorf("garbage of %v", keys)
	}
	sweepAll(t, s, w.key)
	if keys := ok[[]store.Key](t)(s.Unswept(t.Context(), 9)); len(keys) != 0 {
		t.Errorf("garbage of %v after the sweep", keys)
	}
	wantPrunedLog(t, s, w, ends[1], payloads(t, all)[ends[1]:])
	if after := load(t, s, w.key); fmt.Sprint(after.Fold) != fmt.Sprint(before.Fold) || after.LastRun.RunID != before.LastRun.RunID || after.Head.Hash != before.Head.Hash {
		t.Errorf("the thread was %+v and is %+v", before.Fold, after.Fold)
	}
	if c := ok[store.Checkpoint](t)(s.CheckpointAt(t.Context(), w.key, ends[1])); string(c.Fold.State) != `"`+Noise(1, 6000)+`"` {
		t.Error("the checkpoint of the cut has another state")
	}
	wantLeft(t, s, w, head)
	must(t, s, w.start("r9", `{}`))
	if plan = ok[store.Plan](t)(s.PlanCut(t.Context(), w.key, store.Keep{MaxRuns: 1})); plan.Head.ActiveRun != "r9" {
		t.Errorf("plan %+v", plan)
	}
	if _, err := cutAt(t, s, w, store.Keep{MaxRuns: 1}, [32]byte{8}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a cut of a busy thread: %v", err)
	}
}

// wantPrunedLog reads a log that was cut, before the cut and after it.
func wantPrunedLog(t *testing.T, s store.Store, w *writer, cut uint64, want []string) {
	t.Helper()
	var pruned *store.PrunedError
	for _, from := range []uint64{1, cut} {
		if _, err := s.Log(t.Context(), w.key, from, 1); !errors.As(err, &pruned) || !errors.Is(err, store.ErrPruned) || pruned.FirstVersion != cut || pruned.Version != from {
			t.Errorf("the log from %d: %v", from, err)
		}
	}
	got := payloads(t, logOf(t, s, w.key, cut+1, 1))
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the log has %d entries, want %d", len(got), len(want))
	}
}

// wantLeft looks at the rows and the times of a thread of four runs that was cut after the second.
func wantLeft(t *testing.T, s store.Store, w *writer, head store.Head) {
	t.Helper()
	runs := ok[[]store.Run](t)(s.Runs(t.Context(), w.key, 0, 9))
	warnings := ok[[]store.Warning](t)(s.Warnings(t.Context(), w.key, store.WarningPlace{Ordinal: -1}, 9))
	if len(runs) != 2 || runs[1].Ordinal != 3 || len(warnings) != 2 || warnings[0].Version <= head.FirstVersion {
		t.Errorf("%d runs and %d warnings are left", len(runs), len(warnings))
	}
	if v, err := s.VersionAt(t.Context(), w.key, head.FirstAt); err != nil || v != head.FirstVersion {
		t.Errorf("version %d at the cut: %v", v, err)
	}
	if _, err := s.VersionAt(t.Context(), w.key, head.FirstAt.Add(-time.Microsecond)); !errors.Is(err, store.ErrPruned) {
		t.Errorf("a time before the cut: %v", err)
	}
}

// testPolicies: policies are kept, and say which threads are to be looked at: once, and again after a run or a change.
func testPolicies(t *testing.T, s store.Store) {
	ctx := t.Context()
	if _, err := s.Policy(ctx, "tenant"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a policy that nobody made: %v", err)
	}
	if err := s.DeletePolicy(ctx, "tenant"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("deleting it: %v", err)
	}
	w, other := newWriter("tenant", "t1"), newWriter("another", "t1")
	runsOf(t, s, w, 2)
	runsOf(t, s, other, 1)
	keep := store.Keep{MaxAge: 90 * time.Minute, MaxRuns: 2, MaxBytes: 3}
	set := ok[store.Policy](t)(s.SetPolicy(ctx, store.Policy{Tenant: "tenant", Keep: keep}))
	if got := ok[store.Policy](t)(s.Policy(ctx, "tenant")); got != set || got.Keep != keep || got.UpdatedAt.IsZero() {
		t.Errorf("policy %+v", got)
	}
	due := wantDue(t, s, 1)
	if due[0].Key != w.key || due[0].Policy != set {
		t.Errorf("due %+v", due)
	}
	for name, at := range map[string]time.Time{"never": {}, "later": time.Now().Add(time.Hour)} {
		set = ok[store.Policy](t)(s.SetPolicy(ctx, store.Policy{Tenant: "tenant", Keep: keep}))
		due = wantDue(t, s, 1)
		late := due[0]
		late.Policy.UpdatedAt = late.Policy.UpdatedAt.Add(-time.Second)
		for _, wrong := range []error{s.SetDue(ctx, due[0], 1, at), s.SetDue(ctx, late, 2, at)} {
			if wrong != nil {
				t.Error(wrong)
			}
			wantDue(t, s, 1)
		}
		if err := s.SetDue(ctx, due[0], w.runs, at); err != nil {
			t.Fatal(name, err)
		}
		wantDue(t, s, 0)
	}
	must(t, s, w.start("r8", `{}`))
	wantDue(t, s, 0) // it is busy
	must(t, s, w.finishFolded(`{}`))
	wantDue(t, s, 1)
	if err := s.DeletePolicy(ctx, "tenant"); err != nil {
		t.Error(err)
	}
	wantDue(t, s, 0)
}

func wantDue(t *testing.T, s store.Store, n int) []store.DueThread {
	t.Helper()
	for more := true; more; {
		more = ok[bool](t)(s.SpreadPolicies(t.Context(), 1))
	}
	due := ok[[]store.DueThread](t)(s.Due(t.Context(), 9))
	if len(due) != n {
		t.Fatalf("%d threads are due, want %d: %+v", len(due), n, due)
	}
	return due
}
