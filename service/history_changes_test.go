package service_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/threadsvc/threadsvc/agui/jsondoc"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// changes lists what changed a value, page by page, as "version operation path from: before -> after".
func (h *historian) changes(req *threadsvcv1.ListStateChangesRequest) []string {
	h.t.Helper()
	req.Thread = threadName(h.thread)
	return pages(h.t.(*testing.T), func(token string) (lines []string, next string, err error) {
		req.PageToken = token
		resp, err := h.history.ListStateChanges(h.t.Context(), req)
		for _, c := range resp.GetChanges() {
			lines = append(lines, changeLine(c))
		}
		return lines, resp.GetNextPageToken(), err
	})
}

func changeLine(c *threadsvcv1.StateChange) string {
	line := fmt.Sprint(c.GetSource().GetVersion(), " ", c.GetOperation(), c.GetOperationIndex(), " ", c.GetPath())
	if c.GetPath() != c.GetPathBefore() {
		line += " from " + c.GetPathBefore()
	}
	return line + ": " + textOf(c.GetBefore()) + " -> " + textOf(c.GetAfter())
}

func textOf(v *threadsvcv1.ValueText) string {
	if v == nil {
		return "none"
	}
	return string(v.GetText())
}

// blame lists the leaves of the state at a moment, as "path value: version operation".
func (h *historian) blame(req *threadsvcv1.BlameStateRequest) []string {
	h.t.Helper()
	req.Thread = threadName(h.thread)
	lines := pages(h.t.(*testing.T), func(token string) (lines []string, next string, err error) {
		req.PageToken = token
		resp, err := h.history.BlameState(h.t.Context(), req)
		for _, l := range resp.GetLeaves() {
			lines = append(lines, fmt.Sprint(l.GetPath(), " ", textOf(l.GetValue()), ": ", l.GetSource().GetVersion(), " ", l.GetOperation(), l.GetOperationIndex()))
		}
		return lines, resp.GetNextPageToken(), err
	})
	slices.Sort(lines)
	return lines
}

// tell is a history in which a value is moved, copied, shifted, restated and changed.
func (h *historian) tell() {
	must(h.client.CreateThread(h.t.Context(), &threadsvcv1.CreateThreadRequest{
		Thread: threadName(h.thread), State: []byte(`{"plan":{"steps":[{"do":"shop"}]},"n":1}`), // version 1
	}))(h.t)
	h.record("r1", // input 2, RUN_STARTED 3
		stateDelta(`[{"op":"add","path":"/plan/steps/0","value":{"do":"list"}},{"op":"test","path":"/n","value":1},{"op":"replace","path":"/n","value":2}]`), // 4
		event("STATE_DELTA", "delta", `[{"op":"replace","path":"/plan/steps/1/do","value":"buy"}]`, "subagentRunId", `"sub"`),                                // 5
		stateDelta(`[{"op":"move","from":"/plan/steps/1","path":"/current"}]`),                                                                               // 6
		stateSnapshot(`{"current":{"do":"buy"},"n":2,"plan":{"steps":[]}}`))                                                                                  // 7
	h.record("r2", // RUN_FINISHED 8, input 9, RUN_STARTED 10
		stateDelta(`[{"op":"copy","from":"/current","path":"/plan/steps/-"},{"op":"add","path":"/current/done","value":true}]`), // 11
		stateDelta(`[{"op":"remove","path":"/current"}]`))                                                                       // 12
}

