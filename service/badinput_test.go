package service_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/threadsvc/threadsvc/agui"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
)

// secret stands for content, which no error may repeat.
const secret = "hunter2"

// checkError judges what every error has to be: it has a reason, it is short, and it does not repeat content.
func checkError(t testing.TB, err error) {
	t.Helper()
	reason, _ := reasonOf(err)
	if reason == "" {
		t.Errorf("error without a reason: %v", err)
	}
	whole := status.Convert(err).Proto()
	if n := proto.Size(whole); n > 8<<10 {
		t.Errorf("status of %d bytes", n)
	}
	if strings.Contains(whole.String(), secret) {
		t.Errorf("the error repeats content: %v", whole)
	}
}

// smallLimits keep what is too large small.
func smallLimits() service.Config {
	limits := agui.DefaultLimits()
	limits.Event, limits.State, limits.Context, limits.PatchOps = 64<<10, 128<<10, 256<<10, 100
	return service.Config{Limits: limits}
}

var deepObject = strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000)

var longID = quote(strings.Repeat("i", agui.MaxIDBytes+1))

var refusedEvents = []struct {
	name, event string
	code, path  string
}{
	{"nothing", "", "JSON_MALFORMED", ""},
	{"no JSON", "hunter2", "JSON_MALFORMED", ""},
	{"half an object", `{"type":"CUSTOM","name":"hunter2`, "JSON_MALFORMED", ""},
	{"two objects", `{"type":"TEXT_MESSAGE_START","messageId":"a"}{}`, "JSON_MALFORMED", ""},
	{"an array", `["hunter2"]`, "JSON_MALFORMED", ""},
	{"no object", `"hunter2"`, "JSON_MALFORMED", ""},
	{"bad UTF-8", "{\"type\":\"CUSTOM\",\"name\":\"\xff\",\"value\":\"hunter2\"}", "JSON_MALFORMED", ""},
	{"bad UTF-8 in open content", "{\"type\":\"RAW\",\"event\":{\"a\xc3\":\"hunter2\"}}", "JSON_MALFORMED", ""},
	{"a name twice", `{"type":"CUSTOM","name":"a","name":"hunter2","value":1}`, "JSON_MALFORMED", "/name"},
	{"a raw NUL", "{\"type\":\"CUSTOM\",\"name\":\"\x00\",\"value\":1}", "JSON_MALFORMED", ""},
	{"NUL after the end", "{\"type\":\"TEXT_MESSAGE_START\",\"messageId\":\"a\"}\x00", "JSON_MALFORMED", ""},
	{"a byte order mark", "\ufeff" + textStart("m"), "JSON_MALFORMED", ""},
	{"deep nesting", event("RAW", "event", deepObject), "JSON_TOO_DEEP", ""},
	{"deep nesting in an array", event("STATE_SNAPSHOT", "snapshot", strings.Repeat("[", 30_000)), "JSON_TOO_DEEP", ""},
	{"no type", `{"messageId":"hunter2"}`, "FIELD_MISSING", "/type"},
	{"type is a number", `{"type":7}`, "FIELD_MALFORMED", "/type"},
	{"required member missing", event("TEXT_MESSAGE_START"), "FIELD_MISSING", "/messageId"},
	{"wrong type", event("TEXT_MESSAGE_START", "messageId", "7"), "FIELD_MALFORMED", "/messageId"},
	{"null for absent", event("TEXT_MESSAGE_START", "messageId", `"a"`, "role", "null"), "FIELD_MALFORMED", "/role"},
	{"outside of a closed set", event("TEXT_MESSAGE_START", "messageId", `"a"`, "role", `"hunter2"`), "FIELD_MALFORMED", "/role"},
	{"huge number for a count", event("RUN_ERROR", "message", `"x"`, "usage", `[{"inputTokens":1e400}]`), "FIELD_MALFORMED", "/usage/0/inputTokens"},
	{"number with a million digits of exponent", event("CUSTOM", "name", `"x"`, "value", "1", "timestamp", "1e1000000"), "FIELD_MALFORMED", "/timestamp"},
	{"empty id", event("TEXT_MESSAGE_START", "messageId", `""`), "ID_INVALID", "/messageId"},
	{"long id", event("TEXT_MESSAGE_START", "messageId", longID), "ID_INVALID", "/messageId"},
	{"NUL in an id", event("TEXT_MESSAGE_START", "messageId", `"a\u0000"`), "ID_INVALID", "/messageId"},
	{"lone surrogate in an id", event("TEXT_MESSAGE_START", "messageId", `"\ud800"`), "ID_INVALID", "/messageId"},
	{"patch is no array", event("STATE_DELTA", "delta", `{"op":"hunter2"}`), "PATCH_MALFORMED", "/delta"},
	{"bad pointer", stateDelta(operations(add("hunter2", "1"))), "PATCH_MALFORMED", "/delta/0/path"},
	{"bad escape in a pointer", stateDelta(operations(add("/~2", "1"))), "PATCH_MALFORMED", "/delta/0/path"},
	{"operation without a value", stateDelta(`[{"op":"add","path":"/a"}]`), "PATCH_MALFORMED", "/delta/0/value"},
	{"not open", textDelta("never opened", secret), "SEQUENCE_NOT_OPEN", "/messageId"},
	{"another thread", runFinished("t-hunter2", "r1"), "THREAD_MISMATCH", "/threadId"},
	{"another run", runFinished("", "r2"), "RUN_MISMATCH", "/runId"},
	{"outcome is an array", runFinished("", "r1", "outcome", "[]"), "FIELD_MALFORMED", "/outcome"},
	{"interrupts without one", runFinished("", "r1", "outcome", `{"type":"interrupt","interrupts":[]}`), "FIELD_MALFORMED", "/outcome/interrupts"},
	{"an interrupt twice", interrupted("", "r1", "i1", "i1"), "INTERRUPT_REPEATED", "/outcome/interrupts/1/id"},
}

