package service_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// conversation is a thread under test: what an application and a producer do to it, one after the other.
type conversation struct {
	t      testing.TB
	client threadsvcv1.ThreadServiceClient
	thread string
	run    *threadsvcv1.RunHandle // the run that was started last
	offset uint64                 // of its next event
}

func converse(t testing.TB, client threadsvcv1.ThreadServiceClient, thread string) *conversation {
	return &conversation{t: t, client: client, thread: thread}
}

// newConversation is a conversation on a server and a database of its own.
func newConversation(t testing.TB) *conversation {
	t.Helper()
	return converse(t, newServer(t, service.Config{}), "t1")
}

// ownDatabase is newConversation that also gives a connection to the database.
func ownDatabase(t testing.TB, cfg service.Config) (*conversation, *pgx.Conn) {
	t.Helper()
	url := storetest.Database(t)
	return converse(t, serveDatabase(t, url, cfg), "t1"), connect(t, url)
}

// startOption completes the request that starts a run.
type startOption func(*threadsvcv1.StartRunRequest)

func withMessages(messages ...string) startOption {
	return func(r *threadsvcv1.StartRunRequest) {
		for _, m := range messages {
			r.Messages = append(r.Messages, []byte(m))
		}
	}
}

func withResume(resume string) startOption {
	return func(r *threadsvcv1.StartRunRequest) { r.Resume = []byte(resume) }
}

func withPolicy(policy threadsvcv1.ActiveRunPolicy) startOption {
	return func(r *threadsvcv1.StartRunRequest) { r.Policy = policy }
}

func withUnanswered(choice threadsvcv1.UnansweredToolCalls) startOption {
	return func(r *threadsvcv1.StartRunRequest) { r.UnansweredToolCalls = choice }
}

const (
	takeOver = threadsvcv1.ActiveRunPolicy_ACTIVE_RUN_POLICY_TAKE_OVER
	allow    = threadsvcv1.UnansweredToolCalls_UNANSWERED_TOOL_CALLS_ALLOW
	repair   = threadsvcv1.UnansweredToolCalls_UNANSWERED_TOOL_CALLS_REPAIR
)

func (c *conversation) request(run string, options ...startOption) *threadsvcv1.StartRunRequest {
	req := &threadsvcv1.StartRunRequest{Thread: threadName(c.thread), RunId: run}
	for _, option := range options {
		option(req)
	}
	return req
}

// tryStart asks for a run, and makes it the conversation's if it gets it.
func (c *conversation) tryStart(run string, options ...startOption) (*threadsvcv1.RunStart, []byte, error) {
	start, input, err := startRun(c.t.Context(), c.client, c.request(run, options...))
	if err == nil {
		c.run, c.offset = handle(c.thread, run, start.GetLease().GetFencingToken()), 0
	}
	return start, input, err
}

// start starts a run.
func (c *conversation) start(run string, options ...startOption) (*threadsvcv1.RunStart, runInput) {
	c.t.Helper()
	start, text, err := c.tryStart(run, options...)
	if err != nil {
		c.t.Fatalf("start %s: %v %s", run, err, detailsOf(err))
	}
	return start, parseInput(c.t, text)
}

// tryAppend appends events where the run's stream stands.
func (c *conversation) tryAppend(events ...string) (*threadsvcv1.Progress, error) {
	progress, err := appendBatch(c.t.Context(), c.client, c.run, c.offset, events...)
	if err == nil {
		c.offset = progress.GetNextOffset()
		return progress, nil
	}
	if _, meta := reasonOf(err); meta["next_offset"] != "" {
		c.offset, _ = strconv.ParseUint(meta["next_offset"], 10, 64)
	}
	return nil, err
}

// append appends events.
func (c *conversation) append(events ...string) *threadsvcv1.Progress {
	c.t.Helper()
	progress, err := c.tryAppend(events...)
	if err != nil {
		c.t.Fatalf("append: %v %s", err, detailsOf(err))
	}
	return progress
}

// open starts a run and appends its first events.
func (c *conversation) open(run string, events ...string) {
	c.t.Helper()
	c.start(run, withUnanswered(allow))
	c.append(append([]string{runStarted(c.thread, run)}, events...)...)
}

// record takes a run from its start to its end, and returns the codes of the warnings.
func (c *conversation) record(run string, events ...string) []string {
	c.t.Helper()
	c.start(run, withUnanswered(allow))
	events = append([]string{runStarted(c.thread, run)}, events...)
	return codesOf(c.append(append(events, runFinished(c.thread, run))...).GetWarnings())
}

