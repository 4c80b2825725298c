package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/threadsvc/threadsvc/store/yardstick"
)

// quantities are the values of a measurement in the order of the report, with what they are called for people.
var quantities = []struct{ key, label string }{
	{"events_per_second", "events/s"},
	{"runs_per_second", "runs/s"},
	{"ack_p50_ms", "acknowledged after, p50, ms"},
	{"ack_p99_ms", "  p99, ms"},
	{"ack_max_ms", "  max, ms"},
	{"json_per_event", "JSON received, bytes per event"},
	{"wal_per_event", "WAL, bytes per event"},
	{"wal_per_run", "  bytes per run"},
	{"wal_percent", "  % of the JSON"},
	{"rows_per_event", "rows, bytes per event"},
	{"rows_per_run", "  bytes per run"},
	{"rows_percent", "  % of the JSON"},
	{"tables_per_event", "tables and indexes, bytes per event"},
	{"tables_per_run", "  bytes per run"},
	{"tables_percent", "  % of the JSON"},
	{"cpu_service", "CPU s per million events, service"},
	{"cpu_postgres", "  Postgres"},
	{"cpu_client", "  client"},
	{"memory_mib", "memory of the service, MiB"},
	{"memory_peak_mib", "  at its peak, MiB"},
	{"context_bytes", "context, bytes"},
	{"context_first_ms", "  the first reads, p50, ms"},
	{"context_ms", "  read from a server without it in memory, p50, ms"},
	{"context_select_ms", "  bare SELECT of its text, p50, ms"},
	{"context_rows_ms", "  bare SELECT of its rows, p50, ms"},
	{"growth_early", "rows, bytes per run around run 10"},
	{"growth_late", "  in the last tenth of the runs"},
	{"events", "events measured"},
	{"seconds", "  in seconds"},
}

// alwaysShown are those of which the report says that they could not be measured, as where there is no /proc.
var alwaysShown = map[string]bool{"cpu_service": true, "cpu_postgres": true, "memory_mib": true}

// ratio compares two values of one repetition.
type ratio struct {
	Label string  `json:"label"`
	Value float64 `json:"value"`

	of, by       string // measurements
	ofKey, byKey string
}

// ratiosOf are the comparisons that can be made, given the variants that the service is compared with.
func ratiosOf(against []string) []ratio {
	list := []ratio{
		{Label: "events/s against --floor", of: subject, ofKey: "events_per_second", by: "floor"},
		{Label: "events/s against --naive", of: subject, ofKey: "events_per_second", by: "naive"},
		{Label: "events/s against --alone", of: subject, ofKey: "events_per_second", by: "alone"},
		{Label: "ack p50 against a single commit", of: subject, ofKey: "ack_p50_ms", by: "single"},
		{Label: "ack p99 against a single commit", of: subject, ofKey: "ack_p99_ms", by: "single"},
		{Label: "context against a bare SELECT of its text", of: subject, ofKey: "context_ms", by: subject, byKey: "context_select_ms"},
		{Label: "context against a bare SELECT of its rows", of: subject, ofKey: "context_ms", by: subject, byKey: "context_rows_ms"},
		{Label: "bytes per run, last runs against run 10", of: subject, ofKey: "growth_late", by: subject, byKey: "growth_early"},
	}
	for _, flags := range against {
		for _, q := range []struct{ key, label string }{
			{"events_per_second", "events/s"}, {"ack_p99_ms", "ack p99"}, {"cpu_service", "CPU of the service per event"},
			{"rows_per_run", "bytes of rows per run"}, {"context_ms", "context"},
		} {
			list = append(list, ratio{Label: q.label + " against " + flags, of: subject, ofKey: q.key, by: flags})
		}
		list = append(list,
			ratio{Label: "context of " + flags + " against a bare SELECT of its text", of: flags, ofKey: "context_ms", by: flags, byKey: "context_select_ms"},
			ratio{Label: "context of " + flags + " against a bare SELECT of its rows", of: flags, ofKey: "context_ms", by: flags, byKey: "context_rows_ms"})
	}
	return list
}

// report is what the command prints: medians over the repetitions, each value's and each ratio's of its own.
type report struct {
	Profile      string           `json:"profile,omitempty"`
	CPUs         int              `json:"cpus"`
	Platform     string           `json:"platform"`
	Postgres     yardstick.Server `json:"postgres"`
	Repetitions  int              `json:"repetitions"`
	Variants     []*Variant       `json:"variants"`
	Measurements []measurement    `json:"measurements"`
	Ratios       []ratio          `json:"ratios"`
	Notes        []string         `json:"notes"`
}

