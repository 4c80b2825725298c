package service_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store/storetest"
)

func versionMoment(version uint64) *threadsvcv1.Moment {
	return &threadsvcv1.Moment{At: &threadsvcv1.Moment_Version{Version: version}}
}

func runMoment(run string) *threadsvcv1.Moment {
	return &threadsvcv1.Moment{At: &threadsvcv1.Moment_RunId{RunId: run}}
}

func timeMoment(at time.Time) *threadsvcv1.Moment {
	return &threadsvcv1.Moment{At: &threadsvcv1.Moment_Time{Time: timestamppb.New(at)}}
}

// contextAt reads a thread's context at a moment.
func contextAt(c *conversation, moment *threadsvcv1.Moment) (*threadsvcv1.ContextInfo, []byte, error) {
	req := &threadsvcv1.GetContextRequest{Thread: threadName(c.thread), Moment: moment}
	stream, err := c.client.GetContext(c.t.Context(), req)
	if err != nil {
		return nil, nil, err
	}
	first, err := stream.Recv()
	if err != nil {
		return nil, nil, err
	}
	input, err := readChunks(func() ([]byte, error) {
		msg, err := stream.Recv()
		return msg.GetInputChunk(), err
	})
	return first.GetInfo(), input, err
}

// historian is a conversation on a database of its own, whose past can be asked for.
type historian struct {
	*conversation
	history threadsvcv1.HistoryServiceClient
	keeper  threadsvcv1.RetentionServiceClient
	url     string
	db      *pgx.Conn
	was     []seen
}

// seen is a context as it was read when it was the present.
type seen struct {
	info     *threadsvcv1.ContextInfo
	text     []byte
	messages [][]byte
	state    string
}

func newHistorian(t testing.TB, cfg service.Config) *historian {
	t.Helper()
	url := storetest.Database(t)
	conn := connection(t, startNode(t, openStore(t, url), cfg).address)
	c := converse(t, threadsvcv1.NewThreadServiceClient(conn), "t1")
	return &historian{
		conversation: c, history: threadsvcv1.NewHistoryServiceClient(conn), keeper: threadsvcv1.NewRetentionServiceClient(conn),
		url: url, db: connect(t, url),
	}
}

