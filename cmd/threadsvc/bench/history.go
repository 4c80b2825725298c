package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// HistoryOptions are the flags of the command bench history: what the thread is, and how it is measured.
type HistoryOptions struct {
	Entries, Messages int
	StateBytes        size
	Runs              int
	Open              bool
	Samples           int
	Batch             int
	Deltas            float64
	Seed              uint64
	Enforce           bool

	base Options // those that it shares with bench
}

// defaultHistoryOptions are those of the bars.
func defaultHistoryOptions() HistoryOptions {
	o := HistoryOptions{
		Entries: 100_000, Messages: 1000, StateBytes: 1 << 20, Samples: 60, Batch: 100, Deltas: 0.08, Seed: 1, base: defaultOptions(),
	}
	o.base.Settle, o.base.Threads = 2*time.Minute, 1
	return o
}

func (o *HistoryOptions) add(f *pflag.FlagSet) {
	f.SortFlags = false
	f.IntVar(&o.Entries, "entries", o.Entries, "entries of the thread's log, about")
	f.IntVar(&o.Messages, "messages", o.Messages, "messages of the thread at its end, about")
	f.Var(&o.StateBytes, "state-bytes", "size of its state, in bytes of JSON (KiB, MiB)")
	f.IntVar(&o.Runs, "runs", 0, "runs that the log is made of; 0 is one for every 8 messages")
	f.BoolVar(&o.Open, "open", false, "measure while the last run is still going on; with --runs 1 the whole log is that run's")
	f.Float64Var(&o.Deltas, "deltas", o.Deltas, "part of the entries that change the state, `0 to 1`")
	f.IntVar(&o.Batch, "batch", o.Batch, "events in one message")
	f.IntVar(&o.Samples, "samples", o.Samples, "how many contexts are read of each kind")
	f.Uint64Var(&o.Seed, "seed", o.Seed, "`number` that decides about all texts and versions")
	f.BoolVar(&o.Enforce, "enforce", false, "fail if a bar is missed")
	f.StringArrayVar(&o.base.Addresses, "address", nil, "`host:port` of a running server instead of starting one, with --database-url")
	f.StringVar(&o.base.DatabaseURL, "database-url", "", "Postgres connection `URL`; empty starts a private Postgres that is removed afterwards (default empty)")
	f.StringVar(&o.base.TempDir, "temp-dir", "", "`directory` for the private Postgres (default the system's)")
	f.DurationVar(&o.base.Settle, "settle", o.base.Settle, "wait up to this `time` for work in the background before anything is read")
	f.StringArrayVar(&o.base.ServeArgs, "serve-arg", nil, "further `argument` of the server that is started; may be repeated")
	f.BoolVar(&o.base.Keep, "keep", false, "leave the threads in the database of --database-url")
	f.BoolVar(&o.base.JSON, "json", false, "print JSON")
}

// check finds what the types of the flags cannot.
func (o *HistoryOptions) check() error {
	if o.Runs == 0 {
		o.Runs = max(1, o.Messages/8)
	}
	switch {
	case o.Samples < 1 || o.Samples > 100_000:
		return fmt.Errorf("--samples is %d, want 1 to 100000", o.Samples)
	case o.Runs < 1 || o.Messages < 2*o.Runs || o.Messages > 1_000_000:
		return fmt.Errorf("--messages is %d, want at least two for each of %d runs, and at most 1000000", o.Messages, o.Runs)
	case !(o.Deltas >= 0 && o.Deltas <= 1):
		return fmt.Errorf("--deltas is %v, want 0 to 1", o.Deltas)
	case o.Entries < leastEntries(o.Messages, o.Runs) || o.Entries > 10_000_000:
		return fmt.Errorf("--entries is %d, want %d to 10000000 for so many messages", o.Entries, leastEntries(o.Messages, o.Runs))
	}
	o.base.Workload = o.workload()
	return o.base.check()
}

func newHistoryCommand(launch launcher) *cobra.Command {
	o := defaultHistoryOptions()
	c := &cobra.Command{
		Use:   "history",
		Short: "Measure what it costs to read a long thread, now and at any version of its past",
		Long: "Build a thread with a long log through a server, and compare, in turn within one run, its context now, its context\n" +
			"at random versions, and the context of a fork, which is the same thread with a log of one entry.",
		Example: "  threadsvc bench history\n" +
			"  threadsvc bench history --runs 1 --open    # a single run that is still going on",
		Args: cobra.NoArgs,
	}
	o.add(c.Flags())
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := o.check(); err != nil {
			return err
		}
		report, err := runHistory(c.Context(), &o, launch, c.ErrOrStderr())
		if err != nil {
			return err
		}
		write := report.writeText
		if o.base.JSON {
			write = report.writeJSON
		}
		if err := write(c.OutOrStdout()); err != nil {
			return err
		}
		return report.verdict(o.Enforce)
	}
	return c
}

// runHistory builds the thread and measures it, with a server that lives as long.
func runHistory(ctx context.Context, o *HistoryOptions, launch launcher, stderr io.Writer) (_ *historyReport, err error) {
	b, err := openBench(ctx, &o.base, launch, stderr)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	h := &historian{bench: b, o: o}
	nodes, err := startNodes(ctx, launch, b.cluster, &o.base, h.served())
	if err != nil {
		return nil, err
	}
	report, err := h.run(ctx, nodes[0].address)
	if err = errors.Join(err, stopNodes(nodes)); err != nil {
		return nil, withComplaints(err, nodes)
	}
	b.progress.stop()
	return report, nil
}
