package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
)

// label is how a member of the metadata is found by.
func label(name, value string) string { return name + "\x00" + value }

// newLabelled is a writer whose thread was made, with labels.
func newLabelled(t *testing.T, s store.Store, tenant, id string, labels ...string) *writer {
	w := newWriter(tenant, id)
	c := w.create()
	c.Create.Metadata.Labels = labels
	must(t, s, c)
	return w
}

// warn commits an entry that raised warnings of a code, and returns when.
func (w *writer) warn(t *testing.T, s store.Store, code agui.Code, n int) time.Time {
	t.Helper()
	c := w.commit(`{}`)
	for i := range int32(n) {
		c.Warnings = append(c.Warnings, store.Warning{
			Version: c.Version, RunID: "r", Offset: c.Version - 1, Ordinal: i,
			Warning: agui.Warning{Code: code, Path: "/delta", Detail: "d", Removed: agui.Value(`"removed"`)},
		})
	}
	return must(t, s, c)[0].CommittedAt
}

// ledger reads all pages of a tenant's ledger, as "thread code version.ordinal", and checks that none is too large.
func ledger(t *testing.T, s store.Store, q store.WarningQuery) (all []string) {
	t.Helper()
	for pages := 0; ; pages++ {
		page := ok[store.WarningPage](t)(s.TenantWarnings(t.Context(), q))
		if len(page.Warnings) > q.Limit || pages > 100 {
			t.Fatalf("page %d has %d warnings", pages, len(page.Warnings))
		}
		for _, w := range page.Warnings {
			all = append(all, fmt.Sprintf("%s %s %d.%d", w.ThreadID, w.Code, w.Version, w.Ordinal))
		}
		if page.Next == (store.LedgerPlace{}) {
			return all
		}
		q.Before = page.Next
	}
}

// testLedger: a tenant's warnings are found by code, labels and time, newest first, in pages of any size.
func testLedger(t *testing.T, s store.Store) {
	a := newLabelled(t, s, "acme", "a", label("agent", "x"), label("env", "prod"))
	b := newLabelled(t, s, "acme", "b", label("agent", "y"))
	other := newLabelled(t, s, "other", "a", label("agent", "x"))
	a.warn(t, s, agui.PatchNotApplied, 2)
	second := b.warn(t, s, agui.PatchNotApplied, 1)
	other.warn(t, s, agui.PatchNotApplied, 3)
	third := a.warn(t, s, agui.PropertyUnknown, 1)
	whole := []string{"a PROPERTY_UNKNOWN 2.0", "b PATCH_NOT_APPLIED 1.0", "a PATCH_NOT_APPLIED 1.1", "a PATCH_NOT_APPLIED 1.0"}
	for name, tc := range map[string]struct {
		query store.WarningQuery
		want  []string
	}{
		"all":             {store.WarningQuery{}, whole},
		"code":            {store.WarningQuery{Code: string(agui.PatchNotApplied)}, whole[1:]},
		"unknown code":    {store.WarningQuery{Code: "NONE"}, nil},
		"label":           {store.WarningQuery{Labels: []string{label("agent", "y")}}, whole[1:2]},
		"labels":          {store.WarningQuery{Labels: []string{label("agent", "x"), label("env", "prod")}}, []string{whole[0], whole[2], whole[3]}},
		"no such labels":  {store.WarningQuery{Labels: []string{label("agent", "y"), label("env", "prod")}}, nil},
		"label and code":  {store.WarningQuery{Code: string(agui.PropertyUnknown), Labels: []string{label("agent", "x")}}, whole[:1]},
		"from":            {store.WarningQuery{From: second}, whole[:2]},
		"to":              {store.WarningQuery{To: second}, whole[2:]},
		"from and to":     {store.WarningQuery{From: second, To: third}, whole[1:2]},
		"an empty range":  {store.WarningQuery{From: third, To: second}, nil},
		"code in a range": {store.WarningQuery{Code: string(agui.PatchNotApplied), To: third}, whole[1:]},
	} {
		for limit := 1; limit <= 5; limit++ {
			tc.query.Tenant, tc.query.Limit = "acme", limit
			if got := ledger(t, s, tc.query); !slices.Equal(got, tc.want) {
				t.Errorf("%s in pages of %d: %q, want %q", name, limit, got, tc.want)
			}
		}
	}
	wantLedgerEntry(t, s, a, third)
	if _, err := s.Delete(t.Context(), a.key); err != nil {
		t.Fatal(err)
	}
	equal(t, ledger(t, s, store.WarningQuery{Tenant: "acme", Limit: 9}), whole[1:2])
	equal(t, len(ledger(t, s, store.WarningQuery{Tenant: "other", Limit: 9})), 3)
}

