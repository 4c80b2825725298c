package service_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

func activity(id string) string {
	return event("ACTIVITY_SNAPSHOT", "messageId", quote(id), "activityType", `"PLAN"`, "content", `{"step":1}`)
}

func reasoning(id, content string) []string {
	return []string{
		event("REASONING_MESSAGE_START", "messageId", quote(id), "role", `"reasoning"`),
		event("REASONING_MESSAGE_CONTENT", "messageId", quote(id), "delta", quote(content)),
		event("REASONING_MESSAGE_END", "messageId", quote(id)),
	}
}

func assistantCalling(id, call string) string {
	return `{"id":` + quote(id) + `,"role":"assistant","toolCalls":[{"id":` + quote(call) +
		`,"type":"function","function":{"name":"look","arguments":"{}"}}]}`
}

func TestResultWithAnotherIDInTheSnapshotStaysAfterItsCall(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	c.start("r1", withMessages(userMessage("u1", "look it up")))
	c.append(runStarted("t1", "r1"), callStart("c1"), callArgs("c1", "{}"), callEnd("c1"), callResult("x", "c1", "found"))
	c.append(text("m2", "here it is")...)
	c.append(messagesSnapshot(userMessage("u1", "look it up"), assistantCalling("m-c1", "c1"), toolMessage("y", "c1", "found"), assistantMessage("m2", "here it is")),
		runFinished("t1", "r1"))
	c.wantMessages("user u1", "assistant m-c1", "tool y", "assistant m2")
}

func TestHistorySentAgainIsHeldOnce(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	var history, want []string
	for turn := range 20 {
		user, answer := fmt.Sprint("u", turn), fmt.Sprint("a", turn)
		history = append(history, userMessage(user, "question"))
		run := fmt.Sprint("r", turn)
		_, input := c.start(run, withMessages(history...))
		if len(input.Messages) != len(history) {
			t.Fatalf("turn %d has %d messages, want %d", turn, len(input.Messages), len(history))
		}
		c.append(slices.Concat([]string{runStarted("t1", run)}, text(answer, "answer"), []string{runFinished("t1", run)})...)
		history = append(history, assistantMessage(answer, "answer"))
		want = append(want, "user "+user, "assistant "+answer)
	}
	c.wantMessages(want...)
	for _, e := range c.log() {
		if e.GetKind() == threadsvcv1.EntryKind_ENTRY_KIND_INPUT && bytes.Count(e.GetPayload(), []byte(`"role"`)) > 1 {
			t.Fatalf("the input of %s is stored with what the thread held: %s", e.GetRunId(), e.GetPayload())
		}
	}
}

func TestFewerMessagesThanStoredAreAppended(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	var want []string
	for turn := range 6 {
		user := fmt.Sprint("u", turn)
		c.start(fmt.Sprint("r", turn), withMessages(userMessage(user, "question")))
		c.append(runStarted("t1", fmt.Sprint("r", turn)))
		c.append(text(fmt.Sprint("a", turn), "answer")...)
		c.append(runFinished("t1", fmt.Sprint("r", turn)))
		want = append(want, "user "+user, fmt.Sprint("assistant a", turn))
	}
	c.start("last", withMessages(userMessage("new", "one more")))
	c.wantMessages(append(want, "user new")...)
}

func TestAnswersToInterruptsAreKept(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	c.open("r1", interrupted("t1", "r1", "i1"))
	const resume = `[{"interruptId":"i1","status":"resolved","payload":"refund 1.10"}]`
	_, input := c.start("r2", withResume(resume))
	if string(input.Resume) != resume {
		t.Errorf("resume %s, want %s", input.Resume, resume)
	}
	if again := c.context(); string(again.Resume) != resume {
		t.Errorf("read back, resume is %s", again.Resume)
	}
	c.append(runStarted("t1", "r2"), runFinished("t1", "r2"))
	found := false
	for _, e := range c.log() {
		found = found || e.GetKind() == threadsvcv1.EntryKind_ENTRY_KIND_INPUT && bytes.Contains(e.GetPayload(), []byte(`"resume":`+resume))
	}
	if !found {
		t.Error("the log does not hold the answer")
	}
}

