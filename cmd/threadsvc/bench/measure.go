package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"
)

// subject is the name of the measurement of the service as the flags say.
const subject = "threadsvc"

// measurement is what was measured of one thing. What could not be measured is missing.
type measurement struct {
	Name   string             `json:"name"`
	Values map[string]float64 `json:"values"`
}

// usage is what had been used up at a moment.
type usage struct {
	wal                       int64
	service, postgres, client time.Duration
	hasService, hasPostgres   bool
	hasClient                 bool
}

func (b *bench) usage(ctx context.Context, nodes []*node) (u usage, err error) {
	u.wal, err = b.db.WAL(ctx)
	var pids []int
	for _, n := range nodes {
		pids = append(pids, n.pid)
	}
	u.service, u.hasService = cpuOf(pids...)
	u.client, u.hasClient = cpuOf(os.Getpid())
	if b.postmaster != 0 {
		u.postgres, u.hasPostgres = cpuOfTree(b.postmaster)
	}
	return u, err
}

// set sets the values that are known of what a tally of events used, between two moments.
func (m *measurement) set(t *tally, perRun float64, before, after usage) {
	events := float64(t.events)
	v := m.Values
	v["events"], v["seconds"] = events, t.elapsed.Seconds()
	v["events_per_second"] = events / t.elapsed.Seconds()
	v["runs_per_second"] = events / perRun / t.elapsed.Seconds()
	v["json_per_event"] = float64(t.json) / events
	slices.Sort(t.latencies)
	v["ack_p50_ms"] = milliseconds(quantile(t.latencies, 0.5))
	v["ack_p99_ms"] = milliseconds(quantile(t.latencies, 0.99))
	v["ack_max_ms"] = milliseconds(quantile(t.latencies, 1))
	for _, cpu := range []struct {
		key    string
		known  bool
		amount time.Duration
	}{
		{"cpu_service", before.hasService && after.hasService, after.service - before.service},
		{"cpu_postgres", before.hasPostgres && after.hasPostgres, after.postgres - before.postgres},
		{"cpu_client", before.hasClient && after.hasClient, after.client - before.client},
	} {
		if cpu.known {
			v[cpu.key] = cpu.amount.Seconds() / events * 1e6
		}
	}
}

// setBytes sets what a number of bytes is for each event and run, and as a part of the events' JSON.
func (m *measurement) setBytes(key string, bytes int64, t *tally, perRun float64) {
	perEvent := float64(bytes) / float64(t.events)
	m.Values[key+"_per_event"] = perEvent
	m.Values[key+"_per_run"] = perEvent * perRun
	m.Values[key+"_percent"] = 100 * float64(bytes) / float64(t.json)
}

// quantile is the smallest value that at least the part q of the sorted values does not exceed; 0 of none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// service measures the service in a variant.
func (b *bench) service(ctx context.Context, v *Variant, p *plan, label string) (m measurement, err error) {
	b.progress.show("starting the server", 0)
	for i := range p.producers {
		b.left = append(b.left, p.producers[i].id)
	}
	nodes, err := startNodes(ctx, b.launch, b.cluster, b.o, v)
	if err != nil {
		return m, err
	}
	t := &trial{bench: b, v: v, nodes: nodes, m: measurement{Name: label, Values: map[string]float64{}}}
	err = t.run(ctx, p)
	if err = errors.Join(err, stopNodes(nodes)); err != nil {
		return m, withComplaints(err, nodes)
	}
	return t.m, nil
}

// withComplaints adds to an error what the servers' logs say.
func withComplaints(err error, nodes []*node) error {
	for _, n := range nodes {
		if said := n.complaints(); said != "" {
			err = fmt.Errorf("%w\nthe server's log:\n%s", err, said)
		}
	}
	return err
}

// yardstick measures one of the yardsticks with the plan's events.
func (b *bench) yardstick(ctx context.Context, name string, p *plan) (measurement, error) {
	m := measurement{Name: name, Values: map[string]float64{}}
	b.progress.show(name, 0)
	if err := b.db.Checkpoint(ctx); err != nil {
		return m, err
	}
	threads := p.measured()
	if name == "single" {
		threads = threads[:1]
		threads[0].ID += "-single"
		threads[0].Batches = single(threads[0].Batches)
	}
	before, err := b.usage(ctx, nil)
	if err != nil {
		return m, err
	}
	r, err := b.runYardstick(ctx, name, threads, p)
	if err != nil {
		return m, err
	}
	after, err := b.usage(ctx, nil)
	if err != nil {
		return m, err
	}
	t := &tally{events: r.Events, batches: r.Batches, json: r.JSON, elapsed: r.Elapsed, latencies: r.Latencies}
	m.set(t, p.perRun(), before, after)
	m.setBytes("wal", after.wal-before.wal, t, p.perRun())
	return m, nil
}

// perRun is the number of events of a measured run.
func (p *plan) perRun() float64 {
	w := p.workload
	return float64(p.events(w.Warmup, w.Warmup+w.Runs)) / float64(w.Threads*w.Runs)
}

// settle waits until the server's write-ahead log has been still for a while, which says that there is no work in the
// background, or until the time is over.
func (b *bench) settle(ctx context.Context, limit time.Duration) error {
	const (
		still = 5 * time.Second
		noise = 16 << 10 // bytes that an idle server writes of its own accord
	)
	end := time.Now().Add(limit)
	for limit > 0 {
		before, err := b.db.WAL(ctx)
		if err != nil {
			return err
		}
		if _, err := sleepUntil(ctx, time.Now().Add(min(still, time.Until(end)))); err != nil {
			return fmt.Errorf("bench: %w", err)
		}
		after, err := b.db.WAL(ctx)
		if err != nil || after-before < noise || !time.Now().Before(end) {
			return err
		}
	}
	return nil
}
