package agui_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/threadsvc/threadsvc/agui"
)

// scripted is a thread and its log.
type scripted struct {
	*agui.Thread
	t      *testing.T
	log    []byte
	offset uint64
}

func script(t *testing.T) *scripted {
	return &scripted{Thread: agui.NewThread("t", agui.DefaultLimits()), t: t}
}

func (s *scripted) begin(run, more string) error {
	in, _, v := agui.DecodeInput([]byte(`{"threadId":"t","runId":"`+run+`"`+more+`}`), agui.DefaultLimits())
	if v != nil {
		s.t.Fatal(v)
	}
	applied, err := s.Begin(agui.Start{Input: in, Now: time.Unix(0, 0)})
	s.log, s.offset = append(s.log, applied.Stored...), 0
	return err
}

func (s *scripted) apply(events ...string) {
	s.t.Helper()
	for _, event := range events {
		applied, v := s.Apply(s.offset, []byte(event))
		if v != nil {
			s.t.Fatal(v)
		}
		s.log = append(s.log, applied.Stored...)
		s.offset++
	}
}

func (s *scripted) end(reason string) agui.Applied {
	applied := s.End(reason)
	s.log = append(s.log, applied.Stored...)
	return applied
}

// wantReplay checks that the log gives the same thread.
func (s *scripted) wantReplay() {
	s.t.Helper()
	if wrong := differ(s.Thread, replay(s.t, "t", s.log, agui.DefaultLimits())); wrong != "" {
		s.t.Error(wrong)
	}
}

func (s *scripted) wantMark(a agui.Applied, want agui.Mark) {
	s.t.Helper()
	entries, err := agui.DecodeEntries(a.Stored)
	if err != nil || len(entries) != 1 || entries[0].Kind != agui.KindMark {
		s.t.Fatalf("recorded %v, %v; want a mark", entries, err)
	}
	var mark agui.Mark
	if err := json.Unmarshal(entries[0].Payload, &mark); err != nil || mark != want {
		s.t.Errorf("mark %+v, %v; want %+v", mark, err, want)
	}
}

const (
	startedR1   = `{"type":"RUN_STARTED","threadId":"t","runId":"r1"}`
	interruptR1 = `{"type":"RUN_FINISHED","threadId":"t","runId":"r1","outcome":{"type":"interrupt","interrupts":[{"id":"i1","reason":"approval","toolCallId":"c1"}]}}`
)

func TestRunEndedByRequestIsTruncated(t *testing.T) {
	t.Parallel()
	s := script(t)
	if err := s.begin("r1", ""); err != nil {
		t.Fatal(err)
	}
	s.apply(startedR1, `{"type":"STATE_SNAPSHOT","snapshot":{"a":1}}`, `{"type":"TEXT_MESSAGE_START","messageId":"m"}`)
	applied := s.end("the user left \"\u0000")
	s.wantMark(applied, agui.Mark{Type: agui.MarkRunTruncated, RunID: "r1", Code: agui.RunEndedByRequest, Detail: "the user left \"\u0000"})
	if applied.Ended == nil || applied.Ended.Ending != agui.EndTruncated || applied.RunID != "r1" {
		t.Errorf("applied %+v", applied)
	}
	if !s.Closed() || s.Running() || !s.TouchedByIncompleteRun() || len(s.Messages()) != 1 {
		t.Errorf("closed %v, running %v, touched %v, %d messages", s.Closed(), s.Running(), s.TouchedByIncompleteRun(), len(s.Messages()))
	}
	if again := s.End(""); again.Entries != 0 {
		t.Errorf("ended again: %+v", again)
	}
	s.wantReplay()
	if err := s.begin("r2", ""); err != nil {
		t.Error(err)
	}
	s.wantReplay()
}

// Interrupts that were given up need no answer and take none; the calls suspended with them are leftovers, which are
// reported and can be repaired.
func TestInterruptsThatAreGivenUp(t *testing.T) {
	t.Parallel()
	s := script(t)
	if err := s.begin("r1", ""); err != nil {
		t.Fatal(err)
	}
	s.apply(startedR1, `{"type":"STATE_SNAPSHOT","snapshot":{"a":1}}`,
		`{"type":"TOOL_CALL_START","toolCallId":"c1","toolCallName":"pay"}`, `{"type":"TOOL_CALL_END","toolCallId":"c1"}`, interruptR1)
	if repaired := s.RunInput(true).Repaired; len(repaired) > 0 {
		t.Errorf("repaired %v although an interrupt is open", repaired)
	}
	applied := s.end("")
	s.wantMark(applied, agui.Mark{Type: agui.MarkInterruptsAbandoned, RunID: "r1", Code: agui.RunEndedByRequest})
	if applied.Ended != nil || len(s.OpenInterrupts()) > 0 || !s.Closed() || s.TouchedByIncompleteRun() {
		t.Errorf("ended %v, interrupts %s, closed %v, touched %v", applied.Ended, s.OpenInterrupts(), s.Closed(), s.TouchedByIncompleteRun())
	}
	if repaired := s.RunInput(true).Repaired; !slices.Equal(repaired, []string{"c1"}) || !slices.Equal(s.PendingToolCalls(), []string{"c1"}) {
		t.Errorf("repaired %v, pending %v", repaired, s.PendingToolCalls())
	}
	if again := s.End(""); again.Entries != 0 {
		t.Errorf("ended again: %+v", again)
	}
	s.wantReplay()
	var refused *agui.RefusalError
	if err := replay(t, "t", s.log, agui.DefaultLimits()).End(""); err.Entries != 0 {
		t.Error("the replayed thread has something to end")
	}
	answered := script(t)
	answered.Thread = replay(t, "t", s.log, agui.DefaultLimits())
	if err := answered.begin("r2", `,"resume":[{"interruptId":"i1","status":"cancelled"}]`); !errors.As(err, &refused) || refused.Reason != agui.InterruptsUnknown {
		t.Errorf("answered all the same: %v", err)
	}
	if err := s.begin("r2", ""); err != nil {
		t.Error(err)
	}
	s.wantReplay()
}

func TestNothingToEnd(t *testing.T) {
	t.Parallel()
	s := script(t)
	if a := s.End(""); a.Entries != 0 || s.Version() != 0 {
		t.Errorf("a new thread: %+v", a)
	}
	s.Await("r1")
	if a := s.End(""); a.Entries != 0 {
		t.Errorf("a run that has not begun: %+v", a)
	}
	s.apply(startedR1, `{"type":"RUN_FINISHED","threadId":"t","runId":"r1"}`)
	if a := s.End(""); a.Entries != 0 || s.Closed() {
		t.Errorf("a run that is over: %+v", a)
	}
}
