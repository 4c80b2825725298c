package bench

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Options are the flags of the command.
type Options struct {
	Variant

	Profile     string
	Addresses   []string
	DatabaseURL string
	TempDir     string
	Keep        bool

	Floor, Naive, Alone, Single bool
	YardstickTime               time.Duration
	YardstickConns              int

	Against []string
	Repeat  int
	JSON    bool
}

// Variant is one way to load the service: what is sent, how, and to what server. A benchmark compares several.
type Variant struct {
	Workload
	Pace        float64       `json:"pace"`
	Unacked     int           `json:"unacked"`
	Duration    time.Duration `json:"duration_ns"`
	Settle      time.Duration `json:"settle_ns"`
	Growth      bool          `json:"growth"`
	Connections int           `json:"connections"`
	Nodes       int           `json:"nodes"`
	ServeArgs   []string      `json:"serve_args"`
}

// defaultOptions are those of the profile flood, without yardsticks.
func defaultOptions() Options {
	return Options{
		Variant: Variant{
			Workload: Workload{
				Threads: 64, Warmup: 1, Runs: 40, Tokens: 200, ToolCalls: 3, Deltas: 20, StateBytes: 2 << 10, Batch: 100,
				Snapshots: "none", Seed: 1,
			},
			Duration: time.Minute, Settle: 30 * time.Second, Connections: 4, Nodes: 1,
		},
		YardstickTime: 5 * time.Second, YardstickConns: 64, Repeat: 1,
	}
}

// add adds the flags that a variant can differ in. The present values are the defaults.
func (v *Variant) add(f *pflag.FlagSet) {
	f.IntVar(&v.Threads, "threads", v.Threads, "threads, each with one producer and one stream")
	f.IntVar(&v.Runs, "runs", v.Runs, "runs of each thread that are measured")
	f.IntVar(&v.Warmup, "warmup", v.Warmup, "runs of each thread before that")
	f.DurationVar(&v.Duration, "duration", v.Duration, "end the measurement after this `time` though there are runs left")
	f.IntVar(&v.Tokens, "tokens", v.Tokens, "text deltas in each run")
	f.IntVar(&v.ToolCalls, "tool-calls", v.ToolCalls, "tool calls in each run, of 13 events each")
	f.IntVar(&v.Deltas, "deltas", v.Deltas, "state deltas in each run")
	f.Var(&v.StateBytes, "state-bytes", "size of each thread's state, in bytes of JSON (KiB, MiB)")
	f.StringVar(&v.Snapshots, "snapshots", v.Snapshots, "what each run restates at its end: none, messages, state or all")
	f.IntVar(&v.KeepMessages, "keep-messages", v.KeepMessages, "end each run with a snapshot of the newest so many messages; 0 keeps all")
	f.Uint64Var(&v.Seed, "seed", v.Seed, "`number` that decides about all texts")
	f.IntVar(&v.Batch, "batch", v.Batch, "events in one message")
	f.IntVar(&v.Unacked, "unacked", v.Unacked, "most batches of a stream without acknowledgement; 0 leaves it to the server")
	f.Float64Var(&v.Pace, "pace", v.Pace, "events per second of each thread; 0 is as fast as it goes")
	f.BoolVar(&v.Growth, "growth", v.Growth, "compare the bytes kept per run around run 10 and at the end")
	f.DurationVar(&v.Settle, "settle", v.Settle, "wait up to this `time` for work in the background before sizes are read, also after the warm-up; with 0s sizes mean little")
	f.IntVar(&v.Connections, "connections", v.Connections, "connections of the producers together")
	f.IntVar(&v.Nodes, "nodes", v.Nodes, "server processes on the database, which share the threads")
	f.StringArrayVar(&v.ServeArgs, "serve-arg", v.ServeArgs, "further `argument` of the servers that are started; may be repeated")
}

// add adds all flags.
func (o *Options) add(f *pflag.FlagSet) {
	f.SortFlags = false
	f.StringVar(&o.Profile, "profile", "", "start from the flags of a `profile`: "+profileNames()+" (default none)")
	o.Variant.add(f)
	f.StringArrayVar(&o.Against, "against", nil, "also measure with other `flags`, such as state-bytes=1KiB,runs=10, and compare; may be repeated")
	f.BoolVar(&o.Floor, "floor", false, "yardstick: the same segments inserted straight into Postgres, the limit")
	f.BoolVar(&o.Naive, "naive", false, "yardstick: a transaction for each event that rewrites the state")
	f.BoolVar(&o.Alone, "alone", false, "yardstick: every stream commits its batches alone, on its own connection")
	f.BoolVar(&o.Single, "single", false, "yardstick: the latency of a single row's commit on the idle database")
	f.DurationVar(&o.YardstickTime, "yardstick-time", o.YardstickTime, "end each yardstick after this `time`")
	f.IntVar(&o.YardstickConns, "yardstick-conns", o.YardstickConns, "most connections of --naive and --alone")
	f.StringArrayVar(&o.Addresses, "address", nil, "`host:port` of a running server instead of starting one, with --database-url; may be repeated")
	f.StringVar(&o.DatabaseURL, "database-url", "", "Postgres connection `URL`; empty starts a private Postgres that syncs to disk and is removed afterwards (default empty)")
	f.StringVar(&o.TempDir, "temp-dir", "", "`directory` on the disk to measure, for the private Postgres (default the system's)")
	f.BoolVar(&o.Keep, "keep", false, "leave the threads in the database of --database-url")
	f.IntVar(&o.Repeat, "repeat", o.Repeat, "measure so many times and report the medians")
	f.BoolVar(&o.JSON, "json", false, "print JSON")
}

