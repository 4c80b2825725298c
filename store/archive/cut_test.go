package archive_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/archive"
)

var cutHead = store.Head{
	ThreadID: "t", Version: 12, CreatedAt: noon, LastRunAt: noon, FirstVersion: 4, FirstHash: [32]byte{4}, FirstAt: noon, PrunedRuns: 1, Runs: 2,
}

// writeCut writes a log that was cut after version 4, with the fold there so many times.
func writeCut(t *testing.T, folds int) []byte {
	t.Helper()
	var file bytes.Buffer
	w, err := archive.NewWriter(&file, archive.HeadOf(&cutHead))
	for range folds {
		err = errors.Join(err, w.Fold(&agui.Fold{Version: 4, State: agui.Value(`{"a":1}`), Tracking: []byte(`{}`)}))
	}
	segments := sample(4)[1:]
	for i := range segments {
		err = errors.Join(err, w.Segment(&segments[i], 12))
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// A log that was cut comes back with where it was cut, the fold there, and the entries after it.
func TestCutLogs(t *testing.T) {
	t.Parallel()
	parts, err := read(bytes.NewReader(writeCut(t, 1)))
	if err != nil || len(parts) != 4 {
		t.Fatalf("%d parts: %v", len(parts), err)
	}
	head, err := parts[0].(*archive.Head).Store("")
	if err != nil || head.FirstVersion != 4 || head.FirstHash != cutHead.FirstHash || !head.FirstAt.Equal(noon) || head.PrunedRuns != 1 {
		t.Errorf("head %+v: %v", head, err)
	}
	if fold := parts[1].(*agui.Fold); fold.Version != 4 || string(fold.State) != `{"a":1}` {
		t.Errorf("fold %+v", fold)
	}
	if s := parts[2].(*store.Segment); s.FirstVersion != 5 || s.LastVersion != 8 {
		t.Errorf("segment %+v", s)
	}
}

// A fold that is missing, or comes twice, and heads that contradict themselves are none.
func TestCutsThatAreNone(t *testing.T) {
	t.Parallel()
	for _, folds := range []int{0, 2} {
		if _, err := read(bytes.NewReader(writeCut(t, folds))); !errors.Is(err, archive.ErrInvalid) {
			t.Errorf("%d folds: %v", folds, err)
		}
	}
	for name, change := range map[string]func(*archive.Head){
		"no hash":                 func(h *archive.Head) { h.FirstHash = nil },
		"a short hash":            func(h *archive.Head) { h.FirstHash = h.FirstHash[1:] },
		"a hash without a cut":    func(h *archive.Head) { h.FirstVersion = 0 },
		"runs without a cut":      func(h *archive.Head) { h.FirstVersion, h.FirstHash, h.FirstAt = 0, nil, 0 },
		"a time without a cut":    func(h *archive.Head) { h.FirstVersion, h.FirstHash, h.PrunedRuns = 0, nil, 0 },
		"a hash of the whole log": func(h *archive.Head) { h.LogHash = nil },
	} {
		head := archive.HeadOf(&cutHead)
		change(&head)
		if _, err := head.Store(""); !errors.Is(err, archive.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