func TestStateChanges(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{})
	h.tell()
	for pointer, want := range map[string][]string{
		"/n": {`4 replace2 /n: 1 -> 2`, `1 replace0 /n: none -> 1`},
		"/current/do": {
			`12 remove0 /current/do: "buy" -> none`,
			`6 move0 /current/do from /plan/steps/1/do: "buy" -> "buy"`,
			`5 replace0 /plan/steps/1/do: "shop" -> "buy"`,
			`1 replace0 /plan/steps/0/do: none -> "shop"`,
		},
		"/plan/steps/0/do": {
			`11 copy0 /plan/steps/0/do from /current/do: "buy" -> "buy"`,
			`6 move0 /current/do from /plan/steps/1/do: "buy" -> "buy"`,
			`5 replace0 /plan/steps/1/do: "shop" -> "buy"`,
			`1 replace0 /plan/steps/0/do: none -> "shop"`,
		},
		"/plan": {
			`11 copy0 /plan: {"steps":[]} -> {"steps":[{"do":"buy"}]}`,
			`7 replace0 /plan: {"steps":[{"do":"list"}]} -> {"steps":[]}`,
			`6 move0 /plan: {"steps":[{"do":"list"},{"do":"buy"}]} -> {"steps":[{"do":"list"}]}`,
			`5 replace0 /plan: {"steps":[{"do":"list"},{"do":"shop"}]} -> {"steps":[{"do":"list"},{"do":"buy"}]}`,
			`4 add0 /plan: {"steps":[{"do":"shop"}]} -> {"steps":[{"do":"list"},{"do":"shop"}]}`,
			`1 replace0 /plan: none -> {"steps":[{"do":"shop"}]}`,
		},
		"/nothing/here": nil,
	} {
		if got := h.changes(&threadsvcv1.ListStateChangesRequest{Pointer: pointer}); !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", pointer, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	within := &threadsvcv1.ListStateChangesRequest{Pointer: "/n", From: versionMoment(1), To: runMoment("r1")}
	if got := h.changes(within); !slices.Equal(got, []string{`4 replace2 /n: 1 -> 2`}) {
		t.Errorf("within a range: %q", got)
	}
}

