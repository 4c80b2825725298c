package service_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

const unknownEvent = `{"type":"OF_THE_FUTURE","said":1}`

// ofAgent is a conversation on a thread that was made for an agent.
func ofAgent(t testing.TB, client threadsvcv1.ThreadServiceClient, thread, agent string) *conversation {
	t.Helper()
	req := &threadsvcv1.CreateThreadRequest{Thread: threadName(thread), Metadata: []byte(`{"agent":` + quote(agent) + `}`)}
	must(client.CreateThread(t.Context(), req))(t)
	return converse(t, client, thread)
}

// listLedger lists the ledger of the tenant "test" in pages, as "thread code version".
func listLedger(t *testing.T, client threadsvcv1.ThreadServiceClient, filter *threadsvcv1.WarningFilter, size int32) []string {
	t.Helper()
	return pages(t, func(token string) ([]string, string, error) {
		resp, err := client.ListTenantWarnings(t.Context(), &threadsvcv1.ListTenantWarningsRequest{Tenant: "test", Filter: filter, PageSize: size, PageToken: token})
		return ledgerLines(resp), resp.GetNextPageToken(), err
	})
}

func ledgerLines(resp *threadsvcv1.ListTenantWarningsResponse) (lines []string) {
	for _, w := range resp.GetWarnings() {
		lines = append(lines, fmt.Sprint(w.GetThreadId(), " ", w.GetWarning().GetCode(), " ", w.GetWarning().GetVersion()))
	}
	return lines
}

// counts summarizes a tenant's warnings, as "count threads code value".
func counts(t *testing.T, client threadsvcv1.ThreadServiceClient, tenant, by string, filter *threadsvcv1.WarningFilter) (lines []string) {
	t.Helper()
	resp := must(client.SummarizeWarnings(t.Context(), &threadsvcv1.SummarizeWarningsRequest{Tenant: tenant, Filter: filter, GroupBy: by}))(t)
	for _, g := range resp.GetGroups() {
		lines = append(lines, strings.TrimSpace(fmt.Sprint(g.GetCount(), " ", g.GetThreads(), " ", g.GetCode(), " ", g.GetValue())))
		if g.GetFirstTime() == nil || g.GetLastTime().AsTime().Before(g.GetFirstTime().AsTime()) {
			t.Errorf("a group from %v to %v", g.GetFirstTime(), g.GetLastTime())
		}
	}
	if resp.GetMoreGroups() || resp.GetCountedSince() != nil {
		t.Errorf("not all was counted: %v", resp)
	}
	return lines
}

