package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

const (
	// gcPercent lets garbage grow to several times of what is in use while that is little: a server that holds a few megabytes
	// and takes a hundred thousand events a second would collect all the time otherwise.
	gcPercent = 400
	// workingMemory is what a server needs besides its idle threads: requests, commits, streams.
	workingMemory = 112 << 20
)

// boundMemory makes the collector keep the process within the memory for idle threads and what it works with, and returns
// what ends that. What is in use may be more, if clients work with so much at once; the collector is then not driven harder
// than to leave half of it as garbage. The environment's GOGC and GOMEMLIMIT are obeyed instead.
func boundMemory(cacheBytes int64) (stop func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	bound := &memoryBound{target: cacheBytes + workingMemory}
	percent, limit := debug.SetGCPercent(gcPercent), debug.SetMemoryLimit(bound.target)
	bound.watch()
	return func() {
		bound.mu.Lock()
		defer bound.mu.Unlock()
		bound.stopped = true
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}
}

// memoryBound adjusts the collector's limit after each collection.
type memoryBound struct {
	target  int64
	mu      sync.Mutex
	stopped bool
}

// cycle is garbage as soon as it is made, so its cleanup runs once after each collection.
type cycle struct{ _ [32]byte }

func (m *memoryBound) watch() {
	runtime.AddCleanup(&cycle{}, (*memoryBound).adjust, m)
}

func (m *memoryBound) adjust() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return
	}
	debug.SetMemoryLimit(max(m.target, inUse()*3/2))
	m.watch()
}

// inUse is what the last collection could not free, and what the collector does not manage.
func inUse() int64 {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}, {Name: "/memory/classes/metadata/other:bytes"},
	}
	metrics.Read(samples)
	total := int64(0)
	for _, s := range samples {
		if s.Value.Kind() == metrics.KindUint64 {
			total += int64(s.Value.Uint64())
		}
	}
	return total
}
