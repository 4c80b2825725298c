package service_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
)

// recordWithDelay sends events of a run nobody started, one to a message, and returns when each was acknowledged.
func recordWithDelay(t *testing.T, client threadsvcv1.ThreadServiceClient, thread string, delay time.Duration, events ...string) []time.Time {
	t.Helper()
	stream, err := client.AppendEvents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, event := range events {
		req := &threadsvcv1.AppendEventsRequest{Batch: &threadsvcv1.EventBatch{Offset: uint64(i), Events: [][]byte{[]byte(event)}}}
		if i == 0 {
			req.Run, req.AckDelay = handle(thread, "r1", 0), durationpb.New(delay)
		}
		if err := stream.Send(req); err != nil {
			t.Fatal(err)
		}
	}
	acked := make([]time.Time, len(events))
	for i := range events {
		resp, err := stream.Recv()
		if err != nil || resp.GetError() != nil || resp.GetProgress().GetNextOffset() != uint64(i+1) {
			t.Fatalf("answer %d is %v, %v", i, resp, err)
		}
		acked[i] = time.Now()
	}
	return acked
}

// A producer that allows a delay is acknowledged after it, and not before, with everything that came meanwhile.
func TestAckDelay(t *testing.T) {
	t.Parallel()
	client := newServer(t, service.Config{})
	const delay = 400 * time.Millisecond
	began := time.Now()
	acked := recordWithDelay(t, client, "t1", delay, runStarted("t1", "r1"), textStart("m"), textDelta("m", "a"))
	for i, at := range acked {
		if i == 0 && at.Sub(began) < delay {
			t.Errorf("acknowledged after %v, want %v or more", at.Sub(began), delay)
		}
		if at.Before(acked[0]) {
			t.Errorf("event %d was acknowledged before the first", i)
		}
	}
}

// The delay is bounded, and named once.
func TestAckDelayRefused(t *testing.T) {
	t.Parallel()
	client := newServer(t, service.Config{})
	first := func(delay *durationpb.Duration) *threadsvcv1.AppendEventsRequest {
		return &threadsvcv1.AppendEventsRequest{Run: handle("t1", "r1", 0), AckDelay: delay}
	}
	for name, requests := range map[string][]*threadsvcv1.AppendEventsRequest{
		"negative":  {first(durationpb.New(-1))},
		"too long":  {first(durationpb.New(time.Second + 1))},
		"no number": {first(&durationpb.Duration{Seconds: 1, Nanos: -1})},
		"again":     {first(durationpb.New(1)), {AckDelay: durationpb.New(1)}},
	} {
		stream, err := client.AppendEvents(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, req := range requests {
			_ = stream.Send(req) // the stream may have ended already
		}
		_, err = stream.Recv()
		if meta := wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST"); meta["field"] != "ack_delay" {
			t.Errorf("%s: %v", name, meta)
		}
	}
}
