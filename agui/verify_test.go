package agui_test

import (
	"testing"

	"github.com/threadsvc/threadsvc/agui"
)

// TestSequence has events within run r1, the last of which is refused for a reason; none means that all are accepted.
func TestSequence(t *testing.T) {
	t.Parallel()
	text := `{"type":"TEXT_MESSAGE_START","messageId":"m"}`
	textOfS := `{"type":"TEXT_MESSAGE_START","messageId":"m","subagentRunId":"s"}`
	call := `{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"n"}`
	re := `{"type":"REASONING_MESSAGE_START","messageId":"m","role":"reasoning"}`
	span := `{"type":"REASONING_START","messageId":"m"}`
	step := `{"type":"STEP_STARTED","stepName":"s"}`
	sub := `{"type":"SUBAGENT_STARTED","subagentRunId":"s","name":"n"}`
	failed := `{"type":"RUN_ERROR","message":"no"}`
	again := `{"type":"RUN_STARTED","threadId":"t","runId":"r2"}`
	for name, c := range map[string]struct {
		events []string
		want   agui.Code
	}{
		"run started twice":         {[]string{again}, agui.SequenceRunActive},
		"another run after the end": {[]string{runFinished, again}, ""},
		"another run after failure": {[]string{failed, again}, ""},
		"late failure":              {[]string{runFinished, failed}, ""},
		"late failure twice":        {[]string{runFinished, failed, failed}, agui.SequenceRunOver},
		"event after the end":       {[]string{runFinished, text}, agui.SequenceRunOver},
		"end after the end":         {[]string{runFinished, runFinished}, agui.SequenceRunOver},
		"event after failure":       {[]string{failed, `{"type":"RAW","event":1}`}, agui.SequenceRunOver},
		"end after failure":         {[]string{failed, runFinished}, agui.SequenceRunOver},
		"end of another run":        {[]string{`{"type":"RUN_FINISHED","threadId":"t","runId":"r2"}`}, agui.RunMismatch},
		"end on another thread":     {[]string{`{"type":"RUN_FINISHED","threadId":"u","runId":"r1"}`}, agui.ThreadMismatch},
		"start on another thread":   {[]string{runFinished, `{"type":"RUN_STARTED","threadId":"u","runId":"r2"}`}, agui.ThreadMismatch},

		"text content unopened":      {[]string{`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":""}`}, agui.SequenceNotOpen},
		"text end unopened":          {[]string{`{"type":"TEXT_MESSAGE_END","messageId":"m"}`}, agui.SequenceNotOpen},
		"text opened twice":          {[]string{text, text}, agui.SequenceAlreadyOpen},
		"text ended twice":           {[]string{text, `{"type":"TEXT_MESSAGE_END","messageId":"m"}`, `{"type":"TEXT_MESSAGE_END","messageId":"m"}`}, agui.SequenceNotOpen},
		"text open at the end":       {[]string{text, runFinished}, agui.SequenceStillOpen},
		"text reopened":              {[]string{text, `{"type":"TEXT_MESSAGE_END","messageId":"m"}`, text}, ""},
		"args unopened":              {[]string{`{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":""}`}, agui.SequenceNotOpen},
		"call end unopened":          {[]string{`{"type":"TOOL_CALL_END","toolCallId":"c"}`}, agui.SequenceNotOpen},
		"call opened twice":          {[]string{call, call}, agui.SequenceAlreadyOpen},
		"call open at the end":       {[]string{call, runFinished}, agui.SequenceStillOpen},
		"reasoning content unopened": {[]string{`{"type":"REASONING_MESSAGE_CONTENT","messageId":"m","delta":""}`}, agui.SequenceNotOpen},
		"reasoning opened twice":     {[]string{re, re}, agui.SequenceAlreadyOpen},
		"reasoning open at the end":  {[]string{re, runFinished}, agui.SequenceStillOpen},
		"span opened twice":          {[]string{span, span}, agui.SequenceAlreadyOpen},
		"span end unopened":          {[]string{`{"type":"REASONING_END","messageId":"m"}`}, agui.SequenceNotOpen},
		"span open at the end":       {[]string{span, runFinished}, agui.SequenceStillOpen},
		"a span opens no message":    {[]string{span, `{"type":"REASONING_MESSAGE_CONTENT","messageId":"m","delta":""}`}, agui.SequenceNotOpen},
		"one id for each kind":       {[]string{span, re, text, `{"type":"TOOL_CALL_START","toolCallId":"m","toolCallName":"n"}`}, ""},
		"a result opens no message":  {[]string{`{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":""}`, `{"type":"TEXT_MESSAGE_END","messageId":"m"}`}, agui.SequenceNotOpen},

		"step started twice":         {[]string{step, step}, agui.SequenceAlreadyOpen},
		"step started twice, spelt":  {[]string{step, `{"type":"STEP_STARTED","stepName":"\u0073"}`}, agui.SequenceAlreadyOpen},
		"step finished unopened":     {[]string{`{"type":"STEP_FINISHED","stepName":"s"}`}, agui.SequenceNotOpen},
		"step of another owner":      {[]string{step, `{"type":"STEP_FINISHED","stepName":"s","subagentRunId":"s"}`}, agui.SequenceNotOpen},
		"same step of another owner": {[]string{step, `{"type":"STEP_STARTED","stepName":"s","subagentRunId":"s"}`}, ""},
		"step open at the end":       {[]string{step, runFinished}, agui.SequenceStillOpen},

		"subagent twice":              {[]string{sub, sub}, agui.SubagentReused},
		"subagent again":              {[]string{sub, `{"type":"SUBAGENT_FINISHED","subagentRunId":"s"}`, sub}, agui.SubagentReused},
		"subagent end unannounced":    {[]string{`{"type":"SUBAGENT_FINISHED","subagentRunId":"s"}`}, agui.SubagentUnknown},
		"subagent error unannounced":  {[]string{`{"type":"SUBAGENT_ERROR","subagentRunId":"s","message":"no"}`}, agui.SubagentUnknown},
		"subagent ended twice":        {[]string{sub, `{"type":"SUBAGENT_ERROR","subagentRunId":"s","message":"no"}`, `{"type":"SUBAGENT_FINISHED","subagentRunId":"s"}`}, agui.SubagentUnknown},
		"subagent open at the end":    {[]string{sub, runFinished}, agui.SequenceStillOpen},
		"subagent of nobody":          {[]string{`{"type":"SUBAGENT_STARTED","subagentRunId":"s","name":"n","parentSubagentRunId":"p"}`}, agui.SubagentUnknown},
		"subagent of itself":          {[]string{`{"type":"SUBAGENT_STARTED","subagentRunId":"s","name":"n","parentSubagentRunId":"s"}`}, agui.SubagentUnknown},
		"subagent of an ended one":    {[]string{sub, `{"type":"SUBAGENT_FINISHED","subagentRunId":"s"}`, `{"type":"SUBAGENT_STARTED","subagentRunId":"u","name":"n","parentSubagentRunId":"s"}`}, ""},
		"attribution unannounced":     {[]string{textOfS, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"","subagentRunId":"s"}`}, ""},
		"untagged continuation":       {[]string{textOfS, `{"type":"TEXT_MESSAGE_END","messageId":"m"}`}, ""},
		"another tag":                 {[]string{textOfS, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"","subagentRunId":"z"}`}, agui.OwnerMismatch},
		"a tag on the parent agent's": {[]string{text, `{"type":"TEXT_MESSAGE_END","messageId":"m","subagentRunId":"s"}`}, agui.OwnerMismatch},
		"reopened by another owner":   {[]string{text, `{"type":"TEXT_MESSAGE_END","messageId":"m"}`, textOfS}, agui.OwnerMismatch},
		"reopened untagged":           {[]string{textOfS, `{"type":"TEXT_MESSAGE_END","messageId":"m"}`, text, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"","subagentRunId":"s"}`}, ""},
		"call of another than parent": {[]string{textOfS, `{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"n","parentMessageId":"m","subagentRunId":"z"}`}, agui.OwnerMismatch},
		"call inherits the owner":     {[]string{textOfS, `{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"n","parentMessageId":"m"}`, `{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"","subagentRunId":"z"}`}, agui.OwnerMismatch},
		"call moved to another owner": {[]string{call, `{"type":"TOOL_CALL_END","toolCallId":"c"}`, textOfS, `{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"n","parentMessageId":"m"}`}, agui.OwnerMismatch},
		"encrypted by another":        {[]string{textOfS, `{"type":"REASONING_ENCRYPTED_VALUE","subtype":"message","entityId":"m","encryptedValue":"","subagentRunId":"z"}`}, agui.OwnerMismatch},
		"activity patched by another": {[]string{`{"type":"ACTIVITY_SNAPSHOT","messageId":"a","activityType":"a","content":{}}`, `{"type":"ACTIVITY_DELTA","messageId":"a","activityType":"a","patch":[],"subagentRunId":"s"}`}, agui.OwnerMismatch},
		"activity taken over":         {[]string{`{"type":"ACTIVITY_SNAPSHOT","messageId":"a","activityType":"a","content":{}}`, `{"type":"ACTIVITY_SNAPSHOT","messageId":"a","activityType":"a","content":{},"subagentRunId":"s"}`, `{"type":"ACTIVITY_DELTA","messageId":"a","activityType":"a","patch":[],"subagentRunId":"s"}`}, ""},
		"activity not taken over":     {[]string{`{"type":"ACTIVITY_SNAPSHOT","messageId":"a","activityType":"a","content":{}}`, `{"type":"ACTIVITY_SNAPSHOT","messageId":"a","activityType":"a","content":{},"replace":false,"subagentRunId":"s"}`, `{"type":"ACTIVITY_DELTA","messageId":"a","activityType":"a","patch":[],"subagentRunId":"s"}`}, agui.OwnerMismatch},
		"a snapshot establishes":      {[]string{`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"m","role":"assistant","content":"","subagentRunId":"s"}]}`, `{"type":"TEXT_MESSAGE_START","messageId":"m","subagentRunId":"z"}`}, agui.OwnerMismatch},
		"owners end with the run":     {[]string{text, `{"type":"TEXT_MESSAGE_END","messageId":"m"}`, runFinished, again, textOfS}, ""},
		"open items end with failure": {[]string{text, call, step, sub, failed, again, text, call, step, sub}, ""},

		"interrupt ids repeated":   {[]string{`{"type":"RUN_FINISHED","threadId":"t","runId":"r1","outcome":{"type":"interrupt","interrupts":[{"id":"i","reason":""},{"id":"i","reason":""}]}}`}, agui.InterruptRepeated},
		"no interrupts":            {[]string{`{"type":"RUN_FINISHED","threadId":"t","runId":"r1","outcome":{"type":"interrupt","interrupts":[]}}`}, agui.FieldMalformed},
		"thinking ended unstarted": {[]string{`{"type":"THINKING_END"}`}, agui.SequenceNotOpen},
		"thinking nested":          {[]string{`{"type":"THINKING_START"}`, `{"type":"THINKING_TEXT_MESSAGE_START"}`, `{"type":"THINKING_TEXT_MESSAGE_CONTENT","delta":""}`, `{"type":"THINKING_TEXT_MESSAGE_END"}`, `{"type":"THINKING_END"}`, runFinished}, ""},
		"thinking left open":       {[]string{`{"type":"THINKING_START"}`, runFinished}, agui.SequenceStillOpen},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			th := started(t)
			if c.want == "" {
				mustApply(t, th, c.events...)
				return
			}
			last := len(c.events) - 1
			mustApply(t, th, c.events[:last]...)
			refused(t, th, c.events[last], c.want)
		})
	}
}

// TestFirstEvent is about the beginning of streams, announced and not.
func TestFirstEvent(t *testing.T) {
	t.Parallel()
	th := agui.NewThread("t", agui.DefaultLimits())
	th.Await("r1")
	refused(t, th, `{"type":"CUSTOM","name":"n","value":1}`, agui.SequenceNotStarted)
	refused(t, th, `{"type":"RUN_STARTED","threadId":"t","runId":"r2"}`, agui.RunMismatch)
	if v := (&agui.Violation{Code: agui.RunMismatch}); th.Fail(0, v).Entries != 0 {
		t.Error("a run that never opened was closed")
	}
	a, v := th.Apply(0, []byte(runStarted))
	if v != nil || a.Opened == nil || a.Opened.RunID != "r1" {
		t.Errorf("opened %+v, %v", a.Opened, v)
	}
	begun := agui.NewThread("t", agui.DefaultLimits())
	begin(t, begun, `{"threadId":"t","runId":"r1"}`)
	if a, v = begun.Apply(0, []byte(runStarted)); v != nil || a.Opened != nil {
		t.Errorf("an announced run was opened again: %+v, %v", a.Opened, v)
	}
}

// TestErrorFirst is a RUN_ERROR that comes before any RUN_STARTED: the log says which run failed.
func TestErrorFirst(t *testing.T) {
	t.Parallel()
	for name, before := range map[string][]string{
		"on a new thread": nil,
		"after a run":     {runStarted, `{"type":"STATE_SNAPSHOT","snapshot":{"a":1}}`, runFinished},
		"after a failure": {runStarted, `{"type":"RUN_ERROR","message":"first"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			th, log := agui.NewThread("t", agui.DefaultLimits()), []byte(nil)
			for i, event := range before {
				a, v := th.Apply(uint64(i), []byte(event))
				if v != nil {
					t.Fatal(v)
				}
				log = append(log, a.Stored...)
			}
			th.Await("r9")
			a, v := th.Apply(0, []byte(`{"type":"RUN_ERROR","message":"unreachable","code":"E"}`))
			if v != nil {
				t.Fatal(v)
			}
			if a.Opened == nil || a.Opened.RunID != "r9" || a.Ended == nil || string(a.Ended.Error) != `{"message":"unreachable","code":"E"}` {
				t.Errorf("opened %+v, ended %+v", a.Opened, a.Ended)
			}
			if th.TouchedByIncompleteRun() {
				t.Error("the run that failed first of all has not touched the state")
			}
			if wrong := differ(th, replay(t, "t", append(log, a.Stored...), agui.DefaultLimits())); wrong != "" {
				t.Error(wrong)
			}
		})
	}
}
