package agui_test

import (
	"errors"
	"testing"
	"time"

	"github.com/threadsvc/threadsvc/agui"
)

// A run that was to answer interrupts and got no ordinary end leaves them to be answered again, or not.
func TestResumeAgainAfterALostRun(t *testing.T) {
	t.Parallel()
	begin := func(th *agui.Thread, run, resume string) error {
		text := `{"threadId":"t","runId":"` + run + `"` + resume + `}`
		in, _, v := agui.DecodeInput([]byte(text), agui.DefaultLimits())
		if v != nil {
			t.Fatal(v)
		}
		_, err := th.Begin(agui.Start{Input: in, Now: time.Unix(0, 0)})
		return err
	}
	interrupted := func() *agui.Thread {
		th := agui.NewThread("t", agui.DefaultLimits())
		if err := begin(th, "r1", ""); err != nil {
			t.Fatal(err)
		}
		for i, event := range []string{
			`{"type":"RUN_STARTED","threadId":"t","runId":"r1"}`,
			`{"type":"TOOL_CALL_START","toolCallId":"c1","toolCallName":"pay"}`,
			`{"type":"TOOL_CALL_END","toolCallId":"c1"}`,
			`{"type":"RUN_FINISHED","threadId":"t","runId":"r1","outcome":{"type":"interrupt","interrupts":[{"id":"i1","reason":"approval"}]}}`,
		} {
			if _, v := th.Apply(uint64(i), []byte(event)); v != nil {
				t.Fatal(v)
			}
		}
		return th
	}
	const answer = `,"resume":[{"interruptId":"i1","status":"resolved"}]`
	lost := func() *agui.Thread {
		th := interrupted()
		if err := begin(th, "r2", answer); err != nil {
			t.Fatal(err)
		}
		th.Truncate(agui.LeaseExpired)
		return th
	}
	again := lost()
	if err := begin(again, "r3", answer); err != nil {
		t.Errorf("answered again: %v", err)
	}
	if repaired := again.RunInput(true).Repaired; len(repaired) > 0 {
		t.Errorf("the call that waits for the answer was repaired: %v", repaired)
	}
	if err := begin(lost(), "r3", ""); err != nil {
		t.Errorf("not answered again: %v", err)
	}
	over := lost()
	if err := begin(over, "r3", ""); err != nil {
		t.Fatal(err)
	}
	over.Truncate(agui.LeaseExpired)
	var refused *agui.RefusalError
	if err := begin(over, "r4", answer); !errors.As(err, &refused) || refused.Reason != agui.InterruptsUnknown {
		t.Errorf("answered after a run went on without: %v, want %s", err, agui.InterruptsUnknown)
	}
}
