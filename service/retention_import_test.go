package service_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/archive"
)

// rewrite writes an archive anew, as somebody might who knows its form, with parts changed or, where change says so, left out.
func rewrite(t *testing.T, file []byte, change func(part any) bool) []byte {
	t.Helper()
	in := archive.NewReader(bytes.NewReader(file), 1<<30)
	var out bytes.Buffer
	var w *archive.Writer
	for {
		part, err := in.Next()
		if errors.Is(err, io.EOF) {
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			return out.Bytes()
		}
		if err != nil {
			t.Fatal(err)
		}
		if !change(part) {
			continue
		}
		switch part := part.(type) {
		case *archive.Head:
			w, err = archive.NewWriter(&out, *part)
		case *agui.Fold:
			err = w.Fold(part)
		case *store.Segment:
			err = w.Segment(part, part.LastVersion)
		case *store.Run:
			err = w.Run(part)
		case *store.Warning:
			err = w.Warning(part)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// on is a change of the parts of one type.
func on[P any](change func(P) bool) func(any) bool {
	return func(part any) bool {
		p, ok := part.(P)
		return !ok || change(p)
	}
}

// Whoever makes up the beginning of a thread that was pruned is found out, as far as anything says what it must have been: its
// place, its form, its hash and its runs.
func TestImportJudgesTheCut(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{PruneInterval: -1})
	for _, run := range []string{"r1", "r2", "r3"} {
		h.record(run, append(text("m"+run, "hello"), event("FROM_THE_FUTURE"), stateSnapshot(`{"run":"`+run+`"}`))...)
	}
	first := h.runEnd("r2")
	h.prune(first)
	file := export(t, h.history, threadName(h.thread))
	judge := func(file []byte) error {
		_, err := service.VerifyArchive(bytes.NewReader(file), agui.DefaultLimits())
		return err
	}
	if same := rewrite(t, file, func(any) bool { return true }); !bytes.Equal(same, file) || judge(same) != nil {
		t.Fatalf("written anew it is another one: %v", judge(same))
	}
	for name, change := range map[string]func(any) bool{
		"no fold":              on(func(*agui.Fold) bool { return false }),
		"a fold of a run":      on(func(f *agui.Fold) bool { f.Tracking = []byte(`{"phase":2}`); return true }),
		"a fold with an input": on(func(f *agui.Fold) bool { f.Input = agui.Value(`{}`); return true }),
		"another place":        on(func(h *archive.Head) bool { h.FirstVersion--; return true }),
		"another hash":         on(func(h *archive.Head) bool { h.FirstHash[0] ^= 1; return true }),
		"fewer runs before":    on(func(h *archive.Head) bool { h.PrunedRuns--; return true }),
		"no runs before":       on(func(h *archive.Head) bool { h.PrunedRuns = 0; return true }),
		"all runs before":      on(func(h *archive.Head) bool { h.PrunedRuns = h.Runs; return true }),
		"a run before":         on(func(r *store.Run) bool { r.FirstVersion = first; return true }),
		"a warning before":     on(func(w *store.Warning) bool { w.Version = first; return true }),
		"a fold where none was": on(func(h *archive.Head) bool {
			h.FirstVersion, h.FirstHash, h.FirstAt, h.PrunedRuns = 0, nil, 0, 0
			return true
		}),
	} {
		if err := judge(rewrite(t, file, change)); err == nil {
			t.Errorf("%s: nothing is found", name)
		}
	}
	small := agui.DefaultLimits()
	small.Context = 10
	if _, err := service.VerifyArchive(bytes.NewReader(file), small); err == nil {
		t.Error("a fold beyond the limits is taken")
	}
}
