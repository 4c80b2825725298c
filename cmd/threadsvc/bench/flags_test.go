package bench

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func parse(t *testing.T, args ...string) (Options, error) {
	t.Helper()
	o := defaultOptions()
	f := pflag.NewFlagSet("bench", pflag.ContinueOnError)
	o.add(f)
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if o.Profile != "" {
		if err := applyProfile(f, o.Profile); err != nil {
			return o, err
		}
	}
	if err := o.check(); err != nil {
		return o, err
	}
	for _, flags := range o.Against {
		if _, err := o.variant(flags); err != nil {
			return o, err
		}
	}
	return o, nil
}

func TestEveryProfileIsValid(t *testing.T) {
	t.Parallel()
	for _, p := range profiles {
		if _, err := parse(t, "--profile", p.name); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
	}
}

func TestTheCommandLineWinsOverTheProfile(t *testing.T) {
	t.Parallel()
	o, err := parse(t, "--threads", "7", "--profile", "memory", "--state-bytes=1MiB")
	if err != nil || o.Threads != 7 || o.StateBytes != 1<<20 || o.Batch != 20 {
		t.Errorf("%d threads, %d of state, batches of %d, %v", o.Threads, o.StateBytes, o.Batch, err)
	}
}

func TestAVariantDiffersInItsFlagsOnly(t *testing.T) {
	t.Parallel()
	o, err := parse(t, "--threads=7", "--serve-arg=--max-conns=9")
	if err != nil {
		t.Fatal(err)
	}
	v, err := o.variant("runs=12,state-bytes=1KiB")
	if err != nil || v.Runs != 12 || v.StateBytes != 1<<10 || v.Threads != 7 || len(v.ServeArgs) != 1 {
		t.Errorf("%+v, %v", v, err)
	}
	if o.Runs == 12 || o.StateBytes == 1<<10 {
		t.Error("the options changed too")
	}
}

func TestWrongFlagsAreNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"--profile=none", "no profile"},
		{"--threads=0", "--threads is 0"},
		{"--batch=-1", "--batch is -1"},
		{"--runs=1000001", "--runs is 1000001"},
		{"--warmup=0", "--warmup is 0"},
		{"--state-bytes=1GiB", "state-bytes"},
		{"--state-bytes=65MiB", "--state-bytes is 65MiB"},
		{"--state-bytes=-1", "state-bytes"},
		{"--snapshots=some", "--snapshots"},
		{"--pace=-1", "--pace"},
		{"--pace=NaN", "--pace"},
		{"--duration=0s", "--duration"},
		{"--repeat=0", "--repeat"},
		{"--growth --runs=5", "--growth"},
		{"--address=x:1", "--database-url"},
		{"--address=x:1 --database-url=y --nodes=2", "--nodes"},
		{"--yardstick-time=0s", "--yardstick-time"},
		{"--against=nothing=1", "--against"},
		{"--against=threads=0", "--against"},
		{"--against=repeat=2", "--against"},
	} {
		if _, err := parse(t, strings.Fields(c.args)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", c.args, err, c.want)
		}
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]size{"0": 0, "2048": 2048, "2KiB": 2048, "3MiB": 3 << 20} {
		var s size
		if err := s.Set(text); err != nil || s != want {
			t.Errorf("%s is %d, %v", text, s, err)
		}
	}
	for _, text := range []string{"", "x", "1.5MiB", "1e3", "4294967296", "99999MiB"} {
		if err := new(size).Set(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
	for s, want := range map[size]string{0: "0", 100: "100", 2048: "2KiB", 3 << 20: "3MiB"} {
		if got := s.String(); got != want {
			t.Errorf("%d is %s, want %s", s, got, want)
		}
	}
}
