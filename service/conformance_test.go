package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"testing"

	"google.golang.org/grpc/status"

	"github.com/threadsvc/threadsvc/agui/conformance"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// conformanceEnv names a folder with more streams to be tried.
const conformanceEnv = "THREADSVC_CONFORMANCE"

// TestConformance sends every recorded stream through gRPC into Postgres, in several ways, and judges what the service
// made of it.
func TestConformance(t *testing.T) {
	t.Parallel()
	cases, own := conformanceCases(t)
	client := newServer(t, service.Config{})
	killed := startProcess(t, storetest.Database(t))
	ways := []struct {
		name string
		send func(t *testing.T, c *conformance.Case, run *recorded)
	}{
		{"one event per request", sendStream},
		{"one batch", sendBatch},
		{"recorded as it passes by", sendUnannounced},
		{"server killed between any two events", func(t *testing.T, c *conformance.Case, run *recorded) {
			sendKilling(t, c, run, killed, killsAt(slices.Index(names(cases), c.Name), own))
		}},
	}
	passed := 0
	for i := range cases {
		c := &cases[i]
		ok := true
		for _, way := range ways {
			run := &recorded{client: client, thread: c.ThreadID(), tenant: way.name + "/" + c.Name, observed: conformance.Observed{FailedAt: -1}}
			if way.name == ways[3].name {
				run.client = dial(t, killed.address)
			}
			ok = t.Run(c.Name+"/"+way.name, func(t *testing.T) {
				way.send(t, c, run)
				run.observe(t)
				for _, diff := range c.Check(run.observed) {
					t.Error(diff)
				}
			}) && ok
		}
		if ok {
			passed++
		}
	}
	fmt.Printf("conformance: %d/%d\n", passed, len(cases))
}

// killsAt says before which events of a case the server is killed: every one, but for the many cases of this project one in
// four, each case at other places, unless -conformance.kill is given; with -short that holds for all.
func killsAt(index, own int) func(event int) bool {
	everywhere := *killEverywhere || index >= own && !testing.Short()
	return func(event int) bool { return everywhere || (event+index)%4 == 0 }
}

var killEverywhere = flag.Bool("conformance.kill", false, "kill the server between any two events of every stream")

func names(cases []conformance.Case) []string {
	var all []string
	for i := range cases {
		all = append(all, cases[i].Name)
	}
	return all
}

// conformanceCases returns all cases, of which the first own are this project's.
func conformanceCases(t *testing.T) (_ []conformance.Case, own int) {
	cases := must(conformance.Own())(t)
	own = len(cases)
	for _, dir := range []string{"../../shared/conformance", os.Getenv(conformanceEnv)} {
		if _, err := os.Stat(dir); dir != "" && err == nil {
			cases = append(cases, must(conformance.Load(dir))(t)...)
		}
	}
	return cases, own
}

// recorded is one stream on its way through the service.
type recorded struct {
	client   threadsvcv1.ThreadServiceClient
	tenant   string
	thread   string
	observed conformance.Observed
}

func (r *recorded) name() *threadsvcv1.ThreadName {
	return &threadsvcv1.ThreadName{Tenant: r.tenant, ThreadId: r.thread}
}

func (r *recorded) start(t *testing.T, c *conformance.Case) *threadsvcv1.RunHandle {
	req := &threadsvcv1.StartRunRequest{Thread: r.name(), RunId: c.RunID()}
	if c.Input != nil {
		for _, m := range c.Input.Messages {
			req.Messages = append(req.Messages, m)
		}
		req.Tools = c.Input.Tools
	}
	start, input, err := startRun(t.Context(), r.client, req)
	if err != nil {
		t.Fatal(err, detailsOf(err))
	}
	r.observed.Request = input
	return &threadsvcv1.RunHandle{Thread: r.name(), RunId: c.RunID(), FencingToken: start.GetLease().GetFencingToken()}
}

// failed notes the event that was refused.
func (r *recorded) failed(t *testing.T, err error) {
	_, meta := reasonOf(err)
	offset, parseErr := strconv.Atoi(meta["offset"])
	if parseErr != nil {
		t.Fatalf("refused without an offset: %v", err)
	}
	r.observed.FailedAt = offset
}

