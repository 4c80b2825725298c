package service_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
)

// pages reads a list page by page.
func pages(t *testing.T, page func(token string) (items []string, next string, err error)) []string {
	t.Helper()
	var all []string
	token := ""
	for {
		items, next, err := page(token)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, items...)
		if token = next; token == "" {
			return all
		}
	}
}

func TestThreadsAreListedByTheirLastRun(t *testing.T) {
	t.Parallel()
	client := newServer(t, service.Config{})
	for i := range 7 {
		metadata := fmt.Sprintf(`{"user":"u%d","n":%d,"deep":{"user":"u9"}}`, i%2, i)
		must(client.CreateThread(t.Context(), &threadsvcv1.CreateThreadRequest{Thread: threadName(fmt.Sprint("t", i)), Metadata: []byte(metadata)}))(t)
	}
	must(client.CreateThread(t.Context(), &threadsvcv1.CreateThreadRequest{Thread: &threadsvcv1.ThreadName{Tenant: "other", ThreadId: "t0"}}))(t)
	converse(t, client, "t2").record("r1")
	converse(t, client, "t0").record("r1")
	list := func(metadata map[string]string) []string {
		return pages(t, func(token string) ([]string, string, error) {
			resp, err := client.ListThreads(t.Context(), &threadsvcv1.ListThreadsRequest{Tenant: "test", Metadata: metadata, PageSize: 2, PageToken: token})
			var ids []string
			for _, thread := range resp.GetThreads() {
				ids = append(ids, thread.GetName().GetThreadId())
			}
			if len(ids) > 2 {
				t.Errorf("a page of %d", len(ids))
			}
			return ids, resp.GetNextPageToken(), err
		})
	}
	for _, tc := range []struct {
		metadata map[string]string
		want     []string
	}{
		{nil, []string{"t0", "t2", "t6", "t5", "t4", "t3", "t1"}},
		{map[string]string{"user": "u1"}, []string{"t5", "t3", "t1"}},
		{map[string]string{"user": "u0"}, []string{"t0", "t2", "t6", "t4"}},
		{map[string]string{"user": "u9"}, nil},
		{map[string]string{"n": "1"}, nil}, // not a string there
		{map[string]string{"user": "u1", "n": "1"}, nil},
	} {
		if got := list(tc.metadata); !slices.Equal(got, tc.want) {
			t.Errorf("by %v: %q, want %q", tc.metadata, got, tc.want)
		}
	}
}

func TestListsOfAThreadInPages(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	runs, messages, warnings := c.recordFive()
	name := threadName("t1")
	lists := map[string]struct {
		want []string
		page func(token string) ([]string, string, error)
	}{
		"runs": {runs, func(token string) (items []string, _ string, _ error) {
			resp, err := c.client.ListRuns(t.Context(), &threadsvcv1.ListRunsRequest{Thread: name, PageSize: 2, PageToken: token})
			for _, r := range resp.GetRuns() {
				items = append(items, r.GetRunId())
				if r.GetWarningCount() != 3 || r.GetStartTime() == nil || r.GetEndTime() == nil {
					t.Errorf("run %v", r)
				}
			}
			return items, resp.GetNextPageToken(), err
		}},
		"messages": {messages, func(token string) (items []string, _ string, _ error) {
			resp, err := c.client.ListMessages(t.Context(), &threadsvcv1.ListMessagesRequest{Thread: name, PageSize: 2, PageToken: token})
			for _, m := range resp.GetMessages() {
				items = append(items, parseInput(t, []byte(`{"messages":[`+string(m)+`]}`)).Messages[0].ID)
			}
			return items, resp.GetNextPageToken(), err
		}},
		"warnings": {warnings, func(token string) (items []string, _ string, _ error) {
			resp, err := c.client.ListWarnings(t.Context(), &threadsvcv1.ListWarningsRequest{Thread: name, PageSize: 2, PageToken: token})
			for _, w := range resp.GetWarnings() {
				items = append(items, strings.TrimSuffix(w.GetRunId()+" "+w.GetCode()+" "+strings.TrimPrefix(w.GetPath(), "/type"), " "))
			}
			return items, resp.GetNextPageToken(), err
		}},
	}
	for what, list := range lists {
		if got := pages(t, list.page); !slices.Equal(got, list.want) {
			t.Errorf("%s: %q, want %q", what, got, list.want)
		}
	}
}

