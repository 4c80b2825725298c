package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
)

func testRuns(t *testing.T, s store.Store) {
	w := newWriter("acme", "t")
	must(t, s, w.create())
	opened := w.start("r1", `{}`)
	opened.Opened[0].ParentRunID = "r0"
	started := must(t, s, opened)[0]
	want := opened.Opened[0]
	want.StartedAt = started.CommittedAt
	equal(t, ok[store.Run](t)(s.Run(t.Context(), w.key, "r1")), want)

	ending := w.finish(`{}`)
	ended := must(t, s, ending)[0]
	change := ending.Updated[0]
	want.Status, want.LastVersion, want.NextOffset, want.EndedAt = store.RunFinished, 2, 1, ended.CommittedAt
	want.ProtocolVersion, want.Outcome, want.Result = change.ProtocolVersion, change.Outcome, change.Result
	equal(t, ok[store.Run](t)(s.Run(t.Context(), w.key, "r1")), want)

	late := w.commit(`{"late":"error"}`)
	want.Status, want.Error, want.Warnings = store.RunFailed, agui.Value(`{"message":"`+strings.Repeat("x", 500)+`"}`), 3
	late.Updated = []store.Run{want}
	must(t, s, late)
	equal(t, ok[store.Run](t)(s.Run(t.Context(), w.key, "r1")), want)
	equal(t, *load(t, s, w.key).LastRun, want)

	for i := range 5 {
		must(t, s, w.start(fmt.Sprint("n", i), `{}`))
		must(t, s, w.finish(`{}`))
	}
	var ordinals []int64
	for before := int64(0); ; {
		page := ok[[]store.Run](t)(s.Runs(t.Context(), w.key, before, 4))
		if len(page) == 0 {
			break
		}
		for _, r := range page {
			ordinals, before = append(ordinals, r.Ordinal), r.Ordinal
		}
	}
	equal(t, ordinals, []int64{6, 5, 4, 3, 2, 1})
	if _, err := s.Run(t.Context(), w.key, "n9"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a run that is not there: %v", err)
	}
}

func testLogPages(t *testing.T, s store.Store) {
	w := newWriter("acme", "t")
	must(t, s, w.create())
	for i := range 20 {
		must(t, s, w.commit(strings.Repeat("a", 1+i*5), "b", "c"))
	}
	whole := logOf(t, s, w.key, 0, 1<<20)
	for _, page := range []int{0, 1, 50, 100, 1 << 40} {
		equal(t, logOf(t, s, w.key, 0, page), whole)
	}
	for from := uint64(1); from <= w.version; from++ {
		first := ok[[]store.Segment](t)(s.Log(t.Context(), w.key, from, 0))
		if len(first) != 1 || first[0].FirstVersion > from || first[0].LastVersion < from {
			t.Fatalf("the log from version %d begins with %+v", from, first)
		}
	}
	for _, beyond := range []uint64{w.version + 1, 1 << 63, 1<<64 - 1} {
		if got := ok[[]store.Segment](t)(s.Log(t.Context(), w.key, beyond, 1<<20)); len(got) != 0 {
			t.Errorf("the log from version %d has %d segments", beyond, len(got))
		}
	}
}