// look remembers the present.
func (h *historian) look() {
	h.t.Helper()
	info, text, err := contextAt(h.conversation, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	list := must(h.client.ListMessages(h.t.Context(), &threadsvcv1.ListMessagesRequest{Thread: threadName(h.thread)}))(h.t)
	_, state := h.state(nil, "")
	h.was = append(h.was, seen{info, text, list.GetMessages(), state})
}

// each appends events one by one and remembers every version.
func (h *historian) each(events ...string) {
	h.t.Helper()
	for _, event := range events {
		h.append(event)
		h.look()
	}
}

// state reads a value of the state at a moment.
func (h *historian) state(moment *threadsvcv1.Moment, pointer string) (*threadsvcv1.StateInfo, string) {
	h.t.Helper()
	req := &threadsvcv1.GetStateRequest{Thread: threadName(h.thread), Moment: moment, Pointer: pointer}
	info, text, err := getState(h.t.Context(), h.history, req)
	if err != nil {
		h.t.Fatal(err, detailsOf(err))
	}
	if info.GetSize() != uint64(len(text)) {
		h.t.Errorf("%d bytes of state, announced were %d", len(text), info.GetSize())
	}
	return info, string(text)
}

func getState(ctx context.Context, c threadsvcv1.HistoryServiceClient, req *threadsvcv1.GetStateRequest) (*threadsvcv1.StateInfo, []byte, error) {
	stream, err := c.GetState(ctx, req)
	if err != nil {
		return nil, nil, err
	}
	first, err := stream.Recv()
	if err != nil {
		return nil, nil, err
	}
	text, err := readChunks(func() ([]byte, error) {
		msg, err := stream.Recv()
		return msg.GetChunk(), err
	})
	return first.GetInfo(), text, err
}

// checkPast compares what is said of the past with what was said when it was the present.
func (h *historian) checkPast(when string) {
	h.t.Helper()
	for _, was := range h.was {
		moment := versionMoment(was.info.GetVersion())
		info, text, err := contextAt(h.conversation, moment)
		if err != nil {
			h.t.Fatalf("%s: version %d: %v %s", when, was.info.GetVersion(), err, detailsOf(err))
		}
		if info.String() != was.info.String() || !bytes.Equal(text, was.text) {
			h.t.Errorf("%s: version %d is\n%v %s\nand was\n%v %s", when, was.info.GetVersion(), info, text, was.info, was.text)
		}
		req := &threadsvcv1.ListMessagesRequest{Thread: threadName(h.thread), Moment: moment}
		list := must(h.client.ListMessages(h.t.Context(), req))(h.t)
		if got, want := list.GetMessages(), was.messages; fmt.Sprintf("%s", got) != fmt.Sprintf("%s", want) {
			h.t.Errorf("%s: the messages of version %d are\n%s\nand were\n%s", when, was.info.GetVersion(), got, want)
		}
		if _, state := h.state(moment, ""); state != was.state {
			h.t.Errorf("%s: the state of version %d is %s and was %s", when, was.info.GetVersion(), state, was.state)
		}
	}
}

// settle waits until the runs that are over have been merged and have their checkpoints.
func (h *historian) settle() {
	h.t.Helper()
	h.waitFor("the merging of runs", `SELECT NOT EXISTS (SELECT 1 FROM runs WHERE status <> 1 AND NOT merged)`)
}

// waitFor waits until a query says true.
func (h *historian) waitFor(what, sql string, args ...any) {
	h.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		done := false
		if err := h.db.QueryRow(h.t.Context(), sql, args...).Scan(&done); err != nil {
			h.t.Fatal(err)
		}
		if done {
			return
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("waited in vain for %s", what)
		}
	}
}

func (h *historian) number(sql string, args ...any) (n int) {
	h.t.Helper()
	if err := h.db.QueryRow(h.t.Context(), sql, args...).Scan(&n); err != nil {
		h.t.Fatal(err)
	}
	return n
}

// converseAtLength has runs with all that makes up a context: created state, inputs, messages, calls, state, interrupts, a
// run that is taken over.
func (h *historian) converseAtLength() {
	h.t.Helper()
	must(h.client.CreateThread(h.t.Context(), &threadsvcv1.CreateThreadRequest{
		Thread: threadName(h.thread), State: []byte(`{"tenant":"x","n":1.10}`), Messages: [][]byte{[]byte(userMessage("u0", "hi"))},
	}))(h.t)
	h.look()
	for i := range 6 {
		run := fmt.Sprint("r", i)
		h.start(run, withUnanswered(allow), withMessages(userMessage(fmt.Sprint("u", run), "again")))
		h.look()
		h.each(runStarted("t1", run))
		h.each(text("m"+run, "Lorem ", "ipsum ", storetest.Noise(i, 700))...)
		h.each(stateDelta(`[{"op":"add","path":"/a`+run+`","value":[1,{"b":"`+storetest.Noise(i, 900)+`"}]}]`),
			stateDelta(`[{"op":"test","path":"/nothing","value":1}]`),
			stateDelta(`[{"op":"replace","path":"/n","value":`+strings.Repeat("9", i+1)+`}]`))
		h.each(callStart("c"+run), callArgs("c"+run, `{"q":`), callArgs("c"+run, `1}`), callEnd("c"+run))
		switch i {
		case 2:
			h.each(interrupted("t1", run, "i2"))
			h.start("r-resume", withUnanswered(allow), withResume(`[{"interruptId":"i2","status":"resolved","payload":1}]`))
			h.each(runStarted("t1", "r-resume"), stateSnapshot(`{"reset":true,"n":0}`), runFinished("t1", "r-resume"))
		case 3:
			h.start("r-over", withPolicy(takeOver), withUnanswered(allow))
			h.each(runStarted("t1", "r-over"), runFinished("t1", "r-over"))
		default:
			h.each(callResult("res"+run, "c"+run, "done"), runFinished("t1", run))
		}
	}
}

