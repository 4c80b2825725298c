package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store/yardstick"
)

// Where --growth looks: at the growthWindow runs up to lastOfEarly, which have run 10 in their middle, and at the last tenth of
// all runs, or as many. Checkpoints come every few runs, which a long conversation makes large, so that fewer runs of its end tell
// above all whether one fell among them.
const (
	growthWindow = 10
	lastOfEarly  = 15
)

// trial is one measurement of the service.
type trial struct {
	*bench
	v      *Variant
	nodes  []*node
	driver *driver
	m      measurement
}

// run measures with connections and streams of its own, and reads the threads back.
func (t *trial) run(ctx context.Context, p *plan) error {
	var addresses []string
	for _, n := range t.nodes {
		addresses = append(addresses, n.address)
	}
	conns, err := dialAll(addresses, t.v.Connections)
	if err != nil {
		return err
	}
	defer hangUp(conns)
	if t.driver, err = newDriver(ctx, p, conns, &t.progress.done); err != nil {
		return err
	}
	defer t.driver.cancel()
	if err := t.measure(ctx); err != nil {
		return err
	}
	return verify(ctx, t.driver, conns)
}

// measure warms up, sends the measured runs, and reads what they cost.
func (t *trial) measure(ctx context.Context) error {
	if err := t.db.Checkpoint(ctx); err != nil { // before the warm-up, which then pays for the first touch of pages
		return err
	}
	if err := t.warmUp(ctx); err != nil {
		return err
	}
	rows, tables, err := t.sizes(ctx)
	if err != nil {
		return err
	}
	before, err := t.usage(ctx, t.nodes)
	if err != nil {
		return err
	}
	total, err := t.load(ctx)
	if err != nil {
		return err
	}
	if total.events == 0 {
		return fmt.Errorf("bench: nothing was acknowledged within --duration %v", t.v.Duration)
	}
	after, err := t.usage(ctx, t.nodes)
	if err != nil {
		return err
	}
	t.m.set(total, t.driver.plan.perRun(), before, after)
	t.memory()
	return t.setSizes(ctx, total, before.wal, rows, tables)
}

// warmUpAtOnce bounds the threads that are warmed up at the same time, so that thousands of them do not ask for their first
// load at one moment.
const warmUpAtOnce = 256

// warmUp sends the runs before the measurement.
func (t *trial) warmUp(ctx context.Context) error {
	t.progress.show("warming up", t.driver.plan.events(0, t.v.Warmup))
	_, err := t.driver.send(ctx, t.v.Warmup, pacing{unacked: t.v.Unacked, atOnce: warmUpAtOnce})
	if err != nil {
		return err
	}
	return t.settle(ctx, t.v.Settle)
}

// load sends the measured runs, as a whole or, if the growth is wanted, in parts.
func (t *trial) load(ctx context.Context) (*tally, error) {
	last := t.v.Warmup + t.v.Runs
	t.progress.show(t.m.Name, t.driver.plan.events(t.v.Warmup, last))
	pace := pacing{unacked: t.v.Unacked, rate: t.v.Pace, until: time.Now().Add(t.v.Duration)}
	if !t.v.Growth {
		return t.driver.send(ctx, last, pace)
	}
	total := &tally{}
	late := max(growthWindow, last/10)
	bounds := []int{lastOfEarly - growthWindow, lastOfEarly, last - late, last}
	var at [4]int64
	for i, bound := range bounds {
		part, err := t.driver.send(ctx, max(bound, t.v.Warmup), pace)
		if err != nil {
			return nil, err
		}
		total.add(part)
		if err := t.settle(ctx, t.v.Settle); err != nil {
			return nil, err
		}
		if at[i], err = t.db.RowBytes(ctx); err != nil {
			return nil, err
		}
	}
	if time.Now().After(pace.until) && t.driver.unfinished() {
		return nil, fmt.Errorf("bench: --duration %v is too short for --growth", t.v.Duration)
	}
	t.m.Values["growth_early"] = float64(at[1]-at[0]) / float64(growthWindow*t.v.Threads)
	t.m.Values["growth_late"] = float64(at[3]-at[2]) / float64(late*t.v.Threads)
	return total, nil
}