func TestEventsThatAreRefused(t *testing.T) {
	t.Parallel()
	client := newServer(t, smallLimits())
	for i, tc := range refusedEvents {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := converse(t, client, fmt.Sprint("t", i))
			c.open("r1", stateSnapshot(`{"a":1}`))
			bad := strings.Replace(tc.event, `"threadId":""`, `"threadId":`+quote(c.thread), 1)
			_, err := c.tryAppend(event("CUSTOM", "name", `"before"`, "value", "1"), bad, event("CUSTOM", "name", `"after"`, "value", "1"))
			meta := wantReason(t, err, codes.InvalidArgument, "PROTOCOL_VIOLATION")
			checkError(t, err)
			version := fmt.Sprint(len(c.log()))
			want := map[string]string{"code": tc.code, "path": tc.path, "offset": "3", "next_offset": "3", "version": version, "run_closed": "true"}
			if !maps.Equal(meta, want) {
				t.Errorf("metadata %v, want %v", meta, want)
			}
			c.wantStatus("r1", threadsvcv1.RunStatus_RUN_STATUS_FAILED)
			if n := len(c.events("r1")); n != 3 {
				t.Errorf("the log has %d events of the run, want the 3 before the bad one", n)
			}
			if marks := c.marks(); !slices.Equal(marks, []string{"RUN_FAILED " + tc.code}) {
				t.Errorf("marks %q", marks)
			}
			warnings := must(client.ListWarnings(t.Context(), &threadsvcv1.ListWarningsRequest{Thread: threadName(c.thread)}))(t).GetWarnings()
			if len(warnings) != 1 || !warnings[0].GetFatal() || warnings[0].GetCode() != tc.code || warnings[0].GetOffset() != 3 {
				t.Errorf("ledger %v", warnings)
			}
			_, err = c.tryAppend(runFinished(c.thread, "r1"))
			if meta := wantReason(t, err, codes.FailedPrecondition, "RUN_CLOSED"); meta["status"] != "FAILED" {
				t.Errorf("after the violation: %v", meta)
			}
			c.stillWorks()
			c.wantState(`{"a":1}`)
		})
	}
}