// Every version reads as it did when it was the present, also when the log was merged and has checkpoints, and on a server
// that has never seen the thread.
func TestAnyMomentReadsAsItWas(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{CheckpointBytes: 2 << 10})
	h.converseAtLength()
	for i := range 6 { // what each replaces leaves more log than context
		run := fmt.Sprint("again", i)
		h.start(run, withUnanswered(allow))
		h.each(runStarted("t1", run), stateSnapshot(`{"n":"`+storetest.Noise(i, 9000)+`"}`), runFinished("t1", run))
	}
	h.checkPast("at once")
	h.waitFor("checkpoints", `SELECT count(*) >= 2 FROM checkpoints`)
	h.settle()
	h.checkPast("with checkpoints")
	h.conversation.client = serveDatabase(t, h.url, service.Config{MergeRate: -1})
	h.checkPast("on another server")
	execSQL(t, h.db, `DELETE FROM checkpoints WHERE version % 2 = 0`)
	execSQL(t, h.db, `UPDATE checkpoints SET fold = overlay(fold PLACING '\x00'::bytea FROM octet_length(fold) / 2)`)
	h.checkPast("with broken checkpoints")
}

// Moments can be named by a run, whose end is meant, and by a time.
func TestMomentsByRunAndTime(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{})
	h.converseAtLength()
	check := func(when string) {
		t.Helper()
		for _, run := range must(h.client.ListRuns(t.Context(), &threadsvcv1.ListRunsRequest{Thread: threadName("t1")}))(t).GetRuns() {
			info, _ := h.state(runMoment(run.GetRunId()), "/n")
			if info.GetVersion() != run.GetLastVersion() {
				t.Errorf("%s: the end of %s is version %d, want %d", when, run.GetRunId(), info.GetVersion(), run.GetLastVersion())
			}
		}
		log := h.log()
		for i, entry := range log {
			at := entry.GetCommitTime().AsTime()
			want := entry.GetVersion()
			for _, later := range log[i+1:] { // one commit may bring several
				if later.GetCommitTime().AsTime().Equal(at) {
					want = later.GetVersion()
				}
			}
			for _, then := range []time.Time{at, at.Add(999 * time.Nanosecond)} {
				if info, _ := h.state(timeMoment(then), ""); info.GetVersion() != want {
					t.Errorf("%s: at %v the thread was at version %d, want %d", when, then, info.GetVersion(), want)
				}
			}
		}
		before := log[0].GetCommitTime().AsTime().Add(-time.Microsecond)
		if info, state := h.state(timeMoment(before), ""); info.GetVersion() != 0 || state != "{}" {
			t.Errorf("%s: before the start there was version %d with state %s", when, info.GetVersion(), state)
		}
		if info, _ := h.state(timeMoment(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)), ""); info.GetVersion() != uint64(len(log)) {
			t.Errorf("%s: the far future is version %d", when, info.GetVersion())
		}
	}
	check("at once")
	h.settle()
	check("merged")
	h.start("r-active", withUnanswered(allow))
	if info, _ := h.state(runMoment("r-active"), ""); info.GetVersion() != uint64(len(h.log())) {
		t.Errorf("the end of the active run is version %d", info.GetVersion())
	}
}

