package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/threadsvc/threadsvc/store/yardstick"
)

// The bars: at most so many times the other.
const (
	barPast        = 3.0
	barCurrent     = 1.5
	barCheckpoints = 2.0
)

// historyReport is what bench history prints.
type historyReport struct {
	CPUs     int              `json:"cpus"`
	Platform string           `json:"platform"`
	Postgres yardstick.Server `json:"postgres"`

	Version    uint64 `json:"version"`
	Runs       int    `json:"runs"`
	Open       bool   `json:"open"`
	Messages   int    `json:"messages"`
	StateBytes int64  `json:"state_bytes"`
	Samples    int    `json:"samples"`

	Current contextTimes `json:"current"`
	Past    contextTimes `json:"past"`
	Short   contextTimes `json:"short"`

	LogBytes        int64 `json:"log_bytes"`
	CheckpointBytes int64 `json:"checkpoint_bytes"`
	Checkpoints     int64 `json:"checkpoints"`

	Bars []bar `json:"bars"`
}

// contextTimes are how long contexts of one kind took, in milliseconds, and their median size.
type contextTimes struct {
	Bytes int     `json:"bytes"`
	P50   float64 `json:"p50_ms"`
	P90   float64 `json:"p90_ms"`
	Max   float64 `json:"max_ms"`
}

// bar is a ratio and the most that it may be.
type bar struct {
	Label string  `json:"label"`
	Value float64 `json:"value"`
	Most  float64 `json:"most"`
	Met   bool    `json:"met"`
}

func (s *sampled) times() contextTimes {
	slices.Sort(s.took)
	slices.Sort(s.bytes)
	at := func(q float64) float64 { return milliseconds(quantile(s.took, q)) }
	return contextTimes{Bytes: s.bytes[(len(s.bytes)-1)/2], P50: at(0.5), P90: at(0.9), Max: at(1)}
}

func newHistoryReport(h *historian, server yardstick.Server, sizes yardstick.HistorySizes) *historyReport {
	r := &historyReport{
		CPUs: runtime.NumCPU(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Postgres: server,
		Version: h.version, Runs: h.o.Runs, Open: h.o.Open, Messages: h.messages, StateBytes: int64(h.stateBytes), Samples: h.o.Samples,
		Current: h.current.times(), Past: h.past.times(), Short: h.fork.times(),
		LogBytes: sizes.Log, CheckpointBytes: sizes.Checkpoints, Checkpoints: sizes.CheckpointCount,
	}
	r.judge("a random version's context against the current one, p50", r.Past.P50/r.Current.P50, barPast)
	r.judge("the current context against that of a short log, p50", r.Current.P50/r.Short.P50, barCurrent)
	r.judge("bytes of checkpoints against those of the log", float64(sizes.Checkpoints)/float64(sizes.Log), barCheckpoints)
	return r
}

func (r *historyReport) judge(label string, value, most float64) {
	r.Bars = append(r.Bars, bar{Label: label, Value: value, Most: most, Met: value <= most})
}

// errBarMissed is the command's error if a bar is missed and it was asked to fail then.
var errBarMissed = errors.New("bench: a bar was missed")

func (r *historyReport) verdict(enforce bool) error {
	if enforce && slices.ContainsFunc(r.Bars, func(b bar) bool { return !b.Met }) {
		return errBarMissed
	}
	return nil
}

func (r *historyReport) writeJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

func (r *historyReport) writeText(w io.Writer) error {
	var text strings.Builder
	state := ""
	if r.Open {
		state = ", the last still going on"
	}
	fmt.Fprintf(&text, "a log of %s entries in %d runs%s, %s bytes of state, %s messages; %d readings of each kind, in turn\n",
		number(float64(r.Version)), r.Runs, state, number(float64(r.StateBytes)), number(float64(r.Messages)), r.Samples)
	fmt.Fprintf(&text, "%s, %d CPUs; Postgres %s, fsync %s, synchronous_commit %s\n\n", r.Platform, r.CPUs, r.Postgres.Version,
		r.Postgres.Fsync, r.Postgres.SynchronousCommit)
	rows := [][]string{{"", "current", "random version", "short log"}}
	for _, q := range []struct {
		label string
		of    func(*contextTimes) float64
	}{
		{"context, p50, ms", func(t *contextTimes) float64 { return t.P50 }},
		{"  p90, ms", func(t *contextTimes) float64 { return t.P90 }},
		{"  max, ms", func(t *contextTimes) float64 { return t.Max }},
		{"  bytes, p50", func(t *contextTimes) float64 { return float64(t.Bytes) }},
	} {
		rows = append(rows, []string{q.label, number(q.of(&r.Current)), number(q.of(&r.Past)), number(q.of(&r.Short))})
	}
	align(&text, rows)
	fmt.Fprintf(&text, "\nlog %s bytes, %d checkpoints %s bytes, as they are stored\n\n", number(float64(r.LogBytes)), r.Checkpoints,
		number(float64(r.CheckpointBytes)))
	r.writeBars(&text)
	_, err := io.WriteString(w, text.String())
	return err
}

func (r *historyReport) writeBars(text *strings.Builder) {
	var rows [][]string
	for _, b := range r.Bars {
		verdict := "met"
		if !b.Met {
			verdict = "MISSED"
		}
		rows = append(rows, []string{b.Label, number(b.Value) + "×", fmt.Sprintf("at most %v×", b.Most), verdict})
	}
	align(text, rows)
}
