package store_test

import (
	"fmt"
	"testing"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// An imported log grows by what it brings, and hardly by what it restates, as one that was appended does.
func TestImportTellsWhatIsRestated(t *testing.T) {
	t.Parallel()
	db := open(t, store.Options{URL: storetest.Database(t)})
	const size = 200_000
	for name, states := range map[string][]int{"fresh": {0, 1, 2, 3}, "restated": {0, 0, 0, 0}} {
		head := store.Head{Key: store.KeyOf("acme", name), Tenant: "acme", ThreadID: name, Version: uint64(len(states))}
		err := db.Import(t.Context(), head, false, func(to store.Importer) error {
			for i, state := range states {
				entry := agui.Entry{Kind: agui.KindEvent, Payload: fmt.Appendf(nil, `{"type":"STATE_SNAPSHOT","snapshot":%q}`, storetest.Noise(state, size))}
				version := uint64(i + 1)
				if err := to.Segment(&store.Segment{FirstVersion: version, LastVersion: version, RunID: fmt.Sprint("r", i), Entries: entry.Append(nil)}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		since, err := db.SinceCheckpoint(t.Context(), head.Key, head.Version)
		if err != nil || since.LogSize < 4*size {
			t.Fatalf("%s: %+v, %v", name, since, err)
		}
		if fresh := since.Grown > 3*size; fresh != (name == "fresh") || since.Grown < size {
			t.Errorf("%s: the log of %d bytes has grown by %d", name, since.LogSize, since.Grown)
		}
	}
}