func testStream(t *testing.T, s store.Store) {
	w := newWriter("acme", "t")
	must(t, s, w.create(`{}`))
	for _, run := range []string{"r1", "r2", "r3"} {
		must(t, s, w.start(run, `{}`))
		for i := range 5 {
			must(t, s, w.commit(fmt.Sprint(run, ":", 2*i), fmt.Sprint(run, ":", 2*i+1)))
		}
		if run == "r2" { // a second run in the same stream
			must(t, s, w.finish(`r2:10`))
			again := w.start("r2b", `{}`)
			again.Opened[0].StreamID, again.Opened[0].FirstOffset = "r2", 11
			w.stream, w.next = "r2", 11
			again.Segments[0].StreamID, again.Segments[0].FirstOffset, again.Segments[0].NextOffset = "r2", 11, 11
			must(t, s, w.head(again))
			must(t, s, w.commit(`r2:11`, `r2:12`))
		}
		must(t, s, w.finish(run+":end"))
	}
	for run, early := range map[string]int{"r5": 3, "r6": 40} { // events before the run's start, without a run
		w.stream, w.next = run, 0
		for i := range early {
			must(t, s, w.commit(fmt.Sprint(run, ":", i)))
		}
		late := w.start(run, `{}`)
		w.next = uint64(early)
		late.Opened[0].FirstOffset, late.Segments[0].FirstOffset, late.Segments[0].NextOffset = w.next, w.next, w.next
		must(t, s, w.head(late))
		must(t, s, w.commit(fmt.Sprint(run, ":", early)))
		must(t, s, w.finish(run+":end"))
	}
	for _, test := range []struct {
		stream   string
		from, to uint64
		want     string
	}{
		{"r1", 0, 1, "r1:0 r1:1"},
		{"r1", 3, 5, "r1:2 r1:3 r1:4 r1:5"},
		{"r1", 4, 4, ""},
		{"r1", 9, 1<<64 - 1, "r1:8 r1:9 r1:end"},
		{"r1", 11, 20, ""},
		{"r2", 9, 12, "r2:8 r2:9 r2:10 r2:11 r2:12"},
		{"r2", 13, 14, "r2:end"},
		{"r2", 1 << 63, 1<<64 - 1, ""},
		{"r3", 0, 2, "r3:0 r3:1"},
		{"r4", 0, 100, ""},
		{"r5", 0, 2, "r5:0 r5:1"},
		{"r5", 2, 5, "r5:2 r5:3 r5:end"},
		{"r6", 0, 2, "r6:0 r6:1"},
		{"r6", 20, 21, "r6:20"},
		{"r6", 39, 42, "r6:39 r6:40 r6:end"},
	} {
		segments := ok[[]store.Segment](t)(s.Stream(t.Context(), w.key, test.stream, test.from, test.to))
		if got := strings.Join(payloads(t, segments), " "); got != test.want {
			t.Errorf("stream %s from %d to %d is %q, want %q", test.stream, test.from, test.to, got, test.want)
		}
	}
}

func testWarnings(t *testing.T, s store.Store) {
	w := newWriter("acme", "t")
	must(t, s, w.create())
	long := agui.Value(strings.Repeat("é", store.MaxRemovedBytes))
	var want []store.Warning
	for range 3 {
		c := w.commit(`{}`)
		for i := range int32(3) {
			c.Warnings = append(c.Warnings, store.Warning{
				Version: c.Version, RunID: "r", Offset: c.Version - 1, Ordinal: i, Fatal: i == 2,
				Warning: agui.Warning{Code: agui.PropertyUnknown, Path: "/a/0", Detail: "b", Removed: long},
			})
		}
		at := must(t, s, c)[0].CommittedAt
		for _, warning := range c.Warnings {
			warning.RaisedAt, warning.RemovedBytes = at, int64(len(long))
			warning.Removed = long[:store.MaxRemovedBytes]
			want = append(want, warning)
		}
	}
	var got []store.Warning
	for place := (store.WarningPlace{}); ; {
		page := ok[[]store.Warning](t)(s.Warnings(t.Context(), w.key, place, 2))
		if len(page) == 0 {
			break
		}
		got = append(got, page...)
		last := page[len(page)-1]
		place = store.WarningPlace{Version: last.Version, Ordinal: last.Ordinal}
	}
	equal(t, got, want)
}