// recreate makes a thread that was deleted again.
func (c *conversation) recreate() *threadsvcv1.Thread {
	c.t.Helper()
	req := &threadsvcv1.CreateThreadRequest{Thread: threadName(c.thread), ReplaceDeleted: true}
	return must(c.client.CreateThread(c.t.Context(), req))(c.t).GetThread()
}

// stillWorks takes a run to its end and reads it back.
func (c *conversation) stillWorks() {
	c.t.Helper()
	const run = "the run after"
	if _, _, err := c.tryStart(run, withUnanswered(allow), withPolicy(takeOver)); err != nil {
		c.t.Fatalf("no run can be started any more: %v %s", err, detailsOf(err))
	}
	c.append(runStarted(c.thread, run))
	c.append(text("the text after", "still here")...)
	c.append(runFinished(c.thread, run))
	last := c.context().Messages
	if len(last) == 0 || last[len(last)-1].Content != "still here" {
		c.t.Fatalf("the thread lost what the run after said: %v", outline(last))
	}
	c.wantStatus(run, threadsvcv1.RunStatus_RUN_STATUS_FINISHED)
}

func (c *conversation) wantStatus(run string, want threadsvcv1.RunStatus) *threadsvcv1.Run {
	c.t.Helper()
	runs := must(c.client.ListRuns(c.t.Context(), &threadsvcv1.ListRunsRequest{Thread: threadName(c.thread)}))(c.t)
	for _, r := range runs.GetRuns() {
		if r.GetRunId() == run {
			if r.GetStatus() != want {
				c.t.Errorf("run %s is %v, want %v", run, r.GetStatus(), want)
			}
			return r
		}
	}
	c.t.Fatalf("there is no run %s", run)
	return nil
}

// info reads the thread's context.
func (c *conversation) info() (*threadsvcv1.ContextInfo, runInput) {
	c.t.Helper()
	info, text, err := getContext(c.t.Context(), c.client, c.thread)
	if err != nil {
		c.t.Fatalf("context: %v %s", err, detailsOf(err))
	}
	if uint64(len(text)) != info.GetInputSize() {
		c.t.Errorf("the context has %d bytes, announced were %d", len(text), info.GetInputSize())
	}
	return info, parseInput(c.t, text)
}

func (c *conversation) context() runInput {
	c.t.Helper()
	_, input := c.info()
	return input
}

func (c *conversation) wantState(want string) {
	c.t.Helper()
	if got := string(c.context().State); got != want {
		c.t.Errorf("state %s, want %s", got, want)
	}
}

func (c *conversation) wantMessages(want ...string) {
	c.t.Helper()
	if got := outline(c.context().Messages); !slices.Equal(got, want) {
		c.t.Errorf("messages %q, want %q", got, want)
	}
}

// log reads the log and checks that its versions have no gaps.
func (c *conversation) log() []*threadsvcv1.LogEntry {
	c.t.Helper()
	entries, unreadable, err := readLog(c.t.Context(), c.client, c.thread, 0)
	if err != nil || len(unreadable) > 0 {
		c.t.Fatalf("log: %v, unreadable %v", err, unreadable)
	}
	for i, e := range entries {
		if e.GetVersion() != uint64(i)+1 {
			c.t.Fatalf("entry %d has version %d", i, e.GetVersion())
		}
	}
	return entries
}

// events are the payloads of the events in the log that a run had.
func (c *conversation) events(run string) []string {
	c.t.Helper()
	var events []string
	for _, e := range c.log() {
		if e.GetKind() == threadsvcv1.EntryKind_ENTRY_KIND_EVENT && e.GetRunId() == run {
			events = append(events, string(e.GetPayload()))
		}
	}
	return events
}

// marks are what the service noted of its own doing, as "type code".
func (c *conversation) marks() []string {
	c.t.Helper()
	var marks []string
	for _, e := range c.log() {
		if e.GetKind() == threadsvcv1.EntryKind_ENTRY_KIND_MARK {
			var mark struct{ Type, Code string }
			if err := json.Unmarshal(e.GetPayload(), &mark); err != nil {
				c.t.Fatal(err)
			}
			marks = append(marks, mark.Type+" "+mark.Code)
		}
	}
	return marks
}

// runInput is what a RunAgentInput holds.
type runInput struct {
	text     []byte
	State    json.RawMessage
	Messages []message
	Resume   json.RawMessage
}

type message struct {
	ID, Role, Name, ToolCallID         string
	Content                            any
	EncryptedValue, EncryptedValueType string
	ToolCalls                          []struct {
		ID       string
		Function struct{ Name, Arguments string }
	}
}

