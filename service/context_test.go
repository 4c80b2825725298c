package service_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/agui/aguitest"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// foldCounter counts what Folded finds. With lagging set it says of every fold that the log has gone beyond it, so that
// the service reads contexts the long way.
type foldCounter struct {
	store.Store
	lagging        bool
	current, other atomic.Int64
}

func (c *foldCounter) Folded(ctx context.Context, key store.Key, without ...agui.Role) (*store.Folded, error) {
	folded, err := c.Store.Folded(ctx, key, without...)
	if err != nil {
		return nil, err
	}
	if c.lagging {
		return &store.Folded{Version: folded.Version, Fold: agui.Fold{Version: folded.Version + 1}}, nil
	}
	if folded.Current() {
		c.current.Add(1)
	} else {
		c.other.Add(1)
	}
	return folded, nil
}

// TestContextIsTheSameTheLongWay plays generated streams, with starts, interrupts, activities and runs that never end, and
// compares after every few events what a server answers that reads stored folds with what one answers that loads the
// thread and replays its tail.
func TestContextIsTheSameTheLongWay(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	short := &foldCounter{Store: openStore(t, url)}
	long := &foldCounter{Store: openStore(t, url), lagging: true}
	writer := serveDatabase(t, url, service.Config{})
	clients := []threadsvcv1.ThreadServiceClient{
		dial(t, startNode(t, short, service.Config{}).address), dial(t, startNode(t, long, service.Config{}).address),
	}
	for i := range 25 {
		id := fmt.Sprint("t", i)
		stream := rapid.Custom(func(t *rapid.T) []aguitest.Step {
			return aguitest.Stream(t, aguitest.Options{ThreadID: id, Faults: i % 3})
		})
		p := player{client: writer, thread: id}
		for n, step := range stream.Example(i) {
			p.play(t.Context(), step)
			if step.Event == nil || n%5 == 0 {
				sameContext(t, clients, id)
			}
		}
		sameContext(t, clients, id)
	}
	if short.current.Load() < 25 || short.other.Load() < 25 {
		t.Errorf("%d folds were up to date and %d were not", short.current.Load(), short.other.Load())
	}
}

// player sends the steps of a generated stream to a server. What is refused is left out.
type player struct {
	client threadsvcv1.ThreadServiceClient
	thread string
	run    *threadsvcv1.RunHandle
	offset uint64
}

func (p *player) play(ctx context.Context, step aguitest.Step) {
	switch {
	case step.Input != nil:
		in, _, v := agui.DecodeInput(step.Input, agui.DefaultLimits())
		if v != nil {
			return
		}
		req := &threadsvcv1.StartRunRequest{
			Thread: threadName(p.thread), RunId: in.RunID, Tools: in.Tools, Context: in.Context,
			ForwardedProps: in.ForwardedProps, Resume: in.Resume, Messages: elements(in.Messages),
			Policy:              threadsvcv1.ActiveRunPolicy_ACTIVE_RUN_POLICY_TAKE_OVER,
			UnansweredToolCalls: threadsvcv1.UnansweredToolCalls_UNANSWERED_TOOL_CALLS_ALLOW,
		}
		if in.State != nil {
			req.StateChange = &threadsvcv1.StartRunRequest_State{State: in.State}
		}
		start, _, err := startRun(ctx, p.client, req)
		if err == nil {
			p.run, p.offset = handle(p.thread, in.RunID, start.GetLease().GetFencingToken()), 0
		}
	case step.Await != "":
		p.run, p.offset = handle(p.thread, step.Await, 0), 0
	case step.Event != nil && p.run != nil:
		if progress, err := appendBatch(ctx, p.client, p.run, p.offset, string(step.Event)); err == nil {
			p.offset = progress.GetNextOffset()
		}
	}
}

func elements(list agui.Value) (all [][]byte) {
	var texts []json.RawMessage
	if json.Unmarshal(list, &texts) != nil {
		return nil
	}
	for _, text := range texts {
		all = append(all, text)
	}
	return all
}

func sameContext(t *testing.T, clients []threadsvcv1.ThreadServiceClient, id string) {
	t.Helper()
	var infos [2]*threadsvcv1.ContextInfo
	var texts [2]string
	var errs [2]error
	for i, client := range clients {
		info, text, err := getContext(t.Context(), client, id)
		infos[i], texts[i], errs[i] = info, string(text), err
	}
	if status.Code(errs[0]) != status.Code(errs[1]) || !proto.Equal(infos[0], infos[1]) || texts[0] != texts[1] {
		t.Fatalf("the stored fold gives\n%v %s %v\nthe long way\n%v %s %v", infos[0], texts[0], errs[0], infos[1], texts[1], errs[1])
	}
	if errs[0] == nil && infos[0].GetInputSize() != uint64(len(texts[0])) {
		t.Fatalf("the input has %d bytes and is said to have %d", len(texts[0]), infos[0].GetInputSize())
	}
}
