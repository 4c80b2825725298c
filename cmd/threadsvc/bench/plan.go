package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store/yardstick"
)

// tenant is whose threads the benchmark's are.
const tenant = "threadsvc-bench"

// maxFrame is the size from which a batch is sent though it has fewer events than it could.
const maxFrame = 1 << 20

// batch is one message of a producer, marshalled before anything is measured. The events are parts of the frame.
type batch struct {
	yardstick.Batch
	frame []byte
}

// producer is what one thread sends.
type producer struct {
	id      string
	batches []batch
	// ends[r] is the number of batches up to the end of run r.
	ends []int
}

// plan is all that is sent in one measurement.
type plan struct {
	workload  Workload
	producers []producer
	states    [][]byte // a few states of a thread, for the naive yardstick
}

// newPlan writes the events of all threads, unless the context ends before. name makes their ids unique.
func newPlan(ctx context.Context, w Workload, name string) (*plan, error) {
	p := &plan{workload: w, producers: make([]producer, w.Threads)}
	var next atomic.Int64
	var group sync.WaitGroup
	errs := make([]error, w.Threads)
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < w.Threads && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				errs[i] = p.producers[i].write(&p.workload, fmt.Sprintf("%s-%05d", name, i), i)
			}
		})
	}
	group.Wait()
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return nil, err
	}
	s := newScript(&w, "", 0)
	for range 4 {
		s.step++
		p.states = append(p.states, s.state())
	}
	return p, nil
}

func (p *producer) write(w *Workload, id string, thread int) error {
	p.id = id
	s := newScript(w, id, thread)
	ids := rand.New(rand.NewPCG(w.Seed^0x72756e73, uint64(thread)))
	offset := uint64(0)
	for run := range w.Warmup + w.Runs {
		runID := uuid(ids)
		events := s.run(runID)
		for len(events) > 0 {
			n := countOf(events, w.Batch)
			var handle *threadsvcv1.RunHandle
			if run == 0 && offset == 0 {
				handle = &threadsvcv1.RunHandle{Thread: nameOf(id), RunId: runID}
			}
			b, err := newBatch(handle, offset, events[:n])
			if err != nil {
				return err
			}
			p.batches = append(p.batches, b)
			offset, events = offset+uint64(n), events[n:]
		}
		p.ends = append(p.ends, len(p.batches))
	}
	return nil
}

func nameOf(id string) *threadsvcv1.ThreadName {
	return &threadsvcv1.ThreadName{Tenant: tenant, ThreadId: id}
}

// countOf is how many of the events go into the next batch.
func countOf(events [][]byte, most int) int {
	bytes := 0
	for i, event := range events {
		bytes += len(event)
		if i > 0 && (i == most || bytes > maxFrame) {
			return i
		}
	}
	return len(events)
}

// The fields of the contract that newBatch writes.
const (
	fieldRequestBatch protowire.Number = 2
	fieldBatchOffset  protowire.Number = 1
	fieldBatchEvents  protowire.Number = 2
)

// newBatch marshals an AppendEventsRequest by hand, so that the events lie in memory once.
func newBatch(handle *threadsvcv1.RunHandle, offset uint64, events [][]byte) (batch, error) {
	frame, err := proto.Marshal(&threadsvcv1.AppendEventsRequest{Run: handle})
	if err != nil {
		return batch{}, fmt.Errorf("bench: marshal a request: %w", err)
	}
	length := protowire.SizeTag(fieldBatchOffset) + protowire.SizeVarint(offset)
	for _, event := range events {
		length += protowire.SizeTag(fieldBatchEvents) + protowire.SizeBytes(len(event))
	}
	frame = protowire.AppendTag(frame, fieldRequestBatch, protowire.BytesType)
	frame = protowire.AppendVarint(frame, uint64(length))
	whole := make([]byte, 0, len(frame)+length)
	whole = protowire.AppendTag(append(whole, frame...), fieldBatchOffset, protowire.VarintType)
	whole = protowire.AppendVarint(whole, offset)
	b := batch{Batch: yardstick.Batch{Offset: offset, Events: make([][]byte, len(events))}}
	for i, event := range events {
		whole = protowire.AppendTag(whole, fieldBatchEvents, protowire.BytesType)
		whole = protowire.AppendBytes(whole, event)
		b.Events[i] = whole[len(whole)-len(event) : len(whole) : len(whole)]
	}
	b.frame = whole
	return b, nil
}

// measured are the batches of the measured part, for the yardsticks.
func (p *plan) measured() []yardstick.Thread {
	threads := make([]yardstick.Thread, len(p.producers))
	for i := range p.producers {
		from := &p.producers[i]
		threads[i].ID = from.id
		for _, b := range from.batches[from.ends[p.workload.Warmup-1]:] {
			threads[i].Batches = append(threads[i].Batches, b.Batch)
		}
	}
	return threads
}

// events counts the events of the runs from first up to, not including, last.
func (p *plan) events(first, last int) (n int) {
	for i := range p.producers {
		for _, b := range p.producers[i].between(first, last) {
			n += len(b.Events)
		}
	}
	return n
}

// between are the batches of the runs from first up to, not including, last.
func (p *producer) between(first, last int) []batch {
	from := 0
	if first > 0 {
		from = p.ends[first-1]
	}
	return p.batches[from:p.ends[last-1]]
}
