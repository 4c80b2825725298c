// Package bench is the benchmark of threadsvc: it loads a server with generated AG-UI streams, measures what that costs the
// service and Postgres, and compares it with yardsticks on the same Postgres and with the same events.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/threadsvc/threadsvc/store/yardstick"
)

// Command returns the command bench. It fails if anything but the full success of every call is seen.
func Command() *cobra.Command { return newCommand(launchProcess) }

func newCommand(launch launcher) *cobra.Command {
	o := defaultOptions()
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure throughput, latency and cost",
		Long: "Measure what a server takes and what that costs: events per second, acknowledgement latency, WAL, storage,\n" +
			"processor time, memory. By default a private Postgres, which syncs to disk, and a server are started for it.\n" +
			"\nProfiles:" + profileHelp(),
		Example: "  threadsvc bench --profile flood --repeat 5\n" +
			"  threadsvc bench --threads 16 --batch 1 --unacked 1 --alone\n" +
			"  threadsvc bench --address 127.0.0.1:8980 --database-url postgres://app@db.internal/threads",
		Args: cobra.NoArgs,
	}
	o.add(c.Flags())
	c.AddCommand(newHistoryCommand(launch))
	c.RunE = func(c *cobra.Command, _ []string) error {
		if o.Profile != "" {
			if err := applyProfile(c.Flags(), o.Profile); err != nil {
				return err
			}
		}
		if err := o.check(); err != nil {
			return err
		}
		report, err := runBench(c.Context(), &o, launch, c.ErrOrStderr())
		if err != nil {
			return err
		}
		if o.JSON {
			return report.writeJSON(c.OutOrStdout())
		}
		return report.writeText(c.OutOrStdout())
	}
	return c
}

// bench is one execution of the command.
type bench struct {
	o          *Options
	launch     launcher
	cluster    *cluster
	db         *yardstick.DB
	server     yardstick.Server
	postmaster int // 0 if it is not on this machine
	progress   *progress
	left       []string // threads to delete at the end
}

func runBench(ctx context.Context, o *Options, launch launcher, stderr io.Writer) (_ *report, err error) {
	variants := []*Variant{&o.Variant}
	for _, flags := range o.Against {
		v, err := o.variant(flags)
		if err != nil {
			return nil, err
		}
		variants = append(variants, v)
	}
	b, err := openBench(ctx, o, launch, stderr)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	return b.repeat(ctx, variants)
}

// openBench starts what any benchmark needs; close ends it.
func openBench(ctx context.Context, o *Options, launch launcher, stderr io.Writer) (_ *bench, err error) {
	b := &bench{o: o, launch: launch, progress: startProgress(stderr)}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	return b, b.openDatabase(ctx)
}

func (b *bench) openDatabase(ctx context.Context) (err error) {
	b.progress.show("starting Postgres", 0)
	if b.cluster, err = openCluster(ctx, b.o); err != nil {
		return err
	}
	if b.db, err = yardstick.Open(ctx, b.cluster.url); err != nil {
		return err
	}
	if b.server, err = b.db.Server(ctx); err != nil {
		return err
	}
	b.postmaster = postmasterOf(b.server.BackendPID)
	b.o.YardstickConns = min(b.o.YardstickConns, max(1, b.server.MaxConnections-20))
	return nil
}

func (b *bench) close() error {
	b.progress.stop()
	return b.closeDatabase()
}

func (b *bench) closeDatabase() (err error) {
	if b.db != nil {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		err = b.db.Close(ctx)
	}
	if b.cluster != nil {
		err = errors.Join(err, b.cluster.close())
	}
	b.db, b.cluster = nil, nil
	return err
}

// renewDatabase replaces a private Postgres by a new one: in the pages that another measurement has written, the first change
// after a checkpoint puts the whole page into the WAL.
func (b *bench) renewDatabase(ctx context.Context) error {
	if b.cluster.private == nil {
		return nil
	}
	return errors.Join(b.closeDatabase(), b.openDatabase(ctx))
}

// repeat measures everything as often as asked for and takes the medians.
func (b *bench) repeat(ctx context.Context, variants []*Variant) (*report, error) {
	var all [][]measurement
	name := fmt.Sprintf("bench-%d-%d", time.Now().UnixMilli(), os.Getpid())
	for i := range b.o.Repeat {
		b.progress.prefix(fmt.Sprintf("%d of %d", i+1, b.o.Repeat))
		if i > 0 {
			if err := b.renewDatabase(ctx); err != nil {
				return nil, err
			}
		}
		once, err := b.once(ctx, variants, fmt.Sprintf("%s-%d", name, i))
		if err != nil {
			return nil, err
		}
		all = append(all, once)
	}
	b.progress.stop()
	if b.cluster.private == nil && !b.o.Keep {
		if err := b.deleteThreads(ctx); err != nil {
			return nil, err
		}
	}
	return newReport(b.o, variants, b.server, all), nil
}

// once measures the service in each variant, and the yardsticks with the events of the first.
func (b *bench) once(ctx context.Context, variants []*Variant, name string) (all []measurement, err error) {
	first, err := b.newPlan(ctx, variants[0], name)
	if err != nil {
		return nil, err
	}
	take := func(m measurement, err error) error {
		all = append(all, m)
		return err
	}
	if b.o.Single { // before anything else, since it is about an idle database
		if err := take(b.yardstick(ctx, "single", first)); err != nil {
			return nil, err
		}
	}
	var readings []*reading
	for i, v := range variants {
		p, label := first, subject
		if i > 0 {
			label = b.o.Against[i-1]
			if p, err = b.newPlan(ctx, v, fmt.Sprintf("%s-%d", name, i)); err != nil {
				return nil, err
			}
		}
		if err := take(b.service(ctx, v, p, label)); err != nil {
			return nil, err
		}
		readings = append(readings, readingOf(p, all[len(all)-1].Values, i*contextThreads))
	}
	if err := b.contexts(ctx, variants[0], readings); err != nil {
		return nil, err
	}
	for _, yardstick := range b.o.loads() {
		if err := take(b.yardstick(ctx, yardstick, first)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// loads are the yardsticks that load the database, in the order in which they do.
func (o *Options) loads() (names []string) {
	for _, y := range []struct {
		name string
		want bool
	}{{"floor", o.Floor}, {"naive", o.Naive}, {"alone", o.Alone}} {
		if y.want {
			names = append(names, y.name)
		}
	}
	return names
}

func (b *bench) newPlan(ctx context.Context, v *Variant, name string) (*plan, error) {
	b.progress.show("writing events", 0)
	return newPlan(ctx, v.Workload, name)
}