func parseInput(t testing.TB, text []byte) runInput {
	t.Helper()
	input := runInput{text: text}
	if err := json.Unmarshal(text, &input); err != nil {
		t.Fatalf("the run input is not JSON: %v", err)
	}
	return input
}

// outline describes messages by role and id.
func outline(messages []message) []string {
	var lines []string
	for _, m := range messages {
		lines = append(lines, m.Role+" "+m.ID)
	}
	return lines
}

func codesOf(warnings []*threadsvcv1.Warning) []string {
	var codes []string
	for _, w := range warnings {
		codes = append(codes, w.GetCode())
	}
	return codes
}

// quote writes a JSON string.
func quote(s string) string {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(err)
	}
	return strings.TrimSuffix(text.String(), "\n")
}

// event writes an event: its type, and then its other members, names and JSON texts alternating.
func event(eventType string, members ...string) string {
	text := `{"type":` + quote(eventType)
	for i := 0; i < len(members); i += 2 {
		text += fmt.Sprintf(`,%q:%s`, members[i], members[i+1])
	}
	return text + "}"
}

func runStarted(thread, run string) string {
	return event("RUN_STARTED", "threadId", quote(thread), "runId", quote(run))
}

func runFinished(thread, run string, more ...string) string {
	return event("RUN_FINISHED", append([]string{"threadId", quote(thread), "runId", quote(run)}, more...)...)
}

// interrupted is the RUN_FINISHED of a run that waits for answers to interrupts, as "id" or "id:toolCallId".
func interrupted(thread, run string, interrupts ...string) string {
	var list []string
	for _, interrupt := range interrupts {
		id, call, _ := strings.Cut(interrupt, ":")
		text := `{"id":` + quote(id) + `,"reason":"approval"`
		if call != "" {
			text += `,"toolCallId":` + quote(call) + `,"responseSchema":{"type":"boolean"}`
		}
		list = append(list, text+"}")
	}
	return runFinished(thread, run, "outcome", `{"type":"interrupt","interrupts":[`+strings.Join(list, ",")+`]}`)
}

func stateSnapshot(state string) string   { return event("STATE_SNAPSHOT", "snapshot", state) }
func stateDelta(operations string) string { return event("STATE_DELTA", "delta", operations) }

func messagesSnapshot(messages ...string) string {
	return event("MESSAGES_SNAPSHOT", "messages", "["+strings.Join(messages, ",")+"]")
}

func textStart(id string) string { return event("TEXT_MESSAGE_START", "messageId", quote(id)) }
func textDelta(id, delta string) string {
	return event("TEXT_MESSAGE_CONTENT", "messageId", quote(id), "delta", quote(delta))
}
func textEnd(id string) string { return event("TEXT_MESSAGE_END", "messageId", quote(id)) }

// text is a whole text message.
func text(id string, deltas ...string) []string {
	events := []string{textStart(id)}
	for _, delta := range deltas {
		events = append(events, textDelta(id, delta))
	}
	return append(events, textEnd(id))
}

// callStart starts a tool call on the message of the id "m-" + the call's.
func callStart(id string) string {
	return event("TOOL_CALL_START", "toolCallId", quote(id), "toolCallName", `"look"`, "parentMessageId", quote("m-"+id))
}
func callArgs(id, delta string) string {
	return event("TOOL_CALL_ARGS", "toolCallId", quote(id), "delta", quote(delta))
}
func callEnd(id string) string { return event("TOOL_CALL_END", "toolCallId", quote(id)) }
func callResult(id, call, content string) string {
	return event("TOOL_CALL_RESULT", "messageId", quote(id), "toolCallId", quote(call), "content", quote(content))
}

func userMessage(id, content string) string {
	return `{"id":` + quote(id) + `,"role":"user","content":` + quote(content) + `}`
}

func assistantMessage(id, content string) string {
	return `{"id":` + quote(id) + `,"role":"assistant","content":` + quote(content) + `}`
}

func toolMessage(id, call, content string) string {
	return `{"id":` + quote(id) + `,"role":"tool","toolCallId":` + quote(call) + `,"content":` + quote(content) + `}`
}

// connect connects to a database past the service.
func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func execSQL(t testing.TB, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// expireLeases lets the leases of all active runs have ended.
func expireLeases(t testing.TB, conn *pgx.Conn) {
	t.Helper()
	execSQL(t, conn, `UPDATE threads SET lease_expires_at = now() - interval '1 second' WHERE active_run IS NOT NULL`)
}

func textLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }
