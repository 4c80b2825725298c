package store_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/embedded"
)

// BenchmarkCommit appends segments of about 10 KB, 100 events each, to as many threads per call as the name says, from one
// goroutine or two. The server syncs to disk, as in production.
func BenchmarkCommit(b *testing.B) {
	server, err := embedded.Start(b.Context(), embedded.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = server.Stop(b.Context()) })
	if err := server.CreateDatabase(b.Context(), "bench"); err != nil {
		b.Fatal(err)
	}
	if err := store.Migrate(b.Context(), server.URL("bench")); err != nil {
		b.Fatal(err)
	}
	db := open(b, store.Options{URL: server.URL("bench"), MaxConns: 8})
	for _, threads := range []int{1, 16, 64} {
		for _, callers := range []int{1, 2, 4} {
			b.Run(fmt.Sprintf("threads=%d/callers=%d", threads, callers), func(b *testing.B) {
				benchmark(b, db, threads, callers)
			})
		}
	}
}

func benchmark(b *testing.B, db *store.Postgres, threads, callers int) {
	entries := segment()
	b.SetBytes(int64(threads * callers * len(entries)))
	b.ReportAllocs()
	groups := make([][]*store.Commit, callers)
	for i := range groups {
		for j := range threads {
			id := fmt.Sprint(b.Name(), b.N, " ", i, " ", j)
			c := &store.Commit{Key: store.KeyOf("bench", id), Create: &store.NewThread{Tenant: "bench", ThreadID: id}}
			groups[i] = append(groups[i], c)
		}
		commit(b, db, groups[i])
	}
	b.ResetTimer()
	start := time.Now()
	done := make(chan struct{})
	for _, group := range groups {
		go func() {
			defer func() { done <- struct{}{} }()
			for range b.N {
				appendTo(b, db, group, entries)
			}
		}()
	}
	for range groups {
		<-done
	}
	b.ReportMetric(float64(b.N*callers*threads)/time.Since(start).Seconds(), "commits/s")
}

// appendTo commits one segment more to every thread of a group.
func appendTo(b *testing.B, db *store.Postgres, group []*store.Commit, entries []byte) {
	for i, c := range group {
		v := c.Version
		group[i] = &store.Commit{
			Key: c.Key, ExpectVersion: v, Version: v + 100, NextOffset: v + 100, StreamID: "run", ActiveRun: "run",
			LeaseTTL: time.Minute,
			Segments: []store.Segment{{
				FirstVersion: v + 1, LastVersion: v + 100, RunID: "run", StreamID: "run", FirstOffset: v, NextOffset: v + 100,
				Entries: entries,
			}},
		}
	}
	for _, r := range db.Commit(b.Context(), group) {
		if r.Err != nil {
			b.Error(r.Err)
		}
	}
}

// segment is 100 events of streamed text.
func segment() (entries []byte) {
	random := rand.New(rand.NewPCG(1, 2))
	for i := range uint64(100) {
		text := fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"msg-01","delta":"%x","timestamp":%d}`,
			random.Uint64(), 1764547200000+i*random.Uint64N(50))
		e := agui.Entry{Kind: agui.KindEvent, Offset: i, Payload: []byte(text)}
		entries = e.Append(entries)
	}
	return entries
}