func TestBlame(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{})
	h.tell()
	for moment, want := range map[uint64][]string{
		0:  {" {}: 0 0"},
		7:  {`/current/do "buy": 5 replace0`, `/n 2: 4 replace2`, `/plan/steps []: 7 replace0`},
		12: {`/n 2: 4 replace2`, `/plan/steps/0/do "buy": 11 copy0`},
	} {
		if got := h.blame(&threadsvcv1.BlameStateRequest{Moment: versionMoment(moment)}); !slices.Equal(got, want) {
			t.Errorf("blame of version %d:\n%s\nwant\n%s", moment, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if got := h.blame(&threadsvcv1.BlameStateRequest{Pointer: "/plan"}); len(got) != 1 {
		t.Errorf("blame of a part: %q", got)
	}
}

// A change says which entry made it, of which run and subagent.
func TestSourcesOfChanges(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{})
	h.tell()
	resp := must(h.history.ListStateChanges(t.Context(), &threadsvcv1.ListStateChangesRequest{Thread: threadName("t1"), Pointer: "/current/do"}))(t)
	source := resp.GetChanges()[2].GetSource()
	if source.GetRunId() != "r1" || source.GetSubagentRunId() != "sub" || source.GetEventType() != "STATE_DELTA" || source.GetOffset() != 2 ||
		source.GetKind() != threadsvcv1.EntryKind_ENTRY_KIND_EVENT || source.GetCommitTime() == nil {
		t.Errorf("source %v", source)
	}
	if first := resp.GetChanges()[3].GetSource(); first.GetKind() != threadsvcv1.EntryKind_ENTRY_KIND_INPUT || first.GetRunId() != "" || first.GetEventType() != "" {
		t.Errorf("source %v", first)
	}
}

// keepChanging has 30 runs that change a few values over and over.
func (h *historian) keepChanging() {
	for i := range 30 {
		var events []string
		for j := range 8 {
			n := i*8 + j
			events = append(events, stateDelta(fmt.Sprintf(
				`[{"op":"add","path":"/k%d","value":{"v":%d,"pad":%q}},{"op":"add","path":"/n","value":%d},{"op":"add","path":"/n","value":%d}]`,
				n%7, n, storetest.Noise(n, 60), n, n/3)))
		}
		if i%10 == 5 {
			events = append(events, stateDelta(`[{"op":"copy","from":"/k3","path":"/k4"}]`), stateDelta(`[{"op":"move","from":"/k5","path":"/k2"}]`))
		}
		h.record(fmt.Sprint("r", i), events...)
	}
}

// However small the pages are, and the stretches of the log that one call looks at, and wherever there are checkpoints,
// together they say the same.
func TestPagesOfChangesSayTheSame(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{CheckpointBytes: 1 << 10})
	h.keepChanging()
	list := func(h *historian, size int32, pointer string) []string {
		return h.changes(&threadsvcv1.ListStateChangesRequest{Pointer: pointer, PageSize: size})
	}
	blame := func(h *historian, size int32) []string {
		return h.blame(&threadsvcv1.BlameStateRequest{PageSize: size, Moment: runMoment("r27")})
	}
	pointers := []string{"/n", "/k2", "/k4/v", "/k6"}
	wants := map[string][]string{}
	for _, pointer := range pointers {
		wants[pointer] = list(h, 500, pointer)
	}
	want := blame(h, 500)
	if len(wants["/n"]) < 300 || len(wants["/k4/v"]) < 10 || len(want) != 15 {
		t.Fatalf("%d changes, %d changes, %d leaves", len(wants["/n"]), len(wants["/k4/v"]), len(want))
	}
	h.settle()
	h.waitFor("checkpoints", `SELECT count(*) > 3 FROM checkpoints`)
	small := *h
	conn := connection(t, startNode(t, openStore(t, h.url), service.Config{ScanBytes: 1, MergeRate: -1}).address)
	small.history = threadsvcv1.NewHistoryServiceClient(conn)
	for _, node := range []*historian{h, &small} {
		for _, pointer := range pointers {
			for _, size := range []int32{7, 500} {
				if got := list(node, size, pointer); !slices.Equal(got, wants[pointer]) {
					t.Errorf("%s in pages of %d:\n%s\nwant\n%s", pointer, size, strings.Join(got, "\n"), strings.Join(wants[pointer], "\n"))
				}
			}
		}
		for _, size := range []int32{1, 4, 500} {
			if got := blame(node, size); !slices.Equal(got, want) {
				t.Errorf("blame in pages of %d:\n%s\nwant\n%s", size, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
	}
}

func TestLongValuesAreCut(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{})
	long := `"` + strings.Repeat("x", 100_000) + `"`
	h.record("r1", stateSnapshot(`{"v":`+long+`}`), stateDelta(`[{"op":"replace","path":"/v","value":"short"}]`))
	resp := must(h.history.ListStateChanges(t.Context(), &threadsvcv1.ListStateChangesRequest{Thread: threadName("t1"), Pointer: "/v"}))(t)
	first, last := resp.GetChanges()[1].GetAfter(), resp.GetChanges()[0].GetAfter()
	if len(first.GetText()) != 4<<10 || first.GetSize() != uint64(len(long)) || len(first.GetSha256()) != 32 {
		t.Errorf("a long value has %d bytes of %d, and a digest of %d", len(first.GetText()), first.GetSize(), len(first.GetSha256()))
	}
	if string(last.GetText()) != `"short"` || last.GetSize() != 7 || last.GetSha256() != nil {
		t.Errorf("a short value: %v", last)
	}
}

// diff reads a difference between two moments.
func (h *historian) diff(from, to *threadsvcv1.Moment) (*threadsvcv1.DiffInfo, []byte, []string) {
	h.t.Helper()
	stream := must(h.history.DiffContext(h.t.Context(), &threadsvcv1.DiffContextRequest{Thread: threadName(h.thread), From: from, To: to}))(h.t)
	var patch []byte
	var messages []string
	info := must(stream.Recv())(h.t).GetInfo()
	for {
		msg, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			h.t.Fatal(err)
		}
		patch = append(patch, msg.GetStatePatchChunk()...)
		if m := msg.GetMessage(); m != nil {
			messages = append(messages, m.GetMessageId()+": "+textOf(m.GetBefore())+" -> "+textOf(m.GetAfter()))
		}
	}
	if info.GetStatePatchSize() != uint64(len(patch)) || info.GetMessages() != uint64(len(messages)) {
		h.t.Errorf("%v announces %d bytes and %d messages", info, len(patch), len(messages))
	}
	return info, patch, messages
}

// A difference makes the state of one moment that of any other, forth and back.
func TestDiffBetweenAnyMoments(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{})
	h.converseAtLength()
	for i := 0; i < len(h.was); i += 9 {
		for j := 0; j < len(h.was); j += 11 {
			from, to := &h.was[i], &h.was[j]
			info, patch, messages := h.diff(versionMoment(from.info.GetVersion()), versionMoment(to.info.GetVersion()))
			if info.GetFromVersion() != from.info.GetVersion() || info.GetToVersion() != to.info.GetVersion() {
				t.Errorf("%v, asked for %d and %d", info, from.info.GetVersion(), to.info.GetVersion())
			}
			doc := must(jsondoc.Parse([]byte(from.state), jsondoc.Limits{}))(t)
			p := must(jsondoc.ParsePatch(patch, jsondoc.Limits{}))(t)
			if err := doc.Apply(p); err != nil {
				t.Fatalf("%s to %s: %v", from.state, patch, err)
			}
			if rest := jsondoc.Diff(doc, must(jsondoc.Parse([]byte(to.state), jsondoc.Limits{}))(t)); string(rest) != "[]" {
				t.Errorf("%s on %s leaves %s", patch, from.state, rest)
			}
			if (len(messages) == 0) != slices.EqualFunc(from.messages, to.messages, bytes.Equal) {
				t.Errorf("versions %d and %d: messages %q", from.info.GetVersion(), to.info.GetVersion(), messages)
			}
		}
	}
}