func TestReasoningWithoutTextKeepsItsSignature(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	c.record("r1",
		event("REASONING_MESSAGE_START", "messageId", `"m"`, "role", `"reasoning"`),
		event("REASONING_MESSAGE_END", "messageId", `"m"`),
		event("REASONING_ENCRYPTED_VALUE", "subtype", `"message"`, "entityId", `"m"`, "encryptedValue", `"c2ln+/=="`, "encryptedValueType", `"signature"`))
	_, input := c.start("r2")
	if len(input.Messages) != 1 {
		t.Fatalf("messages %q", outline(input.Messages))
	}
	m := input.Messages[0]
	if m.Role != "reasoning" || m.ID != "m" || m.Content != "" || m.EncryptedValue != "c2ln+/==" || m.EncryptedValueType != "signature" {
		t.Errorf("reasoning message %+v", m)
	}
}

func TestSnapshotsLeaveOtherRolesAlone(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	list := func() []string {
		var ids []string
		resp := must(c.client.ListMessages(t.Context(), &threadsvcv1.ListMessagesRequest{Thread: threadName("t1")}))(t)
		for _, m := range resp.GetMessages() {
			in := parseInput(t, []byte(`{"messages":[`+string(m)+`]}`))
			ids = append(ids, outline(in.Messages)...)
		}
		return ids
	}
	c.record("r1", slices.Concat([]string{activity("a1")}, reasoning("r1", "hm"), []string{messagesSnapshot(userMessage("u1", "x"))})...)
	if got := list(); !slices.Equal(got, []string{"activity a1", "reasoning r1", "user u1"}) {
		t.Errorf("after a snapshot without them: %q", got)
	}
	c.record("r2", messagesSnapshot(userMessage("u1", "x"), `{"id":"a2","role":"activity","activityType":"PLAN","content":{}}`))
	if got := list(); !slices.Equal(got, []string{"reasoning r1", "user u1", "activity a2"}) {
		t.Errorf("after a snapshot with another activity: %q", got)
	}
	c.wantMessages("reasoning r1", "user u1")
}

func TestAbortedRunLeavesWhatWasSaid(t *testing.T) {
	t.Parallel()
	ends := map[string]struct {
		end    func(c *conversation)
		status threadsvcv1.RunStatus
	}{
		"cancelled": {func(c *conversation) {
			c.append(textEnd("m1"), runFinished("t1", "r1", "outcome", `{"type":"cancelled"}`))
		}, threadsvcv1.RunStatus_RUN_STATUS_CANCELLED},
		"failed":       {func(c *conversation) { c.append(event("RUN_ERROR", "message", `"gone"`)) }, threadsvcv1.RunStatus_RUN_STATUS_FAILED},
		"taken over":   {func(c *conversation) { c.start("r2", withPolicy(takeOver)) }, threadsvcv1.RunStatus_RUN_STATUS_TRUNCATED},
		"never closed": {func(*conversation) {}, threadsvcv1.RunStatus_RUN_STATUS_ACTIVE},
	}
	for name, tc := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newConversation(t)
			c.start("r1", withMessages(userMessage("u1", "hello")))
			c.append(runStarted("t1", "r1"), textStart("m1"), textDelta("m1", "par"))
			tc.end(c)
			c.wantStatus("r1", tc.status)
			c.wantMessages("user u1", "assistant m1")
			if m := c.context().Messages[1]; m.Content != "par" {
				t.Errorf("the partial text is %q", m.Content)
			}
			c.stillWorks()
		})
	}
}