// wantLedgerEntry compares the newest warning with what was written.
func wantLedgerEntry(t *testing.T, s store.Store, w *writer, at time.Time) {
	t.Helper()
	page := ok[store.WarningPage](t)(s.TenantWarnings(t.Context(), store.WarningQuery{Tenant: "acme", Limit: 1}))
	own := ok[[]store.Warning](t)(s.Warnings(t.Context(), w.key, store.WarningPlace{Version: 1, Ordinal: 9}, 1))
	equal(t, page.Warnings, []store.ThreadWarning{{ThreadID: w.id, Key: w.key, Warning: own[0]}})
	equal(t, page.Warnings[0].RaisedAt, at)
}

// testLedgerScan: a search that looks at more warnings than one page may is gone on with, wherever the first one ended.
func testLedgerScan(t *testing.T, s store.Store) {
	wanted := newLabelled(t, s, "acme", "wanted", label("agent", "x"))
	wanted.warn(t, s, agui.PatchNotApplied, 3)
	noise := newLabelled(t, s, "acme", "noise")
	want := []string{"wanted PATCH_NOT_APPLIED 1.2", "wanted PATCH_NOT_APPLIED 1.1", "wanted PATCH_NOT_APPLIED 1.0"}
	q := store.WarningQuery{Tenant: "acme", Labels: []string{label("agent", "x")}}
	noise.warn(t, s, agui.PropertyUnknown, store.MaxWarningsScanned-2)
	for range 4 { // the last one that is looked at is the second wanted, the first, then none
		for q.Limit = 1; q.Limit <= 4; q.Limit++ {
			if got := ledger(t, s, q); !slices.Equal(got, want) {
				t.Errorf("in pages of %d: %q", q.Limit, got)
			}
		}
		noise.warn(t, s, agui.PropertyUnknown, 1)
	}
	q.Code, q.Limit = string(agui.PatchNotApplied), 10
	equal(t, ledger(t, s, q), want)
}

// testLedgerGrows: those there were when the reading began come once, whatever is written meanwhile.
func testLedgerGrows(t *testing.T, s store.Store) {
	a, b := newLabelled(t, s, "acme", "a"), newLabelled(t, s, "acme", "b")
	for range 5 {
		a.warn(t, s, agui.PatchNotApplied, 1)
		b.warn(t, s, agui.PatchNotApplied, 2)
	}
	q := store.WarningQuery{Tenant: "acme", Limit: 4}
	before := ledger(t, s, q)
	var got []string
	for {
		page := ok[store.WarningPage](t)(s.TenantWarnings(t.Context(), q))
		for _, w := range page.Warnings {
			got = append(got, fmt.Sprintf("%s %s %d.%d", w.ThreadID, w.Code, w.Version, w.Ordinal))
		}
		if page.Next == (store.LedgerPlace{}) {
			break
		}
		q.Before = page.Next
		a.warn(t, s, agui.PatchNotApplied, 3)
	}
	equal(t, got, before)
}

