package client_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/threadsvc/threadsvc/client"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// An operator amends a thread that an agent writes: the writer notices nothing.
func TestAmendWhileAWriterWrites(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	run := must(c.StartRun(t.Context(), &threadsvcv1.StartRunRequest{Thread: threadName("t1"), RunId: "r1"}))(t)
	w := run.Write(t.Context(), client.WriterOptions{})
	append := func(event string) {
		if err := w.Append(t.Context(), []byte(event)); err != nil {
			t.Fatal(err)
		}
	}
	append(`{"type":"RUN_STARTED","threadId":"t1","runId":"r1"}`)
	for i := range 20 {
		append(`{"type":"CUSTOM","name":"n","value":1}`)
		req := &threadsvcv1.AmendThreadRequest{
			Thread: threadName("t1"), AmendmentId: fmt.Sprint("a", i/2),
			StatePatch: fmt.Appendf(nil, `[{"op":"add","path":"/n%d","value":1}]`, i/2),
		}
		if resp := must(c.AmendThread(t.Context(), req))(t); resp.GetRepeatedRequest() != (i%2 == 1) || resp.GetVersion() == 0 {
			t.Errorf("amendment %d: %v", i, resp)
		}
	}
	append(`{"type":"RUN_FINISHED","threadId":"t1","runId":"r1"}`)
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := must(c.GetContext(t.Context(), threadName("t1")))(t)
	if got.Info.GetVersion() != 1+22+10 || !strings.Contains(string(got.Input), `"n9":1`) {
		t.Errorf("%v %s", got.Info, got.Input)
	}
	_, err := c.AmendThread(t.Context(), &threadsvcv1.AmendThreadRequest{Thread: threadName("t1"), AmendmentId: "a0", StatePatch: []byte(`[]`)})
	if client.ReasonOf(err) != threadsvcv1.ErrorReason_ERROR_REASON_AMENDMENT_EXISTS {
		t.Errorf("%v", err)
	}
}
