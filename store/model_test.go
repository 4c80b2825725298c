package store_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

var (
	modelThreads = []string{"a", "b", "c"}
	modelRuns    = []string{"r1", "r2", "r3", "r4", "r5"}
	modelLabels  = []string{"x=1", "x=2", "y=\x00"}
)

// Random commits, right and wrong ones, leave Postgres and the model with the same results and the same contents.
func TestPostgresAgainstModel(t *testing.T) {
	t.Parallel()
	postgres := storetest.Open(t)
	var count atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		m := &modelCheck{model: storetest.NewMemory(), postgres: postgres, tenant: fmt.Sprint("tenant", count.Add(1))}
		m.highest = map[store.Key]int64{}
		t.Repeat(map[string]func(*rapid.T){
			"":         m.compare,
			"commit":   m.commit,
			"commit 2": m.commit,
			"commit 3": m.commit,
			"metadata": m.metadata,
			"delete":   m.delete,
		})
	})
}

type modelCheck struct {
	model, postgres store.Store
	tenant          string
	warnings        int32
	highest         map[store.Key]int64 // position that was ever drawn
}

// class is what an error is compared by.
func class(err error) string {
	for _, sentinel := range []error{store.ErrNotFound, store.ErrConflict, store.ErrDuplicate, store.ErrDeleted, store.ErrInvalid, store.ErrCorrupt} {
		if errors.Is(err, sentinel) {
			return sentinel.Error()
		}
	}
	return fmt.Sprint(err)
}

func (m *modelCheck) commit(t *rapid.T) {
	var group []*store.Commit
	ids := rapid.SliceOfNDistinct(rapid.SampledFrom(modelThreads), 1, 3, rapid.ID[string]).Draw(t, "threads")
	for _, id := range ids {
		group = append(group, m.draw(t, id))
	}
	want, got := m.model.Commit(context.Background(), group), m.postgres.Commit(context.Background(), group)
	for i := range group {
		if class(want[i].Err) != class(got[i].Err) {
			t.Fatalf("commit %d: the model says %v, Postgres %v", i, want[i].Err, got[i].Err)
		}
		if want[i].LeaseExpiresAt.IsZero() != got[i].LeaseExpiresAt.IsZero() || want[i].CommittedAt.IsZero() != got[i].CommittedAt.IsZero() {
			t.Fatalf("commit %d: the model says %+v, Postgres %+v", i, want[i], got[i])
		}
	}
}

// draw makes a commit for the model's head, or for a head slightly off.
func (m *modelCheck) draw(t *rapid.T, id string) *store.Commit {
	rarely := rapid.IntRange(0, 9)
	key := store.KeyOf(m.tenant, id)
	head, err := m.model.Head(context.Background(), key)
	c := &store.Commit{Key: key, LeaseTTL: time.Minute, ActiveRun: head.ActiveRun, StreamID: head.StreamID, Runs: head.Runs}
	if (err != nil) != (rarely.Draw(t, "existence") == 0) {
		c.Create = &store.NewThread{Tenant: m.tenant, ThreadID: id, Metadata: drawMetadata(t)}
		c.Create.ReplaceDeleted = rarely.Draw(t, "replaces a deleted one") > 2
		head = store.Head{}
	}
	c.ExpectVersion, c.ExpectFence, c.Fence = head.Version, head.Fence, head.Fence
	if rarely.Draw(t, "stale") == 0 {
		c.ExpectFence++
	}
	if rarely.Draw(t, "behind") == 0 {
		c.ExpectVersion++
	}
	if c.Create != nil {
		c.ExpectVersion = 0
	}
	c.NextOffset = head.NextOffset
	opens := rapid.Bool().Draw(t, "opens a run")
	if opens {
		c.StreamID, c.NextOffset = rapid.SampledFrom(modelRuns).Draw(t, "run"), 0
		c.ActiveRun, c.Runs, c.RunStarted, c.Fence = c.StreamID, head.Runs+1, true, head.Fence+1
	}
	m.drawLog(t, c, opens)
	if opens {
		c.Opened = []store.Run{{
			RunID: c.ActiveRun, Ordinal: c.Runs, StreamID: c.StreamID, FirstVersion: c.ExpectVersion + 1, Fence: c.Fence,
			Status: store.RunActive, InputHash: [32]byte{rapid.SampledFrom([]byte{0, 7}).Draw(t, "input hash")},
		}}
	}
	if rarely.Draw(t, "updates a run") < 4 {
		c.Updated = []store.Run{drawRun(t, c)}
	}
	if rapid.Bool().Draw(t, "folds") {
		c.Fold = drawFold(t, c, m.highest[c.Key])
		for _, message := range c.Fold.Upserts {
			m.highest[c.Key] = max(m.highest[c.Key], message.Position)
		}
	}
	return c
}