var acceptedEvents = []struct{ name, event, code string }{
	{"unknown event", event("FROM_THE_FUTURE", "x", `"hunter2"`), "EVENT_UNKNOWN"},
	{"unknown event with a strange name", `{"type":"\ud800\u0000` + strings.Repeat("é", 100) + `"}`, "EVENT_UNKNOWN"},
	{"unknown property", event("CUSTOM", "name", `"x"`, "value", "1", "hunter", `"hunter2"`), "PROPERTY_UNKNOWN"},
	{"property with a lone surrogate", `{"type":"CUSTOM","name":"x","value":1,"\ud800x":2}`, "PROPERTY_UNKNOWN"},
	{"property with NUL", `{"type":"CUSTOM","name":"x","value":1,"a\u0000b":2}`, "PROPERTY_UNKNOWN"},
	{"property with a very long name", `{"type":"CUSTOM","name":"x","value":1,"` + strings.Repeat("é", 20_000) + `":2}`, "PROPERTY_UNKNOWN"},
	{"unknown operation with a strange name", stateDelta(`[{"op":"\ud800\u0000","path":"/a"}]`), "OPERATION_UNKNOWN"},
	{"patch that pads", stateDelta(operations(add("/list/2000000000", "1"))), "PATCH_NOT_APPLIED"},
	{"patch into a strange key", stateDelta(operations(add(`/\ud800/\u0000`, "1"))), "PATCH_NOT_APPLIED"},
	{"patch with too many operations", stateDelta(operations(slices.Repeat([]string{add("/b", "1")}, 101)...)), "PATCH_LIMIT"},
	{"patch that copies without end", stateDelta(operations(slices.Repeat([]string{`{"op":"copy","from":"","path":"/a"}`}, 90)...)), "PATCH_LIMIT"},
	{"patch that moves into itself", stateDelta(`[{"op":"move","from":"/a","path":"/a/b"}]`), "PATCH_NOT_APPLIED"},
	{"test of a number that does not fit anything", stateDelta(`[{"op":"test","path":"/n","value":1e1000000}]`), "PATCH_NOT_APPLIED"},
	{"unreadable version", event("TEXT_MESSAGE_START", "messageId", `"m9"`, "x", `"y"`), "PROPERTY_UNKNOWN"},
	{"encrypted value of nothing", event("REASONING_ENCRYPTED_VALUE", "subtype", `"message"`, "entityId", `"nobody"`, "encryptedValue", `"hunter2"`), "TARGET_UNKNOWN"},
}

// What is only not understood, or does not apply, is accepted with a warning, whatever its names look like.
func TestEventsThatAreAcceptedWithAWarning(t *testing.T) {
	t.Parallel()
	client := newServer(t, smallLimits())
	for i, tc := range acceptedEvents {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := converse(t, client, fmt.Sprint("t", i))
			c.open("r1", stateSnapshot(`{"a":{"x":"`+strings.Repeat("x", 2000)+`"},"n":1,"list":[]}`))
			progress, err := c.tryAppend(tc.event)
			if err != nil {
				t.Fatalf("%v %s", err, detailsOf(err))
			}
			warnings := progress.GetWarnings()
			if len(warnings) != 1 || warnings[0].GetCode() != tc.code || warnings[0].GetOffset() != 2 || warnings[0].GetRunId() != "r1" {
				t.Fatalf("warnings %v, want one %s", warnings, tc.code)
			}
			if strings.Contains(warnings[0].String(), secret) || proto.Size(warnings[0]) > 8<<10 {
				t.Errorf("the warning repeats content, or is long: %.300v", warnings[0])
			}
			ledger := must(client.ListWarnings(t.Context(), &threadsvcv1.ListWarningsRequest{Thread: threadName(c.thread)}))(t).GetWarnings()
			if len(ledger) != 1 || ledger[0].GetCode() != tc.code || ledger[0].GetPath() != warnings[0].GetPath() || ledger[0].GetVersion() != 4 {
				t.Errorf("ledger %.300v", ledger)
			}
			must(appendBatch(t.Context(), client, c.run, 2, tc.event))(t) // recognised when it is sent again
			if run := c.wantStatus("r1", threadsvcv1.RunStatus_RUN_STATUS_ACTIVE); run.GetWarningCount() > 1 {
				t.Errorf("%d warnings counted", run.GetWarningCount())
			}
			c.stillWorks()
		})
	}
}