func TestStateAtAPlace(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{})
	h.record("r1", stateSnapshot(`{"a":{"b":[1,2.50,{"c/d":"\ud800"}]},"":1e400,"null":null}`))
	h.record("r2", stateSnapshot(`"`+strings.Repeat("x", 3<<20)+`"`))
	for pointer, want := range map[string]string{
		"/a/b/1": "2.50", "/a/b/2/c~1d": `"\ud800"`, "/": "1e400", "/null": "null", "/a": `{"b":[1,2.50,{"c/d":"\ud800"}]}`,
	} {
		if info, got := h.state(runMoment("r1"), pointer); got != want || !info.GetFound() {
			t.Errorf("%s: %s, want %s", pointer, got, want)
		}
	}
	for _, pointer := range []string{"/a/b/3", "/a/b/-", "/a/b/01", "/b", "/null/x"} {
		if info, got := h.state(runMoment("r1"), pointer); got != "" || info.GetFound() {
			t.Errorf("%s: %s was found", pointer, got)
		}
	}
	if _, got := h.state(nil, ""); len(got) != 3<<20+2 {
		t.Errorf("a large state came back with %d bytes", len(got))
	}
}

func TestMomentsThatAreNone(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{})
	h.record("r1")
	last := uint64(len(h.log()))
	if meta := wantReason(t, second(contextAt(h.conversation, versionMoment(last+1))), codes.OutOfRange, "VERSION_NOT_FOUND"); meta["first_version"] != "0" || meta["last_version"] != fmt.Sprint(last) {
		t.Errorf("%v", meta)
	}
	wantReason(t, second(contextAt(h.conversation, versionMoment(1<<63+5))), codes.OutOfRange, "VERSION_NOT_FOUND")
	wantReason(t, second(contextAt(h.conversation, runMoment("nobody"))), codes.NotFound, "RUN_NOT_FOUND")
	wantReason(t, second(contextAt(h.conversation, runMoment(""))), codes.InvalidArgument, "INVALID_REQUEST")
	wantReason(t, second(contextAt(h.conversation, &threadsvcv1.Moment{})), codes.InvalidArgument, "INVALID_REQUEST")
	broken := &threadsvcv1.Moment{At: &threadsvcv1.Moment_Time{Time: &timestamppb.Timestamp{Nanos: -1}}}
	wantReason(t, second(contextAt(h.conversation, broken)), codes.InvalidArgument, "INVALID_REQUEST")
	for _, pointer := range []string{"a", "/~", "/~2", strings.Repeat("/a", 40<<10)} {
		_, _, err := getState(t.Context(), h.history, &threadsvcv1.GetStateRequest{Thread: threadName("t1"), Pointer: pointer})
		wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST")
	}
	_, _, err := getState(t.Context(), h.history, &threadsvcv1.GetStateRequest{Thread: &threadsvcv1.ThreadName{Tenant: "other", ThreadId: "t1"}, Moment: versionMoment(1)})
	wantReason(t, err, codes.NotFound, "THREAD_NOT_FOUND")
	if info, text, err := contextAt(h.conversation, versionMoment(0)); err != nil || info.GetVersion() != 0 || !bytes.Contains(text, []byte(`"messages":[]`)) {
		t.Errorf("before everything: %v %s %v", info, text, err)
	}
}

func second[A, B any](_ A, _ B, err error) error { return err }

// Whatever the log consists of, checkpoints take no more than twice what the log takes, and from the nearest one to any
// version there is a bounded multiple of the context's size to be replayed.
func TestCheckpointsStayInProportion(t *testing.T) {
	t.Parallel()
	const least = 8 << 10
	for name, events := range map[string]func(run int) []string{
		"tokens": func(run int) []string {
			return text(fmt.Sprint("m", run), strings.Split(storetest.Noise(run, 400), "")...)
		},
		"a large state, restated by every run": func(run int) []string {
			return []string{stateSnapshot(`{"run":` + fmt.Sprint(run) + `,"v":"` + storetest.Noise(1, 60_000) + `"}`)}
		},
		"a state that changes as a whole": func(run int) []string {
			return []string{stateSnapshot(`{"v":"` + storetest.Noise(run, 60_000) + `"}`)}
		},
		"patches of a large state": func(run int) []string {
			events := []string{stateDelta(`[{"op":"add","path":"/v` + fmt.Sprint(run%3) + `","value":"` + storetest.Noise(run%3, 20_000) + `"}]`)}
			for i := range 100 {
				events = append(events, stateDelta(`[{"op":"add","path":"/n","value":`+fmt.Sprint(run*1000+i)+`}]`))
			}
			return events
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHistorian(t, service.Config{CheckpointBytes: least})
			for run := range 40 {
				h.record(fmt.Sprint("r", run), events(run)...)
			}
			h.settle()
			h.waitFor("a checkpoint", `SELECT EXISTS (SELECT 1 FROM checkpoints)`)
			h.checkProportion()
		})
	}
}

