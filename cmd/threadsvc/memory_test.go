package main

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// The limit is what the flags say, gives way to what is in use, and comes back after that.
func TestBoundMemory(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	before := debug.SetMemoryLimit(-1)
	const cache = 1 << 20
	stop := boundMemory(cache)
	if limit := debug.SetMemoryLimit(-1); limit != cache+workingMemory {
		t.Errorf("the limit is %d, want %d", limit, cache+workingMemory)
	}
	used := make([]byte, 2*workingMemory)
	waitForLimit(t, func(limit int64) bool { return limit >= 3*workingMemory })
	runtime.KeepAlive(used)
	used = nil
	waitForLimit(t, func(limit int64) bool { return limit == cache+workingMemory })
	stop()
	if limit := debug.SetMemoryLimit(-1); limit != before {
		t.Errorf("the limit is %d afterwards, want %d", limit, before)
	}
	runtime.GC()
	if limit := debug.SetMemoryLimit(-1); limit != before {
		t.Errorf("the limit is %d after another collection, want %d", limit, before)
	}
}

// The environment knows better.
func TestBoundMemoryObeysEnvironment(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "1GiB")
	before := debug.SetMemoryLimit(-1)
	defer boundMemory(1 << 20)()
	if limit := debug.SetMemoryLimit(-1); limit != before {
		t.Errorf("the limit is %d, want %d", limit, before)
	}
}

func waitForLimit(t *testing.T, reached func(int64) bool) {
	t.Helper()
	for range 1000 {
		runtime.GC()
		if reached(debug.SetMemoryLimit(-1)) {
			return
		}
		time.Sleep(5 * time.Millisecond) // cleanups run by themselves
	}
	t.Fatalf("the limit stays %d", debug.SetMemoryLimit(-1))
}
