// Tour records one run of an agent into a threadsvc that listens on 127.0.0.1:8980, and reads back what the next run
// would be given. Start the server first: go run ./cmd/threadsvc serve
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := tour(ctx, "127.0.0.1:8980"); err != nil {
		log.Fatal(err)
	}
}

func tour(ctx context.Context, address string) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	threads := threadsvcv1.NewThreadServiceClient(conn)

	// A run starts with what the user said. The answer is the lease, and the RunAgentInput to give to the agent.
	thread := &threadsvcv1.ThreadName{ThreadId: "tour"}
	runID := fmt.Sprintf("run-%d", time.Now().UnixNano())
	starting, err := threads.StartRun(ctx, &threadsvcv1.StartRunRequest{
		Thread: thread, RunId: runID,
		Messages: [][]byte{[]byte(`{"id":"u-` + runID + `","role":"user","content":"What is on my list?"}`)},
	})
	if err != nil {
		return err
	}
	first, err := starting.Recv()
	if err != nil {
		return err
	}

	// The agent's events go in as they come. The acknowledgement means: committed.
	done, err := threads.AppendBatch(ctx, &threadsvcv1.AppendBatchRequest{
		Run: &threadsvcv1.RunHandle{Thread: thread, RunId: runID, FencingToken: first.GetStart().GetLease().GetFencingToken()},
		Batch: &threadsvcv1.EventBatch{Offset: 0, Events: [][]byte{
			[]byte(`{"type":"RUN_STARTED","threadId":"tour","runId":"` + runID + `"}`),
			[]byte(`{"type":"STATE_DELTA","delta":[{"op":"add","path":"/seen","value":"` + runID + `"}]}`),
			[]byte(`{"type":"TEXT_MESSAGE_START","messageId":"a-` + runID + `","role":"assistant"}`),
			[]byte(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"a-` + runID + `","delta":"Milk and "}`),
			[]byte(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"a-` + runID + `","delta":"bread."}`),
			[]byte(`{"type":"TEXT_MESSAGE_END","messageId":"a-` + runID + `"}`),
			[]byte(`{"type":"RUN_FINISHED","threadId":"tour","runId":"` + runID + `"}`),
		}},
	})
	if err != nil {
		return err
	}
	fmt.Printf("version %d is durable; the stream goes on at offset %d\n", done.GetProgress().GetVersion(), done.GetProgress().GetNextOffset())
	return printContext(ctx, threads, thread)
}

// printContext prints what the next run would be given.
func printContext(ctx context.Context, threads threadsvcv1.ThreadServiceClient, thread *threadsvcv1.ThreadName) error {
	reading, err := threads.GetContext(ctx, &threadsvcv1.GetContextRequest{Thread: thread})
	if err != nil {
		return err
	}
	for {
		part, err := reading.Recv()
		if errors.Is(err, io.EOF) {
			fmt.Println()
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Print(string(part.GetInputChunk()))
	}
}