func want(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// Which agents send patches that do not apply, and how often: by code, agent and time, within a tenant, as the threads'
// metadata are now; what is pruned or deleted is gone.
func TestTheLedgerOfATenant(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{PruneInterval: -1, PruneGrace: -1})
	ctx, client := t.Context(), h.client
	a, b := ofAgent(t, client, "a", "planner"), ofAgent(t, client, "b", "writer")
	must(client.CreateThread(ctx, &threadsvcv1.CreateThreadRequest{Thread: &threadsvcv1.ThreadName{Tenant: "other", ThreadId: "a"}, Metadata: []byte(`{"agent":"planner"}`)}))(t)
	must(client.AppendBatch(ctx, &threadsvcv1.AppendBatchRequest{
		Run: &threadsvcv1.RunHandle{Thread: &threadsvcv1.ThreadName{Tenant: "other", ThreadId: "a"}, RunId: "r"}, Batch: batch(0, runStarted("a", "r"), lostDelta),
	}))(t)
	a.record("r1", lostDelta, lostDelta) // version 1 is the input, 2 the run's start
	b.record("r1", lostDelta, unknownEvent)
	a.record("r2", keptDelta, lostDelta)
	all := []string{"a PATCH_NOT_APPLIED 9", "b EVENT_UNKNOWN 4", "b PATCH_NOT_APPLIED 4", "a PATCH_NOT_APPLIED 5", "a PATCH_NOT_APPLIED 4"}
	got := listLedger(t, client, nil, 0)
	if len(got) != len(all) {
		t.Fatalf("%q", got)
	}
	all = got
	patches := slices.DeleteFunc(slices.Clone(all), func(l string) bool { return !strings.Contains(l, "PATCH") })
	ofA := slices.DeleteFunc(slices.Clone(all), func(l string) bool { return !strings.HasPrefix(l, "a ") })
	planner := map[string]string{"agent": "planner"}
	for size := int32(1); size <= 6; size++ {
		want(t, "all", listLedger(t, client, nil, size), all...)
		want(t, "a code", listLedger(t, client, &threadsvcv1.WarningFilter{Code: "PATCH_NOT_APPLIED"}, size), patches...)
		want(t, "an agent", listLedger(t, client, &threadsvcv1.WarningFilter{Metadata: planner}, size), ofA...)
	}
	first := must(client.ListTenantWarnings(ctx, &threadsvcv1.ListTenantWarningsRequest{Tenant: "test", PageSize: 1}))(t).GetWarnings()[0]
	own := must(client.ListWarnings(ctx, &threadsvcv1.ListWarningsRequest{Thread: threadName("a")}))(t).GetWarnings()
	if last := own[len(own)-1]; first.GetThreadId() != "a" || first.GetWarning().String() != last.String() {
		t.Errorf("the newest is %v, the thread's own list ends with %v", first, last)
	}
	at := first.GetWarning().GetRaiseTime()
	want(t, "from the newest on", listLedger(t, client, &threadsvcv1.WarningFilter{StartTime: at}, 2), all[:1]...)
	want(t, "before the newest", listLedger(t, client, &threadsvcv1.WarningFilter{EndTime: at}, 2), all[1:]...)
	want(t, "after the newest", listLedger(t, client, &threadsvcv1.WarningFilter{StartTime: timestamppb.New(at.AsTime().Add(1))}, 2))

	want(t, "counted", counts(t, client, "test", "agent", nil), "3 1 PATCH_NOT_APPLIED planner", "1 1 EVENT_UNKNOWN writer", "1 1 PATCH_NOT_APPLIED writer")
	want(t, "by none", counts(t, client, "test", "", nil), "4 2 PATCH_NOT_APPLIED", "1 1 EVENT_UNKNOWN")
	want(t, "of a code", counts(t, client, "test", "agent", &threadsvcv1.WarningFilter{Code: "EVENT_UNKNOWN"}), "1 1 EVENT_UNKNOWN writer")
	want(t, "of the other tenant", counts(t, client, "other", "agent", nil), "1 1 PATCH_NOT_APPLIED planner")
	want(t, "of nobody", counts(t, client, "nobody", "agent", nil))
	want(t, "of weeks ago", counts(t, client, "test", "agent", &threadsvcv1.WarningFilter{EndTime: timestamppb.New(at.AsTime().Add(-time.Hour))}))

	must(client.UpdateThread(ctx, &threadsvcv1.UpdateThreadRequest{Thread: threadName("b"), MetadataPatch: []byte(`{"agent":"planner"}`)}))(t)
	want(t, "an agent that was renamed", listLedger(t, client, &threadsvcv1.WarningFilter{Metadata: planner}, 3), all...)
	a.record("r3")
	h.thread = "a"
	h.prune(h.runEnd("r1"))
	h.waitFor("the sweep", `SELECT count(*) = 0 FROM warnings WHERE thread_key = $1 AND version < 6`, store.KeyOf("test", "a").String())
	want(t, "after pruning", listLedger(t, client, nil, 2), all[:3]...)
	must(client.DeleteThread(ctx, &threadsvcv1.DeleteThreadRequest{Thread: threadName("b")}))(t)
	want(t, "after a deletion", listLedger(t, client, nil, 2), all[0])
	want(t, "counted after a deletion", counts(t, client, "test", "agent", nil), "1 1 PATCH_NOT_APPLIED planner")
}

// While warnings arrive from two servers, a reader gets each of those there were once, and none twice.
func TestLedgerPagesWhileWarningsArrive(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	clients := []threadsvcv1.ThreadServiceClient{serveDatabase(t, url, service.Config{}), serveDatabase(t, url, service.Config{})}
	for i := range 40 {
		ofAgent(t, clients[i%2], fmt.Sprint("old", i), "planner").record("r", lostDelta, lostDelta, lostDelta)
	}
	for _, filter := range []*threadsvcv1.WarningFilter{nil, {Code: "PATCH_NOT_APPLIED", Metadata: map[string]string{"agent": "planner"}}} {
		before := listLedger(t, clients[0], filter, 1000)
		stop, writers := make(chan struct{}), sync.WaitGroup{}
		for i, client := range clients {
			c := converse(t, client, fmt.Sprint("new", i, filter.GetCode()))
			c.open("r")
			writers.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						if _, err := c.tryAppend(lostDelta); err != nil {
							t.Errorf("append: %v", err)
							return
						}
					}
				}
			})
		}
		during := listLedger(t, clients[1], filter, 7)
		close(stop)
		writers.Wait()
		seen := map[string]bool{}
		for _, line := range during {
			if seen[line] {
				t.Errorf("%s came twice", line)
			}
			seen[line] = true
		}
		for _, line := range before {
			if !seen[line] {
				t.Errorf("%s was lost", line)
			}
		}
	}
}

// Pages end before they are too large for an answer.
func TestLedgerPagesAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	c.open("r1")
	large := `{"type":"OF_THE_FUTURE","said":` + quote(storetest.Noise(1, 20_000)) + `}`
	for range 4 {
		c.append(slices.Repeat([]string{large}, 60)...)
	}
	resp := must(c.client.ListTenantWarnings(t.Context(), &threadsvcv1.ListTenantWarningsRequest{Tenant: "test", PageSize: 1000}))(t)
	if n := len(resp.GetWarnings()); n < 50 || n > 200 || resp.GetNextPageToken() == "" {
		t.Errorf("a page of %d warnings of 16 KiB", n)
	}
	if got := listLedger(t, c.client, nil, 1000); len(got) != 240 {
		t.Errorf("%d warnings", len(got))
	}
}

