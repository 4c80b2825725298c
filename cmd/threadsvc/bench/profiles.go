package bench

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// profile is a set of flags under a name, in the order of the question they answer.
type profile struct {
	name, about string
	flags       string
}

var profiles = []profile{
	{"flood", "as fast as it goes, 2 KiB of state, 100 events per message; against the limit and the naive way",
		"runs=60 duration=20s floor=true naive=true"},
	{"flood-1mb", "the same with 1 MiB of state",
		"runs=40 duration=30s state-bytes=1MiB naive=true yardstick-time=10s"},
	{"unacked", "one event at a time, each acknowledged before the next; against streams that commit alone",
		"batch=1 unacked=1 runs=20 duration=10s alone=true"},
	{"paced", "100 events per second of each thread, one per message; against a single row's commit on the idle database",
		"batch=1 pace=100 runs=10 duration=40s single=true"},
	{"restate", "every run restates all messages and the state; bytes kept per run at the end against run 10",
		"threads=2 runs=999 tokens=20 tool-calls=1 deltas=3 snapshots=all growth=true duration=5m settle=10m"},
	{"state", "10 MiB of state against 1 KiB: what an event costs the service",
		"threads=4 runs=300 state-bytes=10MiB duration=1m against=state-bytes=1KiB"},
	{"load", "reading a context after 2,000 runs and after 20, of the same size and of others, against a bare SELECT of it",
		"threads=4 runs=1999 tokens=50 tool-calls=0 deltas=1 state-bytes=64KiB keep-messages=40 duration=2m " +
			"against=runs=19 against=runs=19,state-bytes=1KiB against=runs=19,state-bytes=1MiB"},
	{"memory", "10,000 live threads in a cache of 256 MiB",
		"threads=10000 runs=1 tokens=50 tool-calls=1 deltas=5 batch=20 pace=2 connections=8 duration=2m serve-arg=--cache-bytes=256MiB"},
	{"nodes", "two servers on one database against one",
		"runs=200 duration=20s nodes=2 against=nodes=1"},
	{"quick", "a few seconds, to see that everything works",
		"threads=8 runs=3 floor=true naive=true alone=true single=true yardstick-time=1s duration=10s"},
}

func profileNames() string {
	var names []string
	for _, p := range profiles {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}

func profileHelp() string {
	var text strings.Builder
	for _, p := range profiles {
		fmt.Fprintf(&text, "\n  %-10s %s", p.name, p.about)
	}
	return text.String()
}

// applyProfile sets the profile's flags, except those that the command line names.
func applyProfile(f *pflag.FlagSet, name string) error {
	for _, p := range profiles {
		if p.name != name {
			continue
		}
		named := map[string]bool{}
		f.Visit(func(flag *pflag.Flag) { named[flag.Name] = true })
		for _, flag := range strings.Fields(p.flags) {
			name, value, _ := strings.Cut(flag, "=")
			if named[name] {
				continue
			}
			if err := f.Set(name, value); err != nil {
				return fmt.Errorf("profile %s: %w", p.name, err)
			}
		}
		return nil
	}
	return fmt.Errorf("there is no profile %q; there are %s", name, profileNames())
}
