package service_test

import (
	"fmt"
	"sync"
	"testing"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
)

// BenchmarkFlood streams runs of 200 tokens into 32 threads at once, a hundred events to a message. One operation is one
// event.
func BenchmarkFlood(b *testing.B) {
	const threads, perMessage = 32, 100
	client := newServer(b, service.Config{})
	b.ResetTimer()
	var group sync.WaitGroup
	for i := range threads {
		group.Go(func() {
			if err := flood(b, client, fmt.Sprintf("t%d", i), max(1, b.N/threads), perMessage); err != nil {
				b.Error(err)
			}
		})
	}
	group.Wait()
}

// flood streams about n events of one thread and waits for the last acknowledgement.
func flood(b *testing.B, client threadsvcv1.ThreadServiceClient, thread string, n, perMessage int) error {
	stream, err := client.AppendEvents(b.Context())
	if err != nil {
		return err
	}
	sent := make(chan error, 1)
	total := uint64(0)
	events := make([][]byte, 0, n+210)
	for run := 0; len(events) < n; run++ {
		events = append(events, floodRun(thread, run)...)
	}
	total = uint64(len(events))
	go func() {
		for offset := 0; offset < len(events); offset += perMessage {
			req := &threadsvcv1.AppendEventsRequest{Batch: &threadsvcv1.EventBatch{
				Offset: uint64(offset), Events: events[offset:min(offset+perMessage, len(events))],
			}}
			if offset == 0 {
				req.Run = handle(thread, "r0", 0)
			}
			if err := stream.Send(req); err != nil {
				sent <- err
				return
			}
		}
		sent <- stream.CloseSend()
	}()
	for acked := uint64(0); acked < total; {
		resp, err := stream.Recv()
		if err != nil {
			return err
		}
		if resp.GetError() != nil {
			return fmt.Errorf("in band: %v", resp.GetError())
		}
		acked = resp.GetProgress().GetNextOffset()
	}
	return <-sent
}

func floodRun(thread string, run int) [][]byte {
	events := [][]byte{fmt.Appendf(nil, `{"type":"RUN_STARTED","threadId":"%s","runId":"r%d"}`, thread, run)}
	events = append(events, fmt.Appendf(nil, `{"type":"TEXT_MESSAGE_START","messageId":"m%d","role":"assistant"}`, run))
	for i := range 200 {
		events = append(events, fmt.Appendf(nil, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m%d","delta":"token number %d "}`, run, i))
	}
	events = append(events, fmt.Appendf(nil, `{"type":"STATE_DELTA","delta":[{"op":"add","path":"/n","value":%d}]}`, run))
	events = append(events, fmt.Appendf(nil, `{"type":"TEXT_MESSAGE_END","messageId":"m%d"}`, run))
	return append(events, fmt.Appendf(nil, `{"type":"RUN_FINISHED","threadId":"%s","runId":"r%d"}`, thread, run))
}