// check finds what the types of the flags cannot.
func (o *Options) check() error {
	switch {
	case len(o.Addresses) > 0 && o.DatabaseURL == "":
		return errors.New("--address needs --database-url, of the database that the server uses")
	case len(o.Addresses) > 0 && (o.Nodes != 1 || len(o.ServeArgs) > 0):
		return errors.New("--nodes and --serve-arg are for servers that are started, not for those of --address")
	case o.Repeat < 1 || o.Repeat > 100:
		return fmt.Errorf("--repeat is %d, want 1 to 100", o.Repeat)
	case o.YardstickTime <= 0 || o.YardstickConns < 1:
		return errors.New("--yardstick-time and --yardstick-conns must be above 0")
	}
	return o.Variant.check()
}

func (v *Variant) check() error {
	for _, c := range []struct {
		name             string
		value, low, high int
	}{
		{"threads", v.Threads, 1, 100_000}, {"runs", v.Runs, 1, 1_000_000}, {"warmup", v.Warmup, 1, 1_000_000},
		{"tokens", v.Tokens, 0, 1_000_000}, {"tool-calls", v.ToolCalls, 0, 10_000}, {"deltas", v.Deltas, 0, 1_000_000},
		{"keep-messages", v.KeepMessages, 0, 1_000_000}, {"batch", v.Batch, 1, 100_000}, {"unacked", v.Unacked, 0, 100_000},
		{"connections", v.Connections, 1, 1000}, {"nodes", v.Nodes, 1, 16},
	} {
		if c.value < c.low || c.value > c.high {
			return fmt.Errorf("--%s is %d, want %d to %d", c.name, c.value, c.low, c.high)
		}
	}
	switch {
	case v.StateBytes > 64<<20:
		return fmt.Errorf("--state-bytes is %s, want at most 64MiB", v.StateBytes.String())
	case v.Duration <= 0 || v.Settle < 0 || v.Pace < 0 || math.IsNaN(v.Pace) || math.IsInf(v.Pace, 0):
		return errors.New("--duration must be above 0, --settle and --pace must not be below 0")
	case !strings.Contains(" none messages state all ", " "+v.Snapshots+" "):
		return fmt.Errorf("--snapshots is %q, want none, messages, state or all", v.Snapshots)
	case v.Growth && v.Warmup+v.Runs < lastOfEarly+growthWindow:
		return fmt.Errorf("--growth needs %d runs at least", lastOfEarly+growthWindow)
	}
	return nil
}

// variant is the options' variant with other flags, "name=value,name=value".
func (o *Options) variant(flags string) (*Variant, error) {
	v := o.Variant
	set := pflag.NewFlagSet("against", pflag.ContinueOnError)
	v.add(set)
	for _, flag := range strings.Split(flags, ",") {
		name, value, _ := strings.Cut(flag, "=")
		if err := set.Set(strings.TrimLeft(name, "-"), value); err != nil {
			return nil, fmt.Errorf("--against %q: %w", flags, err)
		}
	}
	if err := v.check(); err != nil {
		return nil, fmt.Errorf("--against %q: %w", flags, err)
	}
	return &v, nil
}

// size is a number of bytes: 1048576, 1024KiB or 1MiB.
type size int64

// Set implements pflag.Value.
func (s *size) Set(text string) error {
	digits, unit := text, uint64(1)
	for suffix, bytes := range map[string]uint64{"KiB": 1 << 10, "MiB": 1 << 20} {
		if rest, ok := strings.CutSuffix(text, suffix); ok {
			digits, unit = rest, bytes
		}
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || n*unit > math.MaxInt32 {
		return errors.New("want a number of bytes such as 2048, 2KiB or 1MiB")
	}
	*s = size(n * unit)
	return nil
}

// String implements pflag.Value.
func (s *size) String() string {
	switch n := int64(*s); {
	case n > 0 && n%(1<<20) == 0:
		return strconv.FormatInt(n>>20, 10) + "MiB"
	case n > 0 && n%(1<<10) == 0:
		return strconv.FormatInt(n>>10, 10) + "KiB"
	default:
		return strconv.FormatInt(n, 10)
	}
}

// Type implements pflag.Value.
func (*size) Type() string { return "bytes" }
