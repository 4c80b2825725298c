package bench

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/threadsvc/threadsvc/store/yardstick"
)

func TestNumbers(t *testing.T) {
	t.Parallel()
	for value, want := range map[float64]string{
		0: "0.00", 0.012345: "0.012", 0.5: "0.50", 1.234: "1.23", 12.34: "12.3", 123.4: "123", 1234.5: "1,235", 999999.6: "1,000,000",
		1234567: "1,234,567", -1234: "-1,234", -123: "-123", 100000: "100,000",
	} {
		if got := number(value); got != want {
			t.Errorf("%v is %s, want %s", value, got, want)
		}
	}
}

func TestQuantiles(t *testing.T) {
	t.Parallel()
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for _, c := range []struct {
		of   []time.Duration
		q    float64
		want time.Duration
	}{{nil, 0.5, 0}, {hundred[:1], 0.99, 1}, {hundred, 0.5, 50}, {hundred, 0.99, 99}, {hundred, 1, 100}, {hundred, 0, 1}} {
		if got := quantile(c.of, c.q); got != c.want {
			t.Errorf("quantile %v of %d values is %d, want %d", c.q, len(c.of), got, c.want)
		}
	}
}

// repetitions are three of the service, with a variant, and of two yardsticks.
func repetitions() [][]measurement {
	var all [][]measurement
	for _, speed := range []float64{300, 100, 200} {
		all = append(all, []measurement{
			{Name: "single", Values: map[string]float64{"ack_p50_ms": 1, "ack_p99_ms": 2}},
			{Name: subject, Values: map[string]float64{"events_per_second": speed, "ack_p50_ms": speed / 100, "cpu_service": 8}},
			{Name: "runs=1", Values: map[string]float64{"events_per_second": 100, "cpu_service": 4}},
			{Name: "floor", Values: map[string]float64{"events_per_second": 2 * speed}},
		})
	}
	return all
}

func newTestReport() *report {
	o := defaultOptions()
	o.Against = []string{"runs=1"}
	return newReport(&o, []*Variant{&o.Variant}, yardstick.Server{Version: "15.1", Fsync: "on"}, repetitions())
}

func TestReportTakesMedians(t *testing.T) {
	t.Parallel()
	r := newTestReport()
	if r.Measurements[0].Name != subject || r.Measurements[0].Values["events_per_second"] != 200 {
		t.Errorf("first %+v", r.Measurements[0])
	}
	got := map[string]float64{}
	for _, q := range r.Ratios {
		got[q.Label] = q.Value
	}
	want := map[string]float64{
		"events/s against --floor": 0.5, "ack p50 against a single commit": 2, "events/s against runs=1": 2,
		"CPU of the service per event against runs=1": 2,
	}
	for label, value := range want {
		if got[label] != value {
			t.Errorf("%s is %v, want %v", label, got[label], value)
		}
	}
	if len(got) != len(want) {
		t.Errorf("ratios %v, want %v", got, want)
	}
}

func TestMedianOfAnEvenNumber(t *testing.T) {
	t.Parallel()
	all := repetitions()[:2]
	got := medianOf(all, func(once []measurement) (float64, bool) { return valueOf(once, subject, "events_per_second") })
	if got != 200 {
		t.Errorf("the median of 300 and 100 is %v", got)
	}
}

func TestTextIsAligned(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := newTestReport().writeText(&out); err != nil {
		t.Fatal(err)
	}
	want := `
                                   threadsvc  single  runs=1  floor
events/s                                 200             100    400
acknowledged after, p50, ms             2.00    1.00               
  p99, ms                                n/a    2.00               
CPU s per million events, service       8.00            4.00       
  Postgres                               n/a                       
memory of the service, MiB               n/a                       

events/s against --floor                     0.50×
ack p50 against a single commit              2.00×
`
	text := out.String()
	if !strings.Contains(text, want) {
		t.Errorf("the report is\n%s\nwant in it\n%s", text, want)
	}
	for _, part := range []string{"64 threads, 40 runs each", "2KiB of state", "fsync on", "medians of 3", "share this machine"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in\n%s", part, text)
		}
	}
}

func TestJSONHasEverything(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := newTestReport().writeJSON(&out); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Variants []struct {
			Threads    int
			StateBytes int64 `json:"state_bytes"`
		}
		Measurements []measurement
		Ratios       []struct {
			Label string
			Value float64
		}
		Notes []string
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Variants[0].Threads != 64 || got.Variants[0].StateBytes != 2048 || len(got.Measurements) != 4 || len(got.Ratios) != 4 ||
		len(got.Notes) == 0 {
		t.Errorf("got %+v", got)
	}
}

func TestProgressLine(t *testing.T) {
	t.Parallel()
	p := startProgress(&bytes.Buffer{}) // no terminal
	defer p.stop()
	p.prefix("2 of 5")
	p.done.Store(1000)
	p.show("threadsvc", 400)
	p.done.Add(100)
	line := p.line(p.started.Add(2 * time.Second))
	if want := "2 of 5  threadsvc  [#######.......................] 25%  50.0 events/s"; line != want {
		t.Errorf("the line is %q, want %q", line, want)
	}
	p.show("reading sizes", 0)
	if line, want := p.line(p.started.Add(3*time.Second)), "2 of 5  reading sizes  3 s"; line != want {
		t.Errorf("the line is %q, want %q", line, want)
	}
}
