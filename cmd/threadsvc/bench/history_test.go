package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/threadsvc/threadsvc/store/storetest"
)

// executeHistory runs the command with a small thread, the flags given, and a database of the test's own.
func executeHistory(t *testing.T, args ...string) (string, error) {
	t.Helper()
	c := newCommand(launchHere)
	c.SilenceUsage, c.SilenceErrors = true, true
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&bytes.Buffer{})
	c.SetArgs(append([]string{"history", "--entries=3000", "--messages=40", "--state-bytes=16KiB", "--samples=3", "--settle=0s"}, args...))
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

func TestHistoryMeasuresTheThreadThatWasAskedFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		args []string
		runs int
	}{
		{"many runs", nil, 5},
		{"one run that goes on", []string{"--runs=1", "--open"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			url := storetest.Database(t)
			out, err := executeHistory(t, append(c.args, "--database-url", url, "--json")...)
			if err != nil {
				t.Fatal(err)
			}
			var got historyReport
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				t.Fatal(err)
			}
			if got.Version < 2900 || got.Version > 3100 || got.Runs != c.runs || got.Open != (c.runs == 1) || got.Samples != 3 {
				t.Errorf("%d entries in %d runs, open %v, %d samples", got.Version, got.Runs, got.Open, got.Samples)
			}
			if got.Messages < 38 || got.Messages > 42 || got.StateBytes < 15<<10 || got.StateBytes > 18<<10 {
				t.Errorf("%d messages and %d bytes of state", got.Messages, got.StateBytes)
			}
			for _, times := range []contextTimes{got.Current, got.Past, got.Short} {
				if times.P50 <= 0 || times.P90 < times.P50 || times.Max < times.P90 || times.Bytes == 0 {
					t.Errorf("times %+v", times)
				}
			}
			if got.LogBytes <= 0 || len(got.Bars) != 3 || !got.Bars[2].Met {
				t.Errorf("a log of %d bytes, bars %+v", got.LogBytes, got.Bars)
			}
			if left := threadsIn(t, url); left != 0 {
				t.Errorf("%d threads were left", left)
			}
		})
	}
}

func TestHistoryReportForPeople(t *testing.T) {
	t.Parallel()
	out, err := executeHistory(t, "--database-url", storetest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"in 5 runs", "random version", "checkpoints", "at most 3×", "at most 1.5×", "at most 2×", "met"} {
		if !strings.Contains(out, part) {
			t.Errorf("%q is missing in\n%s", part, out)
		}
	}
}

func TestBarsAreJudged(t *testing.T) {
	t.Parallel()
	r := &historyReport{}
	r.judge("at the bar", 3, 3)
	if r.verdict(true) != nil {
		t.Error("a bar that is just met was missed")
	}
	r.judge("beyond", 3.01, 3)
	if r.verdict(false) != nil || !errors.Is(r.verdict(true), errBarMissed) {
		t.Error("a missed bar fails the command only if it was asked for")
	}
	var text bytes.Buffer
	if err := r.writeText(&text); err != nil || strings.Count(text.String(), "MISSED") != 1 {
		t.Errorf("%v\n%s", err, text.String())
	}
}

func TestHistoryWorkloadAddsUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ entries, messages, runs int }{{100_000, 1000, 0}, {100_000, 1000, 1}, {5000, 200, 100}, {2000, 2, 1}} {
		o := defaultHistoryOptions()
		o.Entries, o.Messages, o.Runs, o.StateBytes = c.entries, c.messages, c.runs, 1<<10
		if err := o.check(); err != nil {
			t.Fatal(err)
		}
		p, err := newPlan(t.Context(), o.base.Workload, "t")
		if err != nil {
			t.Fatal(err)
		}
		o.cut(p)
		if n := p.events(0, o.Runs); n < c.entries*9/10 || n > c.entries+10 {
			t.Errorf("%+v: %d events", c, n)
		}
		if calls := o.base.ToolCalls; o.Runs*(2*calls+2) > c.messages || o.Runs*(2*calls+4) <= c.messages {
			t.Errorf("%+v: %d runs of %d calls", c, o.Runs, calls)
		}
	}
}

func TestHistoryRefusesFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--samples=0"}, {"--messages=1"}, {"--runs=30"}, {"--runs=-1"}, {"--entries=100"}, {"--deltas=1.5"}, {"--deltas=NaN"},
		{"--batch=0"}, {"--state-bytes=65MiB"}, {"--settle=-1s"}, {"--address=localhost:1"}, {"--messages=2000000"}, {"more"},
	} {
		if _, err := executeHistory(t, slices.Concat([]string{"--database-url="}, args)...); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
}
