package store

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/threadsvc/threadsvc/agui"
)

// foldState reads a base and patches as the rows of a statement would give them.
func foldState(t *testing.T, base []byte, patches ...string) agui.Value {
	t.Helper()
	f := foldRows{found: true}
	codec, stored := packFold(base)
	plain, err := f.unpack(rowState, codec, stored)
	if err != nil {
		t.Error(err)
	}
	f.state.base = plain
	for i, p := range patches {
		f.patches = append(f.patches, storedPatch{int64(i), agui.Value(p)})
	}
	folded, err := f.fold()
	if err != nil {
		t.Error(err)
		return nil
	}
	return folded.Fold.State
}

// The memory of a base is recycled once it is patched: states that were read before stay what they are, whatever is read
// after them and at the same time.
func TestStatesOutliveTheirScratch(t *testing.T) {
	t.Parallel()
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			var states, want [][]byte
			for i := range 50 {
				long := strings.Repeat(fmt.Sprintf("%d of %d ", i, worker), minScratch/8+100*i)
				base := fmt.Sprintf(`{"n":0,"long":%q}`, long)
				if i%2 == 0 {
					states, want = append(states, foldState(t, []byte(base))), append(want, []byte(base))
					continue
				}
				patched := strings.Replace(base, `"n":0`, `"n":1`, 1)
				states = append(states, foldState(t, []byte(base), `[{"op":"replace","path":"/n","value":1}]`))
				want = append(want, []byte(patched))
			}
			for i := range states {
				if !bytes.Equal(states[i], want[i]) {
					t.Errorf("state %d of %d has changed", i, worker)
				}
			}
		})
	}
	group.Wait()
}

// A state that is kept does not keep memory that is much larger than it.
func TestKeptStatesTakeWhatTheyAre(t *testing.T) {
	t.Parallel()
	large := fmt.Sprintf(`{"n":0,"long":%q}`, strings.Repeat("large ", minScratch))
	small := fmt.Sprintf(`{"n":0,"long":%q}`, strings.Repeat("small ", minScratch/4))
	for range 100 { // what the pool gives is up to it
		foldState(t, []byte(large), `[{"op":"replace","path":"/n","value":1}]`)
		if state := foldState(t, []byte(small)); string(state) != small || cap(state) > 2*len(small) {
			t.Fatalf("%d bytes in memory of %d, or others", len(state), cap(state))
		}
	}
}

func TestScratchRefusesWhatIsCorrupt(t *testing.T) {
	t.Parallel()
	codec, stored := packFold(bytes.Repeat([]byte("0123456789"), minScratch))
	var s scratch
	if _, err := s.unpack(codec, stored[:len(stored)-5]); err == nil {
		t.Error("what is cut off was unpacked")
	}
	if plain, err := s.unpack(codec, stored); err != nil || len(plain) != 10*minScratch {
		t.Errorf("after that: %d bytes, %v", len(plain), err)
	}
	s.release()
	s.release()
}
