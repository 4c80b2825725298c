package storetest

import (
	"fmt"
	"testing"

	"github.com/threadsvc/threadsvc/store"
)

func testPositions(t *testing.T, s store.Store) {
	want := map[store.Key]store.Position{}
	keys := []store.Key{store.KeyOf("acme", "nobody's")}
	for i := range 5 {
		w := newWriter("acme", fmt.Sprint("t", i))
		created := must(t, s, w.create())[0]
		for range i {
			must(t, s, w.commit(`{"n":1}`))
		}
		keys = append(keys, w.key, w.key)
		want[w.key] = store.Position{Version: w.version, CreatedAt: created.CommittedAt}
	}
	positions := ok[map[store.Key]store.Position](t)
	equal(t, positions(s.Positions(t.Context(), keys)), want)
	equal(t, positions(s.Positions(t.Context(), nil)), map[store.Key]store.Position{})

	// A thread of the same name that is made after it was deleted is another one.
	again := newWriter("acme", "t3")
	ok[store.Erasure](t)(s.Delete(t.Context(), again.key))
	delete(want, again.key)
	equal(t, positions(s.Positions(t.Context(), keys)), want)
	made := must(t, s, again.recreate(`{}`))[0]
	want[again.key] = store.Position{Version: again.version, CreatedAt: made.CommittedAt}
	equal(t, positions(s.Positions(t.Context(), keys)), want)
	if head := ok[store.Head](t)(s.Head(t.Context(), again.key)); !head.CreatedAt.Equal(made.CommittedAt) {
		t.Errorf("the head says %v, the commit was at %v", head.CreatedAt, made.CommittedAt)
	}
}