func TestEventsOfOneBatchKeepTheirOrder(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	sent := []string{runStarted("t1", "r1"), textStart("m")}
	var want strings.Builder
	for i := range 1000 {
		sent = append(sent, event("TEXT_MESSAGE_CONTENT", "messageId", `"m"`, "delta", quote(fmt.Sprint(i, " ")), "timestamp", "1700000000000"))
		fmt.Fprint(&want, i, " ")
	}
	sent = append(sent, textEnd("m"), runFinished("t1", "r1"))
	c.start("r1")
	c.append(sent...)
	if got := c.events("r1"); !slices.Equal(got, sent) {
		t.Errorf("the log has %d events, or another order; sent were %d", len(got), len(sent))
	}
	if got := c.context().Messages[0].Content; got != want.String() {
		t.Errorf("the text was put together wrongly: %.60q", got)
	}
}

func TestReopenedMessageIsContinued(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	c.record("r1", append(text("m", "x"), text("m", "y")...)...)
	c.wantMessages("assistant m")
	if got := c.context().Messages[0].Content; got != "xy" {
		t.Errorf("content %q, want xy", got)
	}
}

// What is joined of code points comes out whole wherever it was cut.
func TestTextCutBetweenCodePoints(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	const whole = "e\u0301 \U0001F468\u200D\U0001F469\u200D\U0001F467 \u0928\u093F \U0001F1E9\U0001F1EA"
	var parts []string
	for _, r := range whole {
		parts = append(parts, string(r))
	}
	c.record("r1", text("m", parts...)...)
	if got := c.context().Messages[0].Content; got != whole {
		t.Errorf("content %q, want %q", got, whole)
	}
}

var characters = map[string]string{
	"NUL":                  `\u0000`,
	"the six characters":   `\\u0000`,
	"lone high surrogate":  `\ud83d`,
	"lone low surrogate":   `\udc00`,
	"surrogates reversed":  `\udc00\ud83d`,
	"noncharacter":         `\uffff`,
	"surrogate pair":       `\ud83d\ude00`,
	"upper case and slash": `\u00E9\/`,
}

// Characters that databases and decoders like to lose come back as they were written.
func TestCharactersThatAreOftenLost(t *testing.T) {
	t.Parallel()
	client := newConversation(t).client
	for name, esc := range characters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := converse(t, client, name)
			value := `"a` + esc + `z"`
			state := `{"v":` + value + `,` + value + `:1}`
			user := `{"id":"u1","role":"user","name":` + value + `,"content":` + value + `}`
			c.start("r1", withMessages(user), func(r *threadsvcv1.StartRunRequest) { r.ForwardedProps = []byte(state) })
			sent := []string{
				runStarted(name, "r1"), textStart("m"),
				event("TEXT_MESSAGE_CONTENT", "messageId", `"m"`, "delta", value), textEnd("m"),
				callStart("c1"), event("TOOL_CALL_ARGS", "toolCallId", `"c1"`, "delta", value), callEnd("c1"),
				event("TOOL_CALL_RESULT", "messageId", `"x"`, "toolCallId", `"c1"`, "content", value),
				stateSnapshot(state), event("CUSTOM", "name", value, "value", state), event("RAW", "event", state),
			}
			c.append(sent...)
			input := string(c.context().text)
			want := map[string]string{"user": user, "state": `"state":` + state, "forwardedProps": `"forwardedProps":` + state,
				"text": `"content":` + value, "result": `"toolCallId":"c1"`, "arguments": `"arguments":` + value}
			for what, fragment := range want {
				if !strings.Contains(input, fragment) {
					t.Errorf("%s: the input lacks %s in %s", what, fragment, input)
				}
			}
			c.append(runFinished(name, "r1", "result", state))
			if got := c.events("r1"); !slices.Equal(got[:len(sent)], sent) {
				t.Errorf("the log has %q, sent was %q", got, sent)
			}
			if run := c.wantStatus("r1", threadsvcv1.RunStatus_RUN_STATUS_FINISHED); string(run.GetResult()) != state {
				t.Errorf("result %s, want %s", run.GetResult(), state)
			}
			c.stillWorks()
		})
	}
}