func testThreads(t *testing.T, s store.Store) {
	const n = 23
	var creates []*store.Commit
	for i := range n {
		creates = append(creates, newWriter("acme", fmt.Sprint(i)).create())
	}
	must(t, s, creates...) // one moment for all
	recent := newWriter("acme", "7")
	must(t, s, recent.start("r", `{}`))
	must(t, s, recent.commit(`{}`))

	var ids []string
	for q := (store.ThreadQuery{Tenant: "acme", Limit: 5}); ; {
		page := ok[[]store.Head](t)(s.Threads(t.Context(), q))
		if len(page) == 0 {
			break
		}
		for _, h := range page {
			ids = append(ids, h.ThreadID)
		}
		last := page[len(page)-1]
		q.Before, q.BeforeKey = last.LastRunAt, last.Key
	}
	if ids[0] != "7" {
		t.Errorf("first is %q, want the thread with the newest run", ids[0])
	}
	slices.Sort(ids)
	if len(ids) != n || len(slices.Compact(ids)) != n {
		t.Errorf("the pages have %d threads, want each of %d once", len(ids), n)
	}
}

func testLabels(t *testing.T, s store.Store) {
	long := "long=" + strings.Repeat("x", store.MaxLabelBytes)
	for i := range 6 {
		w := newWriter("acme", fmt.Sprint(i))
		c := w.create()
		c.Create.Metadata.Labels = []string{fmt.Sprintf("user=%d", i%2), fmt.Sprintf("topic=%d\x00", i%3), long}
		must(t, s, c)
	}
	for labels, want := range map[string][]string{
		"user=0":             {"4", "2", "0"},
		"user=1|topic=0\x00": {"3"},
		"topic=2\x00":        {"5", "2"},
		"user=2":             nil,
		"topic=2":            nil,
		long:                 nil,
	} {
		q := store.ThreadQuery{Tenant: "acme", Labels: strings.Split(labels, "|"), Limit: 10}
		var got []string
		for _, h := range ok[[]store.Head](t)(s.Threads(t.Context(), q)) {
			got = append(got, h.ThreadID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("labels %q find %q, want %q", labels, got, want)
		}
	}
}

func testMetadata(t *testing.T, s store.Store) {
	w := newWriter("acme", "t")
	c := w.create()
	c.Create.Metadata = store.Metadata{Text: []byte(`{"a":"1"}`), Labels: []string{"a=1"}}
	must(t, s, c)
	head := ok[store.Head](t)(s.UpdateMetadata(t.Context(), w.key, func(m store.Metadata) (store.Metadata, error) {
		equal(t, m, c.Create.Metadata)
		return store.Metadata{Text: []byte(`{"b":"\u0000"}`), Labels: []string{"b=\x00"}}, nil
	}))
	equal(t, head.Metadata, store.Metadata{Text: []byte(`{"b":"\u0000"}`), Labels: []string{"b=\x00"}})
	equal(t, ok[store.Head](t)(s.Head(t.Context(), w.key)), head)

	refusal := errors.New("refused")
	_, err := s.UpdateMetadata(t.Context(), w.key, func(store.Metadata) (store.Metadata, error) {
		return store.Metadata{}, refusal
	})
	if !errors.Is(err, refusal) {
		t.Errorf("%v, want the error of the change", err)
	}
	equal(t, ok[store.Head](t)(s.Head(t.Context(), w.key)), head)
	must(t, s, w.commit(`{}`)) // the version is untouched
}

func testTenants(t *testing.T, s store.Store) {
	mine, theirs := newWriter("mine", "t"), newWriter("theirs", "t")
	c := theirs.create(`{"secret":1}`)
	c.Create.Metadata.Labels = []string{"user=1"}
	must(t, s, c)
	if _, err := s.Head(t.Context(), mine.key); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the thread of another tenant: %v, want ErrNotFound", err)
	}
	for _, labels := range [][]string{nil, {"user=1"}} {
		q := store.ThreadQuery{Tenant: "mine", Labels: labels, Limit: 10}
		if got := ok[[]store.Head](t)(s.Threads(t.Context(), q)); len(got) != 0 {
			t.Errorf("the list has the threads of another tenant: %+v", got)
		}
	}
	must(t, s, mine.create())
	if got := payloads(t, logOf(t, s, theirs.key, 0, 1)); len(got) != 1 {
		t.Errorf("the other tenant's log is %q", got)
	}
}