func newReport(o *Options, variants []*Variant, server yardstick.Server, all [][]measurement) *report {
	r := &report{
		Profile: o.Profile, CPUs: runtime.NumCPU(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Postgres: server,
		Repetitions: len(all), Variants: variants, Notes: notes,
	}
	for i := range all[0] {
		m := measurement{Name: all[0][i].Name, Values: map[string]float64{}}
		for key := range all[0][i].Values {
			m.Values[key] = medianOf(all, func(once []measurement) (float64, bool) { return valueOf(once, m.Name, key) })
		}
		r.Measurements = append(r.Measurements, m)
	}
	slices.SortStableFunc(r.Measurements, func(a, b measurement) int { return rank(a) - rank(b) })
	for _, q := range ratiosOf(o.Against) {
		q.Value = medianOf(all, q.in)
		if !math.IsNaN(q.Value) {
			r.Ratios = append(r.Ratios, q)
		}
	}
	return r
}

// rank puts the service first.
func rank(m measurement) int {
	if m.Name == subject {
		return 0
	}
	return 1
}

// notes say how the figures came about.
var notes = []string{
	"Client, service and Postgres share this machine's processors unless a server or a database elsewhere was named.",
	"The events are written and marshalled before, and the warm-up is not counted. Latencies run from when a batch was due.",
	"WAL is that of the whole server. Rows are what the tables hold; tables and indexes include free and dead space, " +
		"without a VACUUM but the server's own.",
	"--floor encodes, compresses and inserts the same batches, 64 threads to a transaction; no network, check or fold. --naive " +
		"is begin, insert, update of a jsonb state, commit for each event.",
}

func valueOf(once []measurement, name, key string) (float64, bool) {
	for _, m := range once {
		if m.Name == name {
			value, ok := m.Values[key]
			return value, ok
		}
	}
	return 0, false
}

// in is the ratio in one repetition.
func (q *ratio) in(once []measurement) (float64, bool) {
	byKey := q.byKey
	if byKey == "" {
		byKey = q.ofKey
	}
	of, okOf := valueOf(once, q.of, q.ofKey)
	by, okBy := valueOf(once, q.by, byKey)
	return of / by, okOf && okBy && by != 0
}

// medianOf is the median of what get finds in the repetitions, NaN if that is nothing.
func medianOf(all [][]measurement, get func([]measurement) (float64, bool)) float64 {
	var values []float64
	for _, once := range all {
		if value, ok := get(once); ok {
			values = append(values, value)
		}
	}
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

func (r *report) writeJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(r)
}

func (r *report) writeText(w io.Writer) error {
	var text strings.Builder
	v := r.Variants[0]
	fmt.Fprintf(&text, "%d threads, %d runs each, %d tokens, %d tool calls and %d state deltas per run, %s of state, %d events per message\n",
		v.Threads, v.Runs, v.Tokens, v.ToolCalls, v.Deltas, v.StateBytes.String(), v.Batch)
	fmt.Fprintf(&text, "%s, %d CPUs; Postgres %s, fsync %s, synchronous_commit %s; ", r.Platform, r.CPUs, r.Postgres.Version,
		r.Postgres.Fsync, r.Postgres.SynchronousCommit)
	if r.Repetitions == 1 {
		text.WriteString("measured once\n\n")
	} else {
		fmt.Fprintf(&text, "medians of %d\n\n", r.Repetitions)
	}
	r.writeTable(&text)
	if len(r.Ratios) > 0 {
		text.WriteString("\n")
		rows := [][]string{}
		for _, q := range r.Ratios {
			rows = append(rows, []string{q.Label, number(q.Value) + "×"})
		}
		align(&text, rows)
	}
	text.WriteString("\n")
	for _, note := range r.Notes {
		fmt.Fprintf(&text, "- %s\n", note)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// writeTable writes a column for each measurement.
func (r *report) writeTable(text *strings.Builder) {
	head := []string{""}
	for _, m := range r.Measurements {
		head = append(head, m.Name)
	}
	rows := [][]string{head}
	for _, q := range quantities {
		row, shown := []string{q.label}, alwaysShown[q.key]
		for _, m := range r.Measurements {
			value, ok := m.Values[q.key]
			cell := ""
			switch {
			case ok:
				cell = number(value)
			case m.Name == subject: // of a yardstick it would mean nothing
				cell = "n/a"
			}
			row, shown = append(row, cell), shown || ok
		}
		if shown {
			rows = append(rows, row)
		}
	}
	align(text, rows)
}

// align writes rows with the first column to the left and the others to the right.
func align(text *strings.Builder, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	for _, row := range rows {
		for i, cell := range row {
			padding := strings.Repeat(" ", widths[i]-len([]rune(cell)))
			if i == 0 {
				text.WriteString(cell + padding)
			} else {
				text.WriteString("  " + padding + cell)
			}
		}
		text.WriteString("\n")
	}
}

// number is a value with two significant digits at least, and its thousands apart.
func number(value float64) string {
	switch size := math.Abs(value); {
	case size < 0.1 && value != 0:
		return strconv.FormatFloat(value, 'g', 2, 64)
	case size < 10:
		return strconv.FormatFloat(value, 'f', 2, 64)
	case size < 100:
		return strconv.FormatFloat(value, 'f', 1, 64)
	}
	digits := strconv.FormatFloat(math.Round(value), 'f', 0, 64)
	for at := len(digits) - 3; at > 0 && digits[at-1] != '-'; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}
