package service_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// BenchmarkFollow measures one append until the last of many followers has it: on the server that took it, and on another.
func BenchmarkFollow(b *testing.B) {
	for _, readers := range []int{1, 1000} {
		for where := range 2 {
			name := fmt.Sprintf("readers=%d/%s", readers, []string{"same server", "other server"}[where])
			b.Run(name, func(b *testing.B) { benchmarkFollow(b, readers, where) })
		}
	}
}

func benchmarkFollow(b *testing.B, readers, where int) {
	url := storetest.Database(b)
	var sides [2]*conversation
	for i := range sides {
		sides[i] = converse(b, serveDatabase(b, url, service.Config{}), "t1")
	}
	sides[0].open("r1", textStart("m"))
	arrived := make(chan error, readers)
	for range readers {
		r := sides[where].follow(0)
		go func() {
			for version := uint64(1); ; version++ {
				err := r.until(version)
				if version > 3 || err != nil {
					arrived <- err
				}
				if err != nil {
					return
				}
			}
		}()
	}
	var took []time.Duration
	for b.Loop() {
		started := time.Now()
		sides[0].append(textDelta("m", "token"))
		for range readers {
			if err := <-arrived; err != nil {
				b.Fatal(err)
			}
		}
		took = append(took, time.Since(started))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "median-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
