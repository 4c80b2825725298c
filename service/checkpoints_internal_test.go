package service

import (
	"testing"

	"github.com/threadsvc/threadsvc/store"
)

// A log is walked along again when it has grown to what the last walk found to be due, or from another checkpoint.
func TestWalksAreRemembered(t *testing.T) {
	t.Parallel()
	var w walks
	a, b := store.KeyOf("acme", "a"), store.KeyOf("acme", "b")
	if large := newWalk(&store.LogSince{Version: 7, Grown: 800}, 5000); large.due != 1200 {
		t.Errorf("with a large context another is due at %d", large.due)
	}
	w.note(a, newWalk(&store.LogSince{Version: 7, Grown: 800}, 667))
	for _, tc := range []struct {
		key     store.Key
		version uint64
		grown   int64
		due     bool
	}{{a, 7, 800, false}, {a, 7, 999, false}, {a, 7, 1000, true}, {a, 7, 799, true}, {a, 9, 1, true}, {b, 7, 1, true}} {
		if got := w.due(tc.key, &store.LogSince{Version: tc.version, Grown: tc.grown}); got != tc.due {
			t.Errorf("%+v: %v", tc, got)
		}
	}
	for i := range 2 * maxWalks {
		w.note(store.Key{byte(i), byte(i >> 8), byte(i >> 16), 1}, walk{})
	}
	if len(w.after) > maxWalks {
		t.Errorf("%d are remembered", len(w.after))
	}
}