func TestEventsBeyondALimitLeaveTheRunOpen(t *testing.T) {
	t.Parallel()
	c := converse(t, newServer(t, smallLimits()), "t1")
	c.open("r1")
	_, err := c.tryAppend(textStart("m"), textDelta("m", strings.Repeat(secret, 10_000)), textEnd("m"))
	meta := wantReason(t, err, codes.ResourceExhausted, "LIMIT_EXCEEDED")
	checkError(t, err)
	want := map[string]string{"code": "EVENT_TOO_LARGE", "path": "", "offset": "2", "next_offset": "2", "version": "3", "run_closed": "false"}
	if !maps.Equal(meta, want) {
		t.Errorf("metadata %v, want %v", meta, want)
	}
	c.append(textDelta("m", "less"), textEnd("m"), runFinished("t1", "r1"))
	c.wantStatus("r1", threadsvcv1.RunStatus_RUN_STATUS_FINISHED)
	c.stillWorks()
}

func TestFirstEventThatStartsNothing(t *testing.T) {
	t.Parallel()
	client := newServer(t, smallLimits())
	for i, bad := range []string{textStart("m"), runFinished("t", "r1"), secret, runStarted("another", "r1"), runStarted("t", "r2")} {
		for _, exists := range []bool{false, true} {
			c := converse(t, client, fmt.Sprint("t", i, exists))
			versions := 0
			if exists {
				c.record("r0")
				versions = 3
			}
			c.run, c.offset = handle(c.thread, "r1", 0), 0
			_, err := c.tryAppend(strings.Replace(bad, `"threadId":"t"`, `"threadId":`+quote(c.thread), 1))
			meta := wantReason(t, err, codes.InvalidArgument, "PROTOCOL_VIOLATION")
			checkError(t, err)
			if meta["code"] == "" || meta["offset"] != "0" || meta["run_closed"] != "false" || meta["next_offset"] != "0" {
				t.Errorf("%s: %v", bad, meta)
			}
			entries, _, err := readLog(t.Context(), client, c.thread, 0)
			if len(entries) != versions || !exists && status.Code(err) != codes.NotFound {
				t.Errorf("%s: %d entries, %v; want nothing written", bad, len(entries), err)
			}
			c.stillWorks()
		}
	}
}

var longName = strings.Repeat("i", agui.MaxIDBytes+1)

var bigValue = []byte(`"` + strings.Repeat(secret, 100_000) + `"`)