// recordFive records five runs with a message and three warnings each, and returns what lists of them have to hold.
func (c *conversation) recordFive() (runs, messages, warnings []string) {
	c.t.Helper()
	for i := range 5 {
		run, id := fmt.Sprint("r", i), fmt.Sprint("m", i)
		c.record(run, append(text(id, "x"), event("FROM_THE_FUTURE"), event("CUSTOM", "name", `"x"`, "value", "1", "a", "1", "b", "2"))...)
		runs = append([]string{run}, runs...)
		messages = append(messages, id)
		warnings = append(warnings, run+" EVENT_UNKNOWN", run+" PROPERTY_UNKNOWN /a", run+" PROPERTY_UNKNOWN /b")
	}
	return runs, messages, warnings
}

func TestPagesEndBeforeTheyAreTooLarge(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	c.open("r1")
	var want []string
	for i := range 6 {
		id := fmt.Sprint("m", i)
		c.append(text(id, strings.Repeat("x", 900_000))...)
		want = append(want, id)
	}
	n := 0
	got := pages(t, func(token string) (items []string, _ string, _ error) {
		n++
		resp, err := c.client.ListMessages(t.Context(), &threadsvcv1.ListMessagesRequest{Thread: threadName("t1"), PageToken: token})
		for _, m := range resp.GetMessages() {
			items = append(items, parseInput(t, []byte(`{"messages":[`+string(m)+`]}`)).Messages[0].ID)
		}
		return items, resp.GetNextPageToken(), err
	})
	if !slices.Equal(got, want) || n != 3 {
		t.Errorf("%q in %d pages, want %q in 3", got, n, want)
	}
}

func TestRemovedTextIsInTheLedger(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	c.record("r1", event("CUSTOM", "name", `"x"`, "value", "1", "extra", `{"n":1.10,"s":"\ud800"}`), event("CUSTOM", "name", `"x"`, "value", "1", "long", quote(strings.Repeat("x", 100_000))))
	warnings := must(c.client.ListWarnings(t.Context(), &threadsvcv1.ListWarningsRequest{Thread: threadName("t1")}))(t).GetWarnings()
	if len(warnings) != 2 || string(warnings[0].GetRemoved()) != `{"n":1.10,"s":"\ud800"}` || len(warnings[1].GetRemoved()) != 16<<10 {
		t.Errorf("ledger %.300v", warnings)
	}
}