func TestLedgerRequestsAreChecked(t *testing.T) {
	t.Parallel()
	client := newServer(t, service.Config{})
	long := strings.Repeat("x", 65)
	for name, tc := range map[string]struct {
		tenant, group string
		filter        *threadsvcv1.WarningFilter
	}{
		"tenant":            {tenant: "\x00"},
		"filter.code":       {filter: &threadsvcv1.WarningFilter{Code: long}},
		"filter.metadata":   {filter: &threadsvcv1.WarningFilter{Metadata: map[string]string{"a": "\x00"}}},
		"filter.start_time": {filter: &threadsvcv1.WarningFilter{StartTime: &timestamppb.Timestamp{Nanos: -1}}},
		"filter.end_time":   {filter: &threadsvcv1.WarningFilter{EndTime: &timestamppb.Timestamp{Seconds: 1 << 60}}},
		"group_by":          {group: "\x00"},
	} {
		_, err := client.SummarizeWarnings(t.Context(), &threadsvcv1.SummarizeWarningsRequest{Tenant: tc.tenant, GroupBy: tc.group, Filter: tc.filter})
		if meta := wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST"); meta["field"] != name {
			t.Errorf("%s: %v", name, meta)
		}
		if name == "group_by" {
			continue
		}
		_, err = client.ListTenantWarnings(t.Context(), &threadsvcv1.ListTenantWarningsRequest{Tenant: tc.tenant, Filter: tc.filter})
		if meta := wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST"); meta["field"] != name {
			t.Errorf("%s: %v", name, meta)
		}
	}
	for _, token := range []string{"x", "====", base64.RawURLEncoding.EncodeToString(make([]byte, 12))} {
		_, err := client.ListTenantWarnings(t.Context(), &threadsvcv1.ListTenantWarningsRequest{PageToken: token})
		wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST")
	}
	for _, fill := range []byte{0, 0x7f, 0x80, 0xff} { // places that no list ever named
		token := base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat(string([]byte{fill}), 36)))
		_, err := client.ListTenantWarnings(t.Context(), &threadsvcv1.ListTenantWarningsRequest{PageToken: token})
		if err != nil {
			wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST")
		}
		token = base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat(string([]byte{fill}), 24)))
		if _, err = client.ListThreads(t.Context(), &threadsvcv1.ListThreadsRequest{PageToken: token}); err != nil {
			wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST")
		}
	}
	for _, year := range []int{1, 1970, 9999} {
		at := timestamppb.New(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC))
		for _, filter := range []*threadsvcv1.WarningFilter{{StartTime: at}, {EndTime: at}, {StartTime: at, EndTime: at}} {
			must(client.ListTenantWarnings(t.Context(), &threadsvcv1.ListTenantWarningsRequest{Filter: filter}))(t)
			must(client.SummarizeWarnings(t.Context(), &threadsvcv1.SummarizeWarningsRequest{Filter: filter}))(t)
		}
	}
	_, err := client.ListTenantWarnings(t.Context(), &threadsvcv1.ListTenantWarningsRequest{PageSize: -1})
	wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST")
}

// A thread that was deleted is imported again by explicit wish only, with its ledger; one that is there never.
func TestImportReplacesADeletedThread(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{})
	h.record("r1", lostDelta)
	before := h.ledgers()
	file := export(t, h.history, threadName("t1"))
	replace := func() error {
		stream := must(h.history.ImportThread(t.Context()))(t)
		if err := stream.Send(&threadsvcv1.ImportThreadRequest{Thread: threadName("t1"), Chunk: file, ReplaceDeleted: true}); err != nil {
			t.Fatal(err)
		}
		_, err := stream.CloseAndRecv()
		return err
	}
	wantReason(t, replace(), codes.AlreadyExists, "THREAD_EXISTS")
	must(h.client.DeleteThread(t.Context(), &threadsvcv1.DeleteThreadRequest{Thread: threadName("t1")}))(t)
	if err := fails(importFile(t.Context(), h.history, threadName("t1"), file)); err == nil {
		t.Fatal("a deleted thread was imported without the wish")
	} else if reason, _ := reasonOf(err); reason != "THREAD_DELETED" {
		t.Fatalf("%v %s", err, reason)
	}
	if err := replace(); err != nil {
		t.Fatal(err, detailsOf(err))
	}
	if after := h.ledgers(); after != before {
		t.Errorf("was\n%s\nis\n%s", before, after)
	}
	if got := listLedger(t, h.client, nil, 10); len(got) != 1 {
		t.Errorf("the ledger has %q", got)
	}
	h.stillWorks()
}
