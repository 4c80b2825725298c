package service_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/threadsvc/threadsvc/agui"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
)

// calls are all the calls that name a thread, each with nothing else wrong about it.
var calls = map[string]func(context.Context, threadsvcv1.ThreadServiceClient, *threadsvcv1.ThreadName) error{
	"StartRun": func(ctx context.Context, c threadsvcv1.ThreadServiceClient, name *threadsvcv1.ThreadName) error {
		_, _, err := startRun(ctx, c, &threadsvcv1.StartRunRequest{Thread: name, RunId: "r"})
		return err
	},
	"AppendBatch": func(ctx context.Context, c threadsvcv1.ThreadServiceClient, name *threadsvcv1.ThreadName) error {
		_, err := c.AppendBatch(ctx, &threadsvcv1.AppendBatchRequest{Run: &threadsvcv1.RunHandle{Thread: name, RunId: "r"}, Batch: batch(0)})
		return err
	},
	"AppendEvents": func(ctx context.Context, c threadsvcv1.ThreadServiceClient, name *threadsvcv1.ThreadName) error {
		stream, err := c.AppendEvents(ctx)
		if err != nil {
			return err
		}
		_ = stream.Send(&threadsvcv1.AppendEventsRequest{Run: &threadsvcv1.RunHandle{Thread: name, RunId: "r"}})
		_ = stream.CloseSend()
		if _, err = stream.Recv(); errors.Is(err, io.EOF) {
			return nil
		}
		return err
	},
	"GetContext": func(ctx context.Context, c threadsvcv1.ThreadServiceClient, name *threadsvcv1.ThreadName) error {
		stream, err := c.GetContext(ctx, &threadsvcv1.GetContextRequest{Thread: name})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	},
	"CreateThread": func(ctx context.Context, c threadsvcv1.ThreadServiceClient, name *threadsvcv1.ThreadName) error {
		_, err := c.CreateThread(ctx, &threadsvcv1.CreateThreadRequest{Thread: name})
		return err
	},
	"GetThread": func(ctx context.Context, c threadsvcv1.ThreadServiceClient, name *threadsvcv1.ThreadName) error {
		_, err := c.GetThread(ctx, &threadsvcv1.GetThreadRequest{Thread: name})
		return err
	},
	"UpdateThread": func(ctx context.Context, c threadsvcv1.ThreadServiceClient, name *threadsvcv1.ThreadName) error {
		_, err := c.UpdateThread(ctx, &threadsvcv1.UpdateThreadRequest{Thread: name})
		return err
	},
	"DeleteThread": func(ctx context.Context, c threadsvcv1.ThreadServiceClient, name *threadsvcv1.ThreadName) error {
		_, err := c.DeleteThread(ctx, &threadsvcv1.DeleteThreadRequest{Thread: name})
		return err
	},
	"ListMessages": func(ctx context.Context, c threadsvcv1.ThreadServiceClient, name *threadsvcv1.ThreadName) error {
		_, err := c.ListMessages(ctx, &threadsvcv1.ListMessagesRequest{Thread: name})
		return err
	},
	"ListRuns": func(ctx context.Context, c threadsvcv1.ThreadServiceClient, name *threadsvcv1.ThreadName) error {
		_, err := c.ListRuns(ctx, &threadsvcv1.ListRunsRequest{Thread: name})
		return err
	},
	"ListWarnings": func(ctx context.Context, c threadsvcv1.ThreadServiceClient, name *threadsvcv1.ThreadName) error {
		_, err := c.ListWarnings(ctx, &threadsvcv1.ListWarningsRequest{Thread: name})
		return err
	},
	"ReadLog": func(ctx context.Context, c threadsvcv1.ThreadServiceClient, name *threadsvcv1.ThreadName) error {
		stream, err := c.ReadLog(ctx, &threadsvcv1.ReadLogRequest{Thread: name})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	},
}

func TestCallsJudgeTheNameOfTheThread(t *testing.T) {
	t.Parallel()
	client := newServer(t, service.Config{})
	long := strings.Repeat("i", agui.MaxIDBytes+1)
	for method, call := range calls {
		for field, name := range map[string]*threadsvcv1.ThreadName{
			"thread":           nil,
			"thread.thread_id": {Tenant: "a"},
			"thread.tenant":    {Tenant: long, ThreadId: "a"},
		} {
			err := call(t.Context(), client, name)
			meta := wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST")
			if strings.TrimPrefix(meta["field"], "run.") != field || meta["rule"] == "" {
				t.Errorf("%s without %s: %v", method, field, meta)
			}
			checkError(t, err)
		}
	}
}

func TestCallsOnAThreadNobodyMade(t *testing.T) {
	t.Parallel()
	client := newServer(t, service.Config{})
	converse(t, client, "t1").record("r")
	makes := map[string]bool{"StartRun": true, "CreateThread": true, "AppendEvents": true, "AppendBatch": true}
	for method, call := range calls {
		if makes[method] {
			continue
		}
		for _, name := range []*threadsvcv1.ThreadName{{Tenant: "test", ThreadId: "nobody"}, {Tenant: "other", ThreadId: "t1"}, {ThreadId: "t1"}} {
			err := call(t.Context(), client, name)
			if reason, _ := reasonOf(err); reason != "THREAD_NOT_FOUND" {
				t.Errorf("%s of %v: %v, want THREAD_NOT_FOUND", method, name, err)
			}
		}
	}
	err := calls["AppendBatch"](t.Context(), client, threadName("nobody"))
	wantReason(t, err, codes.NotFound, "RUN_NOT_FOUND")
	_, err = appendBatch(t.Context(), client, handle("t1", "r9", 7), 0, runStarted("t1", "r9"))
	wantReason(t, err, codes.NotFound, "RUN_NOT_FOUND")
	_, err = appendBatch(t.Context(), client, handle("nobody", "r9", 0), 3, runStarted("nobody", "r9"))
	wantReason(t, err, codes.NotFound, "THREAD_NOT_FOUND") // it may have been deleted
	converse(t, client, "nobody").stillWorks()
}

func TestTokensThatAreNotTheLeases(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	c.open("r1")
	for _, token := range []uint64{0, 2, 1 << 63, 1<<64 - 1} {
		_, err := appendBatch(t.Context(), c.client, handle("t1", "r1", token), 1, textStart("m"))
		wantReason(t, err, codes.FailedPrecondition, "LEASE_LOST")
	}
	_, err := appendBatch(t.Context(), c.client, handle("t1", "another", 0), 0, runStarted("t1", "another"))
	wantReason(t, err, codes.FailedPrecondition, "RUN_ACTIVE")
	_, err = c.client.AppendBatch(t.Context(), &threadsvcv1.AppendBatchRequest{Batch: batch(0)})
	if meta := wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST"); meta["field"] != "run" {
		t.Errorf("without a run: %v", meta)
	}
	_, err = appendBatch(t.Context(), c.client, handle("t1", "", 1), 1)
	if meta := wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST"); meta["field"] != "run.run_id" {
		t.Errorf("without a run id: %v", meta)
	}
	_, err = appendBatch(t.Context(), c.client, c.run, 1<<63, textStart("m"))
	wantReason(t, err, codes.OutOfRange, "OFFSET_GAP")
	_, err = appendBatch(t.Context(), c.client, c.run, 1<<64-1, textStart("m"))
	wantReason(t, err, codes.OutOfRange, "OFFSET_GAP")
	c.append(runFinished("t1", "r1"))
	c.stillWorks()
}

func TestPagesNobodyOffered(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	c.record("r1", text("m", "x")...)
	for what, list := range c.lists() {
		for _, token := range []string{"x", "hunter2", "////", strings.Repeat("A", 100_000), "\x00", base64.RawURLEncoding.EncodeToString([]byte("1"))} {
			err := list(0, token)
			if meta := wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST"); meta["field"] != "page_token" {
				t.Errorf("%s with token %.20q: %v", what, token, meta)
			}
			checkError(t, err)
		}
		for size := 1; size <= 32; size++ { // a forged token finds something or nothing
			for _, fill := range []string{"\x00", "\x7f", "\xff"} {
				err := list(1, base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat(fill, size))))
				if reason, _ := reasonOf(err); err != nil && reason != "INVALID_REQUEST" {
					t.Errorf("%s with a token of %d times %q: %v", what, size, fill, err)
				}
			}
		}
		for _, size := range []int32{-1, -1 << 31} {
			err := list(size, "")
			if meta := wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST"); meta["field"] != "page_size" {
				t.Errorf("%s with page size %d: %v", what, size, meta)
			}
		}
		if err := list(1<<31-1, ""); err != nil {
			t.Errorf("%s with a huge page size: %v", what, err)
		}
	}
	for _, metadata := range []map[string]string{{"a": "\x00"}, {"a\x00": ""}, {"a": strings.Repeat("x", agui.MaxIDBytes+1)}} {
		_, err := c.client.ListThreads(t.Context(), &threadsvcv1.ListThreadsRequest{Tenant: "test", Metadata: metadata})
		if meta := wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST"); meta["field"] != "metadata" {
			t.Errorf("by %.20v: %v", metadata, meta)
		}
	}
	_, err := c.client.ListThreads(t.Context(), &threadsvcv1.ListThreadsRequest{Tenant: "\x00"})
	wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST")
}

func TestLogFromAnyVersion(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	c.record("r1", text("m", "x")...)
	for from, want := range map[uint64]int{0: 6, 1: 6, 2: 5, 6: 1, 7: 0, 1 << 63: 0, 1<<64 - 1: 0} {
		entries, _, err := readLog(t.Context(), c.client, "t1", from)
		if err != nil || len(entries) != want {
			t.Errorf("from %d: %d entries, %v; want %d", from, len(entries), err, want)
		}
	}
}

func TestThreadsThatAreRefused(t *testing.T) {
	t.Parallel()
	client := newServer(t, smallLimits())
	for i, tc := range []struct{ state, message, reason, path string }{
		{`null`, "", "INVALID_INPUT", "/state"},
		{secret, "", "INVALID_INPUT", "/state"},
		{`1,"messages":[]`, "", "INVALID_INPUT", "/state"},
		{`1`, `{"id":"","role":"user","content":"hunter2"}`, "INVALID_INPUT", "/messages/0/id"},
		{`1`, `{"id":"a","role":"user"}`, "INVALID_INPUT", "/messages/0/content"},
		{`"` + strings.Repeat("x", 150_000) + `"`, "", "LIMIT_EXCEEDED", "/state"},
		{`"` + strings.Repeat("x", 300_000) + `"`, "", "LIMIT_EXCEEDED", ""},
	} {
		req := &threadsvcv1.CreateThreadRequest{State: []byte(tc.state)}
		if tc.message != "" {
			req.Messages = [][]byte{[]byte(tc.message)}
		}
		id := fmt.Sprint("t", i)
		req.Thread = threadName(id)
		_, err := client.CreateThread(t.Context(), req)
		if reason, meta := reasonOf(err); reason != tc.reason || meta["path"] != tc.path || meta["code"] == "" {
			t.Errorf("%d: %v %s, want %s at %q", i, err, detailsOf(err), tc.reason, tc.path)
		}
		checkError(t, err)
		if _, err := client.GetThread(t.Context(), &threadsvcv1.GetThreadRequest{Thread: threadName(id)}); err == nil {
			t.Errorf("%d: the thread was made", i)
		}
		converse(t, client, id).stillWorks()
	}
}

// lists are all the lists, by what they list.
func (c *conversation) lists() map[string]func(size int32, token string) error {
	ctx, name := c.t.Context(), threadName(c.thread)
	return map[string]func(size int32, token string) error{
		"threads": func(size int32, token string) error {
			_, err := c.client.ListThreads(ctx, &threadsvcv1.ListThreadsRequest{Tenant: "test", PageSize: size, PageToken: token})
			return err
		},
		"messages": func(size int32, token string) error {
			_, err := c.client.ListMessages(ctx, &threadsvcv1.ListMessagesRequest{Thread: name, PageSize: size, PageToken: token})
			return err
		},
		"runs": func(size int32, token string) error {
			_, err := c.client.ListRuns(ctx, &threadsvcv1.ListRunsRequest{Thread: name, PageSize: size, PageToken: token})
			return err
		},
		"warnings": func(size int32, token string) error {
			_, err := c.client.ListWarnings(ctx, &threadsvcv1.ListWarningsRequest{Thread: name, PageSize: size, PageToken: token})
			return err
		},
	}
}