func TestDiffOfMessages(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{})
	h.record("r1", messagesSnapshot(userMessage("u1", "one"), userMessage("u2", "two"), userMessage("u3", "three")))
	h.record("r2", messagesSnapshot(userMessage("u4", "four"), userMessage("u3", "three"), userMessage("u1", "uno")))
	_, patch, got := h.diff(runMoment("r1"), nil)
	want := []string{
		"u1: " + userMessage("u1", "one") + " -> " + userMessage("u1", "uno"),
		"u4: none -> " + userMessage("u4", "four"), "u2: " + userMessage("u2", "two") + " -> none",
	}
	if !slices.Equal(got, want) || string(patch) != "[]" {
		t.Errorf("%q and %s, want %q", got, patch, want)
	}
	if _, _, got := h.diff(nil, runMoment("r1")); len(got) != 3 {
		t.Errorf("from the start: %q", got)
	}
}

// Tokens come from outside: whatever they say, the answer is a page or INVALID_REQUEST.
func TestTokensThatAreNone(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{})
	h.tell()
	for _, token := range []string{
		"?", "e30", "bnVsbA", b64(`{"v":99,"a":1}`), b64(`{"v":3,"a":5}`), b64(`{"v":3,"a":4,"s":1}`), b64(`{"v":3,"a":0}`),
		b64(`{"v":3,"a":2,"s":-1}`), b64(`{"v":3,"a":2,"p":"YQ=="}`), b64(`{"v":3,"a":2,"o":[{"e":"YQ==","a":""}]}`),
	} {
		_, changes := h.history.ListStateChanges(t.Context(), &threadsvcv1.ListStateChangesRequest{Thread: threadName("t1"), PageToken: token})
		_, blame := h.history.BlameState(t.Context(), &threadsvcv1.BlameStateRequest{Thread: threadName("t1"), PageToken: token})
		for _, err := range []error{changes, blame} {
			if err != nil {
				wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST")
			}
		}
		if changes == nil && blame == nil {
			t.Errorf("token %q was taken", token)
		}
	}
	_, err := h.history.BlameState(t.Context(), &threadsvcv1.BlameStateRequest{Thread: threadName("t1"), PageToken: b64(`{"v":12,"a":13,"l":"L25vd2hlcmU="}`)})
	if err != nil {
		t.Errorf("a place beyond all leaves: %v", err)
	}
	_, err = h.history.ListStateChanges(t.Context(), &threadsvcv1.ListStateChangesRequest{Thread: threadName("t1"), PageSize: -1})
	wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST")
	_, err = h.history.BlameState(t.Context(), &threadsvcv1.BlameStateRequest{Thread: threadName("nobody")})
	wantReason(t, err, codes.NotFound, "THREAD_NOT_FOUND")
}

func b64(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