// checkProportion measures what is stored.
func (h *historian) checkProportion() {
	h.t.Helper()
	log := h.number(`SELECT sum(octet_length(entries)) FROM log_segments`)
	held := h.number(`SELECT coalesce(sum(octet_length(body)), 0) FROM contents`)
	rows := h.number(`SELECT sum(octet_length(fold)) FROM checkpoints`)
	all := h.number(`SELECT max(all_stored) FROM checkpoints`)
	own := h.number(`SELECT max(own_chunks) FROM checkpoints`)
	if rows > all || all > 2*(log+held-own) {
		h.t.Errorf("checkpoints take %d bytes, the log %d with %d of contents", all, log, held)
	}
	largest := h.number(`SELECT max(size) FROM checkpoints`)
	restated := h.number(`SELECT count(restated) FROM log_segments`)
	farthest := h.number(`
SELECT max(s.size + p.before)::bigint FROM log_segments s CROSS JOIN LATERAL (
    SELECT coalesce(sum(p.size), 0) AS before FROM log_segments p
    WHERE p.first_version < s.first_version
      AND p.first_version > coalesce((SELECT max(version) FROM checkpoints WHERE version < s.first_version), 0)) p`)
	// Of text without any order, token by token, the log takes hardly more than the context does, so there is room for few. What is
	// restated counts a sixteenth of the one and a half contexts' worth of log from one checkpoint to the next.
	if farthest > 12*largest+32<<10 && (restated == 0 || farthest > 25*largest+32<<10) {
		h.t.Errorf("%d bytes to be replayed for contexts of %d", farthest, largest)
	}
	h.t.Logf("%d checkpoints take %d bytes, the log %d with %d of contents; at most %d bytes are replayed for contexts of up to %d",
		h.number(`SELECT count(*) FROM checkpoints`), all, log, held, farthest, largest)
}

// Runs that need no merging, each committed as a whole, have checkpoints all the same.
func TestWholeRunsHaveCheckpoints(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{CheckpointBytes: 1 << 10})
	for i := range 20 {
		h.record(fmt.Sprint("r", i), stateSnapshot(fmt.Sprintf(`{"n":%d}`, i)), stateDelta(`[{"op":"add","path":"/a","value":1}]`))
	}
	h.waitFor("a checkpoint", `SELECT EXISTS (SELECT 1 FROM checkpoints)`)
	h.settle()
}

// Patches that each copy what one may copy do not make a thread that cannot be read any more, however many there are.
func TestManyCopiesAreRead(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	c := converse(t, serveDatabase(t, url, service.Config{}), "t1")
	half := `{"a":"` + strings.Repeat("y", 240_000) + `"}`
	c.record("r1", stateSnapshot(`{"x":`+half+`,"y":`+half+`}`))
	c.start("r2")
	c.append(runStarted("t1", "r2"))
	for range 23 {
		c.append(slices.Repeat([]string{stateDelta(`[{"op":"copy","from":"/x","path":"/y"}]`)}, 100)...)
	}
	c.append(runFinished("t1", "r2"))
	_, want, err := contextAt(c, nil)
	if err != nil || !bytes.Contains(want, []byte(half)) {
		t.Fatal(err)
	}
	if _, got, err := contextAt(converse(t, serveDatabase(t, url, service.Config{}), "t1"), nil); err != nil || !bytes.Equal(got, want) {
		t.Errorf("another server reads %d bytes: %v", len(got), err)
	}
}
