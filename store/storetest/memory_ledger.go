package storetest

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/threadsvc/threadsvc/store"
)

// TenantWarnings implements store.Store. It looks at everything.
func (m *Memory) TenantWarnings(_ context.Context, q store.WarningQuery) (page store.WarningPage, err error) {
	for _, w := range m.ledger(&q) {
		if !q.Before.RaisedAt.IsZero() && compareLedger(w.Place(), q.Before) >= 0 {
			continue
		}
		if len(page.Warnings) == q.Limit {
			page.Next = page.Warnings[q.Limit-1].Place()
			break
		}
		page.Warnings = append(page.Warnings, w.ThreadWarning)
	}
	return page, nil
}

// labelled is a warning with the labels of its thread.
type labelled struct {
	store.ThreadWarning
	labels []string
}

// ledger lists what a query selects, newest first.
func (m *Memory) ledger(q *store.WarningQuery) (all []labelled) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, t := range m.threads {
		labels := t.head.Metadata.KeptLabels()
		missing := slices.ContainsFunc(q.Labels, func(l string) bool { return !slices.Contains(labels, l) })
		if t.head.Tenant != q.Tenant || missing {
			continue
		}
		for _, w := range t.warnings {
			in := !w.RaisedAt.Before(q.From) && (q.To.IsZero() || w.RaisedAt.Before(q.To))
			if in && (q.Code == "" || q.Code == string(w.Code)) {
				all = append(all, labelled{store.ThreadWarning{ThreadID: t.head.ThreadID, Key: key, Warning: w}, labels})
			}
		}
	}
	slices.SortFunc(all, func(a, b labelled) int { return compareLedger(b.Place(), a.Place()) })
	return all
}

func compareLedger(a, b store.LedgerPlace) int {
	return cmp.Or(a.RaisedAt.Compare(b.RaisedAt), bytes.Compare(a.Key[:], b.Key[:]),
		compareWarnings(a.Version, a.Ordinal, b.Version, b.Ordinal))
}

// SummarizeWarnings implements store.Store.
func (m *Memory) SummarizeWarnings(_ context.Context, q store.WarningQuery, label string) (s store.WarningSummary, err error) {
	if q.From.IsZero() {
		q.From = cmp.Or(q.To, m.now()).Add(-7 * 24 * time.Hour)
	}
	type name struct{ code, value string }
	groups, threads := map[name]*store.WarningGroup{}, map[name]map[store.Key]bool{}
	for _, w := range m.ledger(&q) {
		n := name{code: string(w.Code)}
		for _, l := range w.labels {
			if value, ok := strings.CutPrefix(l, label+"\x00"); ok && label != "" {
				n.value = value
			}
		}
		if groups[n] == nil {
			groups[n] = &store.WarningGroup{Code: n.code, Value: n.value, Last: w.RaisedAt}
			threads[n] = map[store.Key]bool{}
		}
		threads[n][w.Key] = true
		groups[n].Count, groups[n].First, groups[n].Threads = groups[n].Count+1, w.RaisedAt, int64(len(threads[n]))
	}
	for _, g := range groups {
		s.Groups = append(s.Groups, *g)
	}
	slices.SortFunc(s.Groups, func(a, b store.WarningGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Value, b.Value))
	})
	return s, nil
}
