package client_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/threadsvc/threadsvc/client"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// exampleAddress is that of a server for the examples.
var exampleAddress string

// An agent's answer goes into its thread as it comes.
func Example() {
	ctx := context.Background()
	threads, _ := client.Dial(exampleAddress, client.Config{}, insecurely)
	defer threads.Close()
	run, err := threads.StartRun(ctx, &threadsvcv1.StartRunRequest{
		Thread: &threadsvcv1.ThreadName{ThreadId: "shopping"}, RunId: "run-1",
		Messages: [][]byte{[]byte(`{"id":"u1","role":"user","content":"What is on my list?"}`)},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	w := run.Write(ctx, client.WriterOptions{})
	err = w.AppendSSE(ctx, agent(run.Input))
	if closed := w.Close(ctx); err != nil || closed != nil {
		fmt.Println(err, closed)
		return
	}
	for r, err := range threads.ReadLog(ctx, run.Handle.Thread, 1) {
		fmt.Println(r.Entry.GetVersion(), r.Entry.GetKind(), err)
	}
	// Output:
	// 1 ENTRY_KIND_INPUT <nil>
	// 2 ENTRY_KIND_EVENT <nil>
	// 3 ENTRY_KIND_EVENT <nil>
	// 4 ENTRY_KIND_EVENT <nil>
}

// agent stands for the body of an agent's answer.
func agent([]byte) *strings.Reader {
	return strings.NewReader(sse(
		runStarted("shopping", "run-1"), `{"type":"STATE_SNAPSHOT","snapshot":{"seen":true}}`, runFinished("shopping", "run-1"),
	))
}