// drawLog draws segments, an input entry first if a run is opened, and warnings.
func (m *modelCheck) drawLog(t *rapid.T, c *store.Commit, opens bool) {
	c.Version = c.ExpectVersion
	segments := rapid.IntRange(0, 3).Draw(t, "segments")
	if opens {
		segments++
	}
	for i := range segments {
		s := store.Segment{FirstVersion: c.Version + 1, RunID: c.ActiveRun, StreamID: c.StreamID, FirstOffset: c.NextOffset}
		for range rapid.IntRange(1, 3).Draw(t, "entries") {
			e := agui.Entry{Kind: agui.KindEvent, Offset: c.NextOffset, Payload: drawText(t)}
			if opens && i == 0 {
				e.Kind = agui.KindInput
			} else {
				c.NextOffset++
			}
			stored := e.Append(nil)
			s.Entries, c.Hash = append(s.Entries, stored...), agui.Chain(c.Hash, stored)
			c.Version++
		}
		s.LastVersion, s.NextOffset = c.Version, c.NextOffset
		c.Segments = append(c.Segments, s)
	}
	for range rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "warnings") {
		m.warnings++
		c.Warnings = append(c.Warnings, store.Warning{
			Version: c.Version, RunID: c.ActiveRun, Offset: c.NextOffset, Ordinal: m.warnings,
			Warning: agui.Warning{Code: agui.EventUnknown, Path: "/\x00", Removed: drawText(t)},
		})
	}
}

func drawText(t *rapid.T) []byte {
	text := rapid.SampledFrom([]string{`{}`, `"\u0000\ud800"`, `1e400`, ` [ 1.10 ] `, `{"b":1,"a":"x"}`}).Draw(t, "text")
	return []byte(strings.Repeat(" ", rapid.SampledFrom([]int{0, 0, 200}).Draw(t, "padding")) + text)
}

func drawRun(t *rapid.T, c *store.Commit) store.Run {
	r := store.Run{
		RunID:  rapid.SampledFrom(modelRuns).Draw(t, "updated run"),
		Status: store.RunStatus(rapid.IntRange(1, 6).Draw(t, "status")),
		Result: drawText(t), Warnings: 3, NextOffset: c.NextOffset,
	}
	if r.RunID == c.ActiveRun && r.Status != store.RunActive {
		c.ActiveRun = ""
	}
	if rapid.Bool().Draw(t, "outcome") {
		r.Outcome = drawText(t)
	}
	return r
}

func drawFold(t *rapid.T, c *store.Commit, stored int64) *agui.Changes {
	fold := &agui.Changes{Version: c.Version, Tracking: drawText(t), Stored: stored}
	positions := rapid.SliceOfNDistinct(rapid.Int64Range(1, 24), 0, 8, rapid.ID[int64]).Draw(t, "positions")
	for i, position := range positions {
		if i%3 == 2 {
			fold.Deletes = append(fold.Deletes, position)
			continue
		}
		m := agui.StoredMessage{Position: position, ID: fmt.Sprint("m", position, i), Role: agui.RoleTool, Body: drawText(t)}
		fold.Upserts = append(fold.Upserts, m)
	}
	slices.SortFunc(fold.Upserts, func(a, b agui.StoredMessage) int { return cmp.Compare(a.Position, b.Position) })
	switch rapid.IntRange(0, 3).Draw(t, "state") {
	case 0:
		fold.State.Replaced = drawText(t)
	case 1, 2:
		for v := c.ExpectVersion + 1; v <= c.Version; v++ {
			size := rapid.SampledFrom([]int{1, 50, 600}).Draw(t, "size")
			patch := fmt.Sprintf(`[{"op":"add","path":"/k%d","value":%q}]`, v%3, strings.Repeat("v", size))
			fold.State.Patches = append(fold.State.Patches, agui.StatePatch{Version: v, Patch: agui.Value(patch)})
		}
	}
	return fold
}

func drawMetadata(t *rapid.T) store.Metadata {
	labels := rapid.SliceOfNDistinct(rapid.SampledFrom(modelLabels), 0, 3, rapid.ID[string]).Draw(t, "labels")
	return store.Metadata{Text: drawText(t), Labels: labels}
}

func (m *modelCheck) metadata(t *rapid.T) {
	key, next := m.drawKey(t), drawMetadata(t)
	change := func(store.Metadata) (store.Metadata, error) { return next, nil }
	want, wantErr := m.model.UpdateMetadata(context.Background(), key, change)
	got, gotErr := m.postgres.UpdateMetadata(context.Background(), key, change)
	same(t, "metadata", dumpHead(want), dumpHead(got), wantErr, gotErr)
}

