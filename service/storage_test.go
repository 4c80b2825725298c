package service_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/codes"

	"github.com/threadsvc/threadsvc/agui"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store/storetest"
)

func TestValuesThatAreTooLarge(t *testing.T) {
	t.Parallel()
	limits := agui.DefaultLimits()
	limits.State, limits.Context = 1<<20, 3<<20
	c := converse(t, newServer(t, service.Config{Limits: limits}), "t1")
	c.open("r1", stateSnapshot(`{"a":1}`), callStart("c1"), callEnd("c1"))
	refused := func(what, code, large string) {
		t.Helper()
		before := c.offset
		_, err := c.tryAppend(large)
		meta := wantReason(t, err, codes.ResourceExhausted, "LIMIT_EXCEEDED")
		if meta["code"] != code || meta["offset"] != fmt.Sprint(before) || meta["run_closed"] != "false" || c.offset != before {
			t.Errorf("%s: %v, want %s at offset %d", what, meta, code, before)
		}
	}
	refused("a tool result of 20 MB", "EVENT_TOO_LARGE", callResult("x", "c1", strings.Repeat("x", 20<<20)))
	c.append(callResult("x", "c1", "too much to tell")) // another event takes the offset
	refused("a context beyond the limit", "CONTEXT_TOO_LARGE", event("TEXT_MESSAGE_CHUNK", "messageId", `"m"`, "delta", quote(strings.Repeat("x", 3<<20))))
	refused("a state beyond its limit", "CONTEXT_TOO_LARGE", stateSnapshot(`"`+strings.Repeat("x", 2<<20)+`"`))
	c.append(runFinished("t1", "r1"))
	c.wantState(`{"a":1}`)
	_, _, err := c.tryStart("r2", withMessages(userMessage("u1", strings.Repeat("x", 3<<20))))
	if meta := wantReason(t, err, codes.ResourceExhausted, "LIMIT_EXCEEDED"); meta["code"] == "" {
		t.Errorf("an input beyond the limit: %v", meta)
	}
	c.wantMessages("assistant m-c1", "tool x")
	c.stillWorks()
}

func TestContextOfManyMegabytes(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	part := strings.Repeat("lorem ipsum ", 1<<18) // 3 MiB
	c.open("r1", textStart("m"))
	for range 4 {
		c.append(textDelta("m", part))
	}
	c.append(textEnd("m"), runFinished("t1", "r1"))
	stream := must(c.client.GetContext(t.Context(), &threadsvcv1.GetContextRequest{Thread: threadName("t1")}))(t)
	info := must(stream.Recv())(t).GetInfo()
	largest := 0
	whole := must(readChunks(func() ([]byte, error) {
		msg, err := stream.Recv()
		largest = max(largest, len(msg.GetInputChunk()))
		return msg.GetInputChunk(), err
	}))(t)
	if len(whole) < 12<<20 || uint64(len(whole)) != info.GetInputSize() || largest > 1<<20 {
		t.Errorf("%d bytes in pieces of up to %d, announced %d", len(whole), largest, info.GetInputSize())
	}
	if got := parseInput(t, whole).Messages[0].Content; got != strings.Repeat(part, 4) {
		t.Error("the text is another one")
	}
	list := must(c.client.ListMessages(t.Context(), &threadsvcv1.ListMessagesRequest{Thread: threadName("t1")}))(t)
	if len(list.GetMessages()) != 0 || len(list.GetTooLarge()) != 1 || list.GetTooLarge()[0] != "m" {
		t.Errorf("list of %d messages, too large %q", len(list.GetMessages()), list.GetTooLarge())
	}
	start, input, err := c.tryStart("r2") // also as the input of a run
	if err != nil || len(input) < 12<<20 || uint64(len(input)) != start.GetInputSize() {
		t.Errorf("the run's input has %d bytes, announced %d: %v", len(input), start.GetInputSize(), err)
	}
}

func TestLargeEventComesBackFromTheLog(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	large := stateSnapshot(`{"v":"` + strings.Repeat("0123456789", 350_000) + `"}`)
	c.record("r1", large)
	if got := c.events("r1")[1]; got != large {
		t.Errorf("an event of %d bytes came back with %d", len(large), len(got))
	}
}

// What cannot be read in the log is passed over and reported, wherever it lies, and the thread goes on.
func TestUnreadableSegments(t *testing.T) {
	t.Parallel()
	future := agui.Entry{Kind: agui.KindEvent, Payload: []byte(`{"type":"FROM_THE_FUTURE","x":1}`)}
	unknown := agui.Entry{Kind: 9, Payload: []byte(`whatever`)}
	readable := agui.Entry{Kind: agui.KindEvent, Payload: []byte(stateDelta(operations(add("/kept", "1"))))}
	half := append(readable.Append(nil), 0xff)
	cases := []struct {
		name       string
		entries    []byte
		codec, n   int
		unreadable string
	}{
		{"garbage", []byte("garbage"), 0, 2, "5-6"},
		{"garbage said to be compressed", []byte("garbage"), 1, 2, "5-6"},
		{"empty", nil, 0, 1, "5-5"},
		{"readable up to its half", half, 0, 3, "6-7"},
		{"entry of an unknown kind", unknown.Append(nil), 0, 1, ""},
		{"event of the future", future.Append(nil), 0, 1, ""},
	}
	for _, tc := range cases {
		for _, ended := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/run ended %v", tc.name, ended), func(t *testing.T) {
				t.Parallel()
				checkUnreadable(t, tc.entries, tc.codec, tc.n, ended, tc.unreadable)
			})
		}
	}
}