func (d *driver) unfinished() bool {
	return slices.ContainsFunc(d.streams, func(s *stream) bool { return s.next < len(s.batches) })
}

func (t *trial) sizes(ctx context.Context) (rows, tables int64, err error) {
	if rows, err = t.db.RowBytes(ctx); err != nil {
		return 0, 0, err
	}
	tables, err = t.db.TableBytes(ctx)
	return rows, tables, err
}

// memory sets the memory of the servers, whose streams are still open.
func (t *trial) memory() {
	var now, peak int64
	for _, n := range t.nodes {
		a, b, ok := memoryOf(n.pid)
		if n.pid == 0 || !ok {
			return
		}
		now, peak = now+a, peak+b
	}
	t.m.Values["memory_mib"], t.m.Values["memory_peak_mib"] = float64(now)/(1<<20), float64(peak)/(1<<20)
}

// setSizes reads the sizes once the work in the background is done. What that wrote to the WAL counts.
func (t *trial) setSizes(ctx context.Context, total *tally, walBefore, rowsBefore, tablesBefore int64) error {
	t.progress.show("reading sizes", 0)
	if err := t.settle(ctx, t.v.Settle); err != nil {
		return err
	}
	wal, err := t.db.WAL(ctx)
	if err != nil {
		return err
	}
	rows, tables, err := t.sizes(ctx)
	if err != nil {
		return err
	}
	perRun := t.driver.plan.perRun()
	t.m.setBytes("wal", wal-walBefore, total, perRun)
	t.m.setBytes("rows", rows-rowsBefore, total, perRun)
	t.m.setBytes("tables", tables-tablesBefore, total, perRun)
	return nil
}

// verify ends the streams and checks that threads have what was acknowledged.
func verify(ctx context.Context, d *driver, conns []*grpc.ClientConn) error {
	if !d.unfinished() {
		if err := d.close(); err != nil {
			return err
		}
	}
	const most = 100
	for i, s := range d.streams[:min(most, len(d.streams))] {
		client := threadsvcv1.NewThreadServiceClient(conns[i%len(conns)])
		resp, err := client.GetThread(ctx, &threadsvcv1.GetThreadRequest{Thread: nameOf(s.id)})
		if err != nil {
			return fmt.Errorf("bench: read thread %s back: %w", s.id, err)
		}
		if got := resp.GetThread().GetVersion(); got != s.version {
			return fmt.Errorf("bench: thread %s has version %d, but %d was acknowledged", s.id, got, s.version)
		}
	}
	return nil
}

// runYardstick runs a yardstick by its name.
func (b *bench) runYardstick(ctx context.Context, name string, threads []yardstick.Thread, p *plan) (yardstick.Result, error) {
	switch name {
	case "floor":
		return b.db.Floor(ctx, threads, b.o.YardstickTime)
	case "naive":
		return b.db.Naive(ctx, threads, p.states, b.o.YardstickConns, b.o.YardstickTime)
	case "alone":
		for i := range threads {
			threads[i].ID += "-alone"
		}
		return b.db.Alone(ctx, threads, b.o.YardstickConns, b.o.YardstickTime)
	default:
		return b.db.Single(ctx, threads[0], singleCommits)
	}
}

// singleCommits is how many rows the yardstick single commits.
const singleCommits = 1000

// single are the events of batches, each as a batch.
func single(batches []yardstick.Batch) (all []yardstick.Batch) {
	for _, b := range batches {
		for i := range b.Events {
			all = append(all, yardstick.Batch{Offset: b.Offset + uint64(i), Events: b.Events[i : i+1]})
		}
	}
	return all
}