// testWarningSummary: warnings are counted by code and by a label's value, those of the last days unless told otherwise.
func testWarningSummary(t *testing.T, s store.Store) {
	a := newLabelled(t, s, "acme", "a", label("agent", "x"), label("agents", "z"))
	b := newLabelled(t, s, "acme", "b", label("agent", "x"), label("agentless", "y"))
	c := newLabelled(t, s, "acme", "c")
	newLabelled(t, s, "other", "a", label("agent", "x")).warn(t, s, agui.PatchNotApplied, 5)
	first := a.warn(t, s, agui.PatchNotApplied, 2)
	last := b.warn(t, s, agui.PatchNotApplied, 1)
	alone := c.warn(t, s, agui.PatchNotApplied, 1)
	unknown := a.warn(t, s, agui.PropertyUnknown, 4)
	groups := []store.WarningGroup{
		{Code: "PROPERTY_UNKNOWN", Value: "x", Count: 4, Threads: 1, First: unknown, Last: unknown},
		{Code: "PATCH_NOT_APPLIED", Value: "x", Count: 3, Threads: 2, First: first, Last: last},
		{Code: "PATCH_NOT_APPLIED", Count: 1, Threads: 1, First: alone, Last: alone},
	}
	ungrouped := []store.WarningGroup{
		{Code: "PATCH_NOT_APPLIED", Count: 4, Threads: 3, First: first, Last: alone},
		{Code: "PROPERTY_UNKNOWN", Count: 4, Threads: 1, First: unknown, Last: unknown},
	}
	for name, tc := range map[string]struct {
		query store.WarningQuery
		label string
		want  []store.WarningGroup
	}{
		"by a label":        {store.WarningQuery{}, "agent", groups},
		"by none":           {store.WarningQuery{}, "", ungrouped},
		"by one nobody has": {store.WarningQuery{}, "age", ungrouped},
		"of a code":         {store.WarningQuery{Code: string(agui.PatchNotApplied)}, "agent", groups[1:]},
		"of labels":         {store.WarningQuery{Labels: []string{label("agent", "x")}}, "agent", groups[:2]},
		"of no thread":      {store.WarningQuery{Labels: []string{label("agent", "w")}}, "agent", nil},
		"in a range":        {store.WarningQuery{From: alone, To: unknown}, "agent", groups[2:]},
		"before a time":     {store.WarningQuery{To: first}, "agent", nil},
		"from long ago":     {store.WarningQuery{From: first.Add(-time.Hour)}, "agent", groups},
		"days ago":          {store.WarningQuery{To: first.Add(-8 * 24 * time.Hour)}, "agent", nil},
		"days from now":     {store.WarningQuery{To: first.Add(8 * 24 * time.Hour)}, "agent", nil}, // a week that begins tomorrow
		"nearly a week":     {store.WarningQuery{To: first.Add(7*24*time.Hour - time.Minute)}, "agent", groups},
	} {
		tc.query.Tenant = "acme"
		got := ok[store.WarningSummary](t)(s.SummarizeWarnings(t.Context(), tc.query, tc.label))
		if !slices.Equal(got.Groups, tc.want) || got.More || !got.Since.IsZero() {
			t.Errorf("%s:\ngot  %+v\nwant %+v", name, got, tc.want)
		}
	}
}

// testImportDeleted: a thread that was deleted is imported again by explicit wish, never one that is there.
func testImportDeleted(t *testing.T, s store.Store) {
	w := newLabelled(t, s, "acme", "t")
	if _, err := s.Delete(t.Context(), w.key); err != nil {
		t.Fatal(err)
	}
	head := store.Head{Key: w.key, Tenant: "acme", ThreadID: "t", CreatedAt: time.Unix(1, 0), LastRunAt: time.Unix(1, 0), Metadata: store.Metadata{Text: []byte(`{}`)}}
	nothing := func(to store.Importer) error { return to.Fold(&agui.Changes{Tracking: []byte(`{}`)}) }
	failing := func(store.Importer) error { return store.ErrInvalid }
	var deleted *store.DeletedError
	if err := s.Import(t.Context(), head, false, nothing); !errors.As(err, &deleted) {
		t.Errorf("an import without the wish: %v", err)
	}
	if err := s.Import(t.Context(), head, true, failing); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("an import that fails: %v", err)
	}
	if err := s.Import(t.Context(), head, false, nothing); !errors.As(err, &deleted) {
		t.Errorf("the thread is no longer deleted after an import that failed: %v", err)
	}
	if err := s.Import(t.Context(), head, true, nothing); err != nil {
		t.Fatal(err)
	}
	equal(t, ok[store.Head](t)(s.Head(t.Context(), w.key)).ThreadID, "t")
	if err := s.Import(t.Context(), head, true, nothing); !errors.Is(err, store.ErrConflict) {
		t.Errorf("imported over one that is there: %v", err)
	}
}