// Metadata change by the rules of RFC 7396, and what is not changed stays as it was written.
func TestMetadataAreMerged(t *testing.T) {
	t.Parallel()
	cases := []struct{ name, before, patch, after string }{
		{"nothing", `{"a":"b"}`, ``, `{"a":"b"}`},
		{"empty patch", `{"a":"b"}`, `{}`, `{"a":"b"}`},
		{"replace", `{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{"add", `{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{"null removes", `{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{"null of nothing", `{"a":"b"}`, `{"z":null}`, `{"a":"b"}`},
		{"arrays are replaced", `{"a":["b"]}`, `{"a":[1,null]}`, `{"a":[1,null]}`},
		{"nested", `{"a":{"b":"c","d":"e"}}`, `{"a":{"b":"x","d":null}}`, `{"a":{"b":"x"}}`},
		{"nulls within what is new", `{"a":"b"}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{"object for an array", `{"a":[1,2]}`, `{"a":{"x":1}}`, `{"a":{"x":1}}`},
		{"null that was there", `{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
		{"exact numbers", `{"n":1.10,"big":123456789012345678901234567890}`, `{"m":1e400}`, `{"n":1.10,"big":123456789012345678901234567890,"m":1e400}`},
		{"markup", `{"h":"<b>&"}`, `{"i":"<i>&"}`, `{"h":"<b>&","i":"<i>&"}`},
		{"order", `{"z":1,"a":2,"m":3}`, `{"a":4,"b":5}`, `{"z":1,"a":4,"m":3,"b":5}`},
		{"NUL and lone surrogates", `{"v":"\u0000\ud800","k\u0000":2}`, `{"w":"\udc00"}`, `{"v":"\u0000\ud800","k\u0000":2,"w":"\udc00"}`},
	}
	client := newServer(t, service.Config{})
	for i, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			name := threadName(fmt.Sprint("t", i))
			must(client.CreateThread(t.Context(), &threadsvcv1.CreateThreadRequest{Thread: name, Metadata: []byte(tc.before)}))(t)
			updated := must(client.UpdateThread(t.Context(), &threadsvcv1.UpdateThreadRequest{Thread: name, MetadataPatch: []byte(tc.patch)}))(t)
			read := must(client.GetThread(t.Context(), &threadsvcv1.GetThreadRequest{Thread: name}))(t)
			for where, got := range map[string][]byte{"answer": updated.GetThread().GetMetadata(), "thread": read.GetThread().GetMetadata()} {
				if string(got) != tc.after {
					t.Errorf("%s: %s, want %s", where, got, tc.after)
				}
			}
			if read.GetThread().GetVersion() != 1 {
				t.Errorf("version %d: metadata are not part of the log", read.GetThread().GetVersion())
			}
		})
	}
}

func TestMetadataCanBeChangedWhileARunGoesOn(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	c.open("r1")
	must(c.client.UpdateThread(t.Context(), &threadsvcv1.UpdateThreadRequest{Thread: threadName("t1"), MetadataPatch: []byte(`{"user":"ada"}`)}))(t)
	c.append(append(text("m", "x"), runFinished("t1", "r1"))...)
	found := must(c.client.ListThreads(t.Context(), &threadsvcv1.ListThreadsRequest{Tenant: "test", Metadata: map[string]string{"user": "ada"}}))(t)
	if len(found.GetThreads()) != 1 || string(found.GetThreads()[0].GetMetadata()) != `{"user":"ada"}` {
		t.Errorf("found %v", found)
	}
}

func TestMetadataThatAreRefused(t *testing.T) {
	t.Parallel()
	client := newServer(t, service.Config{})
	name := threadName("t1")
	must(client.CreateThread(t.Context(), &threadsvcv1.CreateThreadRequest{Thread: name, Metadata: []byte(`{"a":"` + strings.Repeat("x", 40_000) + `"}`)}))(t)
	for what, metadata := range map[string]string{
		"an array": `["hunter2"]`, "a string": `"hunter2"`, "null": `null`, "white space": ` `, "no JSON": `hunter2`, "two": `{}{}`,
		"half": `{"a":"hunter2`, "bad UTF-8": "{\"a\":\"\xff\"}", "too deep": strings.Repeat(`{"a":`, 1000) + "1" + strings.Repeat("}", 1000),
		"too long": `{"b":"` + strings.Repeat("x", 70_000) + `"}`, "a raw NUL": "{\"a\":\"\x00\"}",
	} {
		_, err := client.CreateThread(t.Context(), &threadsvcv1.CreateThreadRequest{Thread: threadName("new"), Metadata: []byte(metadata)})
		if meta := wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST"); meta["field"] != "metadata" || meta["rule"] == "" {
			t.Errorf("%s: %v", what, meta)
		}
		checkError(t, err)
		_, err = client.UpdateThread(t.Context(), &threadsvcv1.UpdateThreadRequest{Thread: name, MetadataPatch: []byte(metadata)})
		if meta := wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST"); meta["field"] != "metadata_patch" {
			t.Errorf("%s: %v", what, meta)
		}
	}
	_, err := client.UpdateThread(t.Context(), &threadsvcv1.UpdateThreadRequest{Thread: name, MetadataPatch: []byte(`{"b":"` + strings.Repeat("x", 40_000) + `"}`)})
	wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST") // together they are too long
	_, err = client.UpdateThread(t.Context(), &threadsvcv1.UpdateThreadRequest{Thread: threadName("new"), MetadataPatch: []byte(`{}`)})
	wantReason(t, err, codes.NotFound, "THREAD_NOT_FOUND")
}