var refusedStarts = []struct {
	name   string
	reason string
	where  string // the field or the path
	change startOption
}{
	{"no thread", "INVALID_REQUEST", "thread", func(r *threadsvcv1.StartRunRequest) { r.Thread = nil }},
	{"empty thread id", "INVALID_REQUEST", "thread.thread_id", func(r *threadsvcv1.StartRunRequest) { r.Thread.ThreadId = "" }},
	{"long thread id", "INVALID_REQUEST", "thread.thread_id", func(r *threadsvcv1.StartRunRequest) { r.Thread.ThreadId = longName }},
	{"NUL in the thread id", "INVALID_REQUEST", "thread.thread_id", func(r *threadsvcv1.StartRunRequest) { r.Thread.ThreadId = "a\x00" }},
	{"long tenant", "INVALID_REQUEST", "thread.tenant", func(r *threadsvcv1.StartRunRequest) { r.Thread.Tenant = longName }},
	{"NUL in the tenant", "INVALID_REQUEST", "thread.tenant", func(r *threadsvcv1.StartRunRequest) { r.Thread.Tenant = "\x00" }},
	{"empty run id", "INVALID_REQUEST", "run_id", func(r *threadsvcv1.StartRunRequest) { r.RunId = "" }},
	{"long run id", "INVALID_REQUEST", "run_id", func(r *threadsvcv1.StartRunRequest) { r.RunId = longName }},
	{"NUL in the run id", "INVALID_REQUEST", "run_id", func(r *threadsvcv1.StartRunRequest) { r.RunId = "\x00" }},
	{"long parent run id", "INVALID_REQUEST", "parent_run_id", func(r *threadsvcv1.StartRunRequest) { r.ParentRunId = longName }},
	{"negative lease", "INVALID_REQUEST", "lease_ttl", func(r *threadsvcv1.StartRunRequest) { r.LeaseTtl = durationpb.New(-1) }},
	{"lease that is no duration", "INVALID_REQUEST", "lease_ttl", func(r *threadsvcv1.StartRunRequest) { r.LeaseTtl = &durationpb.Duration{Seconds: 1, Nanos: -1} }},
	{"lease beyond all durations", "INVALID_REQUEST", "lease_ttl", func(r *threadsvcv1.StartRunRequest) { r.LeaseTtl = &durationpb.Duration{Seconds: 1 << 62} }},
	{"unknown policy", "INVALID_REQUEST", "policy", withPolicy(99)},
	{"negative policy", "INVALID_REQUEST", "policy", withPolicy(-1)},
	{"unknown choice", "INVALID_REQUEST", "unanswered_tool_calls", withUnanswered(99)},
	{"message is no JSON", "INVALID_INPUT", "/messages/0", withMessages(secret)},
	{"message is empty", "INVALID_INPUT", "/messages/0", withMessages("")},
	{"message breaks out", "INVALID_INPUT", "/messages/0", withMessages(`{"id":"a","role":"user","content":"x"}],"state":"hunter2","messages":[`)},
	{"message is two", "INVALID_INPUT", "/messages/0", withMessages(userMessage("a", "x") + "," + userMessage("b", "y"))},
	{"message without id", "INVALID_INPUT", "/messages/1/id", withMessages(userMessage("a", "x"), `{"role":"user","content":"hunter2"}`)},
	{"message with bad UTF-8", "INVALID_INPUT", "/messages/0", withMessages("{\"id\":\"a\",\"role\":\"user\",\"content\":\"\xff\"}")},
	{"tools are no array", "INVALID_INPUT", "/tools", func(r *threadsvcv1.StartRunRequest) { r.Tools = []byte(`{}`) }},
	{"tools break out", "INVALID_INPUT", "/tools", func(r *threadsvcv1.StartRunRequest) { r.Tools = []byte(`[],"state":1`) }},
	{"context is malformed", "INVALID_INPUT", "/context/0/value", func(r *threadsvcv1.StartRunRequest) { r.Context = []byte(`[{"description":"x"}]`) }},
	{"state is null", "INVALID_INPUT", "/state", func(r *threadsvcv1.StartRunRequest) {
		r.StateChange = &threadsvcv1.StartRunRequest_State{State: []byte(`null`)}
	}},
	{"state too large", "LIMIT_EXCEEDED", "", func(r *threadsvcv1.StartRunRequest) {
		r.StateChange = &threadsvcv1.StartRunRequest_State{State: bigValue}
	}},
	{"forwarded props too large", "LIMIT_EXCEEDED", "", func(r *threadsvcv1.StartRunRequest) { r.ForwardedProps = bigValue }},
	{"forwarded props break out", "INVALID_INPUT", "/forwardedProps", func(r *threadsvcv1.StartRunRequest) { r.ForwardedProps = []byte(`1,"state":2`) }},
	{"resume is malformed", "INVALID_INPUT", "/resume/0/status", withResume(`[{"interruptId":"i","status":"hunter2"}]`)},
	{"resume of nothing", "INTERRUPTS_UNKNOWN", "", withResume(`[{"interruptId":"i","status":"resolved"}]`)},
}

func TestStartsThatAreRefused(t *testing.T) {
	t.Parallel()
	client := newServer(t, smallLimits())
	for i, tc := range refusedStarts {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := converse(t, client, fmt.Sprint("t", i))
			c.record("r0", stateSnapshot(`{"a":1}`))
			_, _, err := c.tryStart("r1", tc.change)
			checkError(t, err)
			reason, meta := reasonOf(err)
			if reason != tc.reason || meta["field"]+meta["path"] != tc.where {
				t.Errorf("%v %s, want %s at %q", err, detailsOf(err), tc.reason, tc.where)
			}
			if info, _ := c.info(); info.GetVersion() != 4 {
				t.Errorf("version %d: something was written", info.GetVersion())
			}
			c.stillWorks()
		})
	}
}

func TestLeasesAreBounded(t *testing.T) {
	t.Parallel()
	c := converse(t, newServer(t, service.Config{MaxLeaseTTL: time.Minute}), "t1")
	for i, ttl := range []time.Duration{1, time.Hour, 1<<63 - 1} {
		start, _ := c.start(fmt.Sprint("r", i), withPolicy(takeOver), func(r *threadsvcv1.StartRunRequest) { r.LeaseTtl = durationpb.New(ttl) })
		if left := time.Until(start.GetLease().GetExpiresAt().AsTime()); left > time.Minute {
			t.Errorf("asked for %v, the lease lasts %v", ttl, left)
		}
	}
	c.stillWorks()
}