func (m *modelCheck) delete(t *rapid.T) {
	key := m.drawKey(t)
	want, wantErr := m.model.Delete(context.Background(), key)
	got, gotErr := m.postgres.Delete(context.Background(), key)
	same(t, "delete", dumpHead(want.Head), dumpHead(got.Head), wantErr, gotErr)
}

func (m *modelCheck) drawKey(t *rapid.T) store.Key {
	return store.KeyOf(m.tenant, rapid.SampledFrom(modelThreads).Draw(t, "thread"))
}

func same(t *rapid.T, what, want, got string, wantErr, gotErr error) {
	if want != got || class(wantErr) != class(gotErr) {
		t.Fatalf("%s: the model has\n%s %v\nPostgres has\n%s %v", what, want, wantErr, got, gotErr)
	}
}

// compare compares all that can be read.
func (m *modelCheck) compare(t *rapid.T) {
	from := rapid.Uint64Range(0, 8).Draw(t, "from")
	for name, read := range map[string]func(store.Store, store.Key) (string, error){
		"head": func(s store.Store, key store.Key) (string, error) {
			head, err := s.Head(context.Background(), key)
			return dumpHead(head), err
		},
		"load": func(s store.Store, key store.Key) (string, error) {
			loaded, err := s.Load(context.Background(), key)
			if err != nil {
				return "", err
			}
			var run string
			if loaded.LastRun != nil {
				run = dumpRuns([]store.Run{*loaded.LastRun})
			}
			return fmt.Sprintf("%s\n%q\n%s\n%s", dumpHead(loaded.Head), fmt.Sprint(loaded.Fold), dumpLog(loaded.Tail), run), nil
		},
		"log": func(s store.Store, key store.Key) (string, error) {
			all, err := s.Log(context.Background(), key, from, math.MaxInt)
			one, err1 := s.Log(context.Background(), key, from, 0)
			return dumpLog(all) + "\n" + dumpLog(one), errors.Join(err, err1)
		},
		"since": func(s store.Store, key store.Key) (string, error) {
			news, err := s.Since(context.Background(), key, from, 40)
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("%s\n%d\n%s", dumpHead(news.Head), news.Fold.Version, dumpLog(news.Tail)), nil
		},
		"stream": func(s store.Store, key store.Key) (string, error) {
			segments, err := s.Stream(context.Background(), key, modelRuns[from%5], from/3, from)
			return dumpLog(segments), err
		},
		"run": func(s store.Store, key store.Key) (string, error) {
			run, err := s.Run(context.Background(), key, modelRuns[from%5])
			return dumpRuns([]store.Run{run}), err
		},
		"runs": func(s store.Store, key store.Key) (string, error) {
			runs, err := s.Runs(context.Background(), key, int64(from), 2)
			return dumpRuns(runs), err
		},
		"warnings": func(s store.Store, key store.Key) (string, error) {
			warnings, err := s.Warnings(context.Background(), key, store.WarningPlace{Version: from, Ordinal: 3}, 3)
			return dumpWarnings(warnings), err
		},
		"list": func(s store.Store, _ store.Key) (string, error) {
			q := store.ThreadQuery{Tenant: m.tenant, Labels: modelLabels[:from%3], Limit: 10}
			heads, err := s.Threads(context.Background(), q)
			dumps := make([]string, len(heads))
			for i, h := range heads {
				dumps[i] = dumpHead(h)
			}
			slices.Sort(dumps) // the two have different times
			return strings.Join(dumps, "\n"), err
		},
	} {
		for _, id := range modelThreads {
			want, wantErr := read(m.model, store.KeyOf(m.tenant, id))
			got, gotErr := read(m.postgres, store.KeyOf(m.tenant, id))
			same(t, name+" of "+id, want, got, wantErr, gotErr)
		}
	}
}

// mark keeps of a time whether it is set.
func mark(times ...*time.Time) {
	for _, at := range times {
		if !at.IsZero() {
			*at = time.Unix(1, 0).UTC()
		}
	}
}

func dumpHead(h store.Head) string {
	mark(&h.LeaseExpiresAt, &h.CreatedAt, &h.LastRunAt)
	return fmt.Sprintf("%+v", h)
}

func dumpLog(segments []store.Segment) string {
	segments = slices.Clone(segments)
	for i := range segments {
		mark(&segments[i].CommittedAt)
	}
	return fmt.Sprintf("%+v", segments)
}

func dumpRuns(runs []store.Run) string {
	runs = slices.Clone(runs)
	for i := range runs {
		mark(&runs[i].StartedAt, &runs[i].EndedAt)
	}
	return fmt.Sprintf("%+v", runs)
}

func dumpWarnings(warnings []store.Warning) string {
	warnings = slices.Clone(warnings)
	for i := range warnings {
		mark(&warnings[i].RaisedAt)
	}
	return fmt.Sprintf("%+v", warnings)
}