// checkUnreadable adds a segment to the log of a run that goes on, and checks that the thread goes on and can be read.
func checkUnreadable(t *testing.T, entries []byte, codec, n int, ended bool, want string) {
	t.Helper()
	url := storetest.Database(t)
	db := connect(t, url)
	c := converse(t, serveDatabase(t, url, service.Config{}), "t1")
	c.open("r1", stateSnapshot(`{"a":1}`), textStart("m"))
	insertSegment(t, db, entries, codec, n)
	c.client = serveDatabase(t, url, service.Config{}) // a server that has not seen the thread
	c.append(textDelta("m", "x"), textEnd("m"), stateDelta(operations(add("/b", "2"))))
	if ended {
		c.append(runFinished("t1", "r1"))
	}
	logged, unreadable, err := readLog(t.Context(), c.client, "t1", 0)
	if err != nil {
		t.Fatal(err)
	}
	ranges := ""
	for _, u := range unreadable {
		ranges += fmt.Sprintf("%d-%d", u.GetFirstVersion(), u.GetLastVersion())
	}
	if ranges != want {
		t.Errorf("unreadable %q, want %q", ranges, want)
	}
	checkVersions(t, logged, unreadable)
	state := string(c.context().State)
	if !strings.Contains(state, `"a":1`) || !strings.Contains(state, `"b":2`) {
		t.Errorf("state %s", state)
	}
	c.stillWorks()
}

// insertSegment adds a segment to the log of the only thread, as another program might have.
func insertSegment(t *testing.T, db *pgx.Conn, entries []byte, codec, n int) {
	t.Helper()
	if entries == nil {
		entries = []byte{}
	}
	execSQL(t, db, `INSERT INTO log_segments
		SELECT (jsonb_populate_record(s, jsonb_build_object('first_version', t.version + 1, 'last_version', t.version + $1::bigint,
			'first_offset', t.next_offset, 'next_offset', t.next_offset, 'codec', $2::int, 'entries', $3::bytea))).*
		FROM threads t JOIN log_segments s ON s.thread_key = t.thread_key AND s.last_version = t.version`, n, codec, entries)
	execSQL(t, db, `UPDATE threads SET version = version + $1`, n)
}

// checkVersions checks that entries and unreadable ranges together have every version once.
func checkVersions(t *testing.T, entries []*threadsvcv1.LogEntry, unreadable []*threadsvcv1.UnreadableRange) {
	t.Helper()
	have := map[uint64]int{}
	for _, e := range entries {
		have[e.GetVersion()]++
	}
	for _, u := range unreadable {
		for v := u.GetFirstVersion(); v <= u.GetLastVersion(); v++ {
			have[v]++
		}
	}
	for v := uint64(1); v <= uint64(len(have)); v++ {
		if have[v] != 1 {
			t.Errorf("version %d comes %d times", v, have[v])
		}
	}
}

func TestCorruptedSegmentBelowTheFold(t *testing.T) {
	t.Parallel()
	c, db := ownDatabase(t, service.Config{})
	c.record("r1", append(text("m", "hi"), stateSnapshot(`{"a":1}`))...)
	c.record("r2", stateDelta(operations(add("/b", "2"))))
	execSQL(t, db, `UPDATE log_segments SET entries = 'garbage' WHERE first_version = 2`)
	_, unreadable, err := readLog(t.Context(), c.client, "t1", 0)
	if err != nil || len(unreadable) != 1 || unreadable[0].GetFirstVersion() != 2 || unreadable[0].GetLastVersion() != 7 {
		t.Errorf("unreadable %v, %v; want versions 2 to 7", unreadable, err)
	}
	_, unreadable, err = readLog(t.Context(), c.client, "t1", 4)
	if err != nil || len(unreadable) != 1 || unreadable[0].GetFirstVersion() != 4 {
		t.Errorf("read from the midst of it: %v, %v", unreadable, err)
	}
	c.wantState(`{"a":1,"b":2}`)
	c.wantMessages("assistant m")
	c.stillWorks()
}

func TestCorruptedFoldIsAFaultOfTheService(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	c, db := ownDatabase(t, service.Config{Logger: textLogger(&logged)})
	c.record("r1", stateSnapshot(`{"secret":"hunter2"}`))
	execSQL(t, db, `UPDATE states SET codec = 4`)
	_, _, err := getContext(t.Context(), c.client, "t1")
	wantReason(t, err, codes.Internal, "INTERNAL")
	if err.Error() != "rpc error: code = Internal desc = internal error" {
		t.Errorf("the caller is told %q", err)
	}
	if !strings.Contains(logged.String(), "internal error") || strings.Contains(logged.String(), "hunter2") {
		t.Errorf("logged: %s", logged.String())
	}
	if _, _, err := readLog(t.Context(), c.client, "t1", 0); err != nil {
		t.Errorf("the log cannot be read either: %v", err)
	}
	converse(t, c.client, "t2").stillWorks()
}
