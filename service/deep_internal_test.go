package service

import (
	"errors"
	"strings"
	"sync"
	"testing"
)

// What is run is done when run returns, as many at the same time as ask for it, and no goroutine is left in the end.
func TestDeepRuns(t *testing.T) {
	t.Parallel()
	d := newDeep()
	const n = 3 * maxIdleHelpers
	var group, together sync.WaitGroup
	together.Add(n)
	for range n {
		group.Go(func() {
			for round := range 3 {
				did := false
				d.run(func() {
					if round == 0 { // only goes on if all run at once
						together.Done()
						together.Wait()
					}
					did = true
				})
				if !did {
					t.Error("run returned before the work was done")
				}
			}
		})
	}
	group.Wait()
	if len(d.idle) > maxIdleHelpers {
		t.Errorf("%d goroutines wait for work", len(d.idle))
	}
	d.close()
}

// A panic is that of who runs the work, and says where it happened; the goroutine goes on.
func TestDeepPanics(t *testing.T) {
	t.Parallel()
	d := newDeep()
	defer d.close()
	func() {
		defer func() {
			err, ok := recover().(error)
			if !ok || !strings.Contains(err.Error(), "too deep") || !strings.Contains(err.Error(), "TestDeepPanics") {
				t.Errorf("recovered %v", err)
			}
		}()
		d.run(func() { panic(errors.New("too deep")) })
	}()
	did := false
	d.run(func() { did = true })
	if !did {
		t.Error("nothing runs after a panic")
	}
}