func sendStream(t *testing.T, c *conformance.Case, run *recorded) {
	handle := run.start(t, c)
	stream := must(run.client.AppendEvents(t.Context()))(t)
	for i, event := range c.Stream {
		req := &threadsvcv1.AppendEventsRequest{Batch: &threadsvcv1.EventBatch{Offset: uint64(i), Events: [][]byte{event}}}
		if i == 0 {
			req.Run = handle
		}
		if err := stream.Send(req); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if resp.GetError() != nil && run.observed.FailedAt < 0 {
			run.failed(t, status.ErrorProto(resp.GetError()))
		}
	}
}

func sendBatch(t *testing.T, c *conformance.Case, run *recorded) {
	run.send(t, run.start(t, c), 0, c.Stream)
}

func sendUnannounced(t *testing.T, c *conformance.Case, run *recorded) {
	if c.Input != nil || c.Expect.Request != nil || c.Expect.RequestAbsentPaths != nil {
		sendBatch(t, c, run)
		return
	}
	run.send(t, &threadsvcv1.RunHandle{Thread: run.name(), RunId: c.RunID()}, 0, c.Stream)
}

func sendKilling(t *testing.T, c *conformance.Case, run *recorded, server *process, kills func(event int) bool) {
	handle := run.start(t, c)
	for i := range c.Stream {
		if kills(i) {
			server.kill()
			server.start()
		}
		if !run.send(t, handle, uint64(i), c.Stream[i:i+1]) {
			return
		}
	}
}

// send appends events by AppendBatch and reports whether they were accepted.
func (r *recorded) send(t *testing.T, handle *threadsvcv1.RunHandle, offset uint64, events []json.RawMessage) bool {
	b := &threadsvcv1.EventBatch{Offset: offset}
	for _, event := range events {
		b.Events = append(b.Events, event)
	}
	_, err := r.client.AppendBatch(t.Context(), &threadsvcv1.AppendBatchRequest{Run: handle, Batch: b})
	if err != nil {
		r.failed(t, err)
	}
	return err == nil
}

// observe reads back what the service made of the stream.
func (r *recorded) observe(t *testing.T) {
	ctx := t.Context()
	thread, err := r.client.GetThread(ctx, &threadsvcv1.GetThreadRequest{Thread: r.name()})
	if err != nil && r.observed.FailedAt == 0 { // refused before anything was written
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	messages := must(r.client.ListMessages(ctx, &threadsvcv1.ListMessagesRequest{Thread: r.name(), PageSize: 1000}))(t)
	for _, m := range messages.GetMessages() {
		r.observed.Messages = append(r.observed.Messages, m)
	}
	warnings := must(r.client.ListWarnings(ctx, &threadsvcv1.ListWarningsRequest{Thread: r.name(), PageSize: 1000}))(t)
	for _, w := range warnings.GetWarnings() {
		if !w.GetFatal() {
			r.observed.Warnings++
		}
	}
	runs := must(r.client.ListRuns(ctx, &threadsvcv1.ListRunsRequest{Thread: r.name()}))(t)
	for _, run := range runs.GetRuns() {
		var reason struct{ Message string }
		if run.GetError() != nil && json.Unmarshal(run.GetError(), &reason) == nil {
			r.observed.RunErrors = append(r.observed.RunErrors, reason.Message)
		}
	}
	r.observed.State = r.state(ctx, t)
	r.observed.Events = r.events(ctx, t)
	if thread.GetThread().GetVersion() == 0 {
		t.Error("the thread has no version")
	}
}

// state reads the state out of the thread's context, which says null by leaving it out.
func (r *recorded) state(ctx context.Context, t *testing.T) json.RawMessage {
	stream := must(r.client.GetContext(ctx, &threadsvcv1.GetContextRequest{Thread: r.name()}))(t)
	text := must(readChunks(func() ([]byte, error) {
		msg, err := stream.Recv()
		return msg.GetInputChunk(), err
	}))(t)
	input := struct{ State json.RawMessage }{State: json.RawMessage("null")}
	if err := json.Unmarshal(text, &input); err != nil {
		t.Fatal(err)
	}
	return input.State
}

func (r *recorded) events(ctx context.Context, t *testing.T) []json.RawMessage {
	stream := must(r.client.ReadLog(ctx, &threadsvcv1.ReadLogRequest{Thread: r.name()}))(t)
	var events []json.RawMessage
	for {
		msg, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return events
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range msg.GetEntries() {
			if e.GetKind() == threadsvcv1.EntryKind_ENTRY_KIND_EVENT {
				events = append(events, e.GetPayload())
			}
		}
	}
}
