package agui_test

import (
	"strings"
	"testing"

	"github.com/threadsvc/threadsvc/agui"
)

// foldWith is a fold of one message, with a run that is open or not.
func foldWith(role agui.Role, body string, tracking string) agui.Fold {
	return agui.Fold{
		Version: 3, Tracking: []byte(tracking),
		Messages: []agui.StoredMessage{{Position: 1 << 20, ID: "a", Role: role, Body: agui.Value(body)}},
	}
}

const (
	trackingOpen = `{"phase":1,"runId":"r","opened":true}`
	trackingOver = `{"phase":3,"runId":"r","opened":true}`
)

// A message whose stored text is not its own form keeps its size right when its calls are looked for.
func TestSizeOfCallsThatAreSpaced(t *testing.T) {
	t.Parallel()
	for _, list := range []string{"[ ]", `[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]`, `[ {"id":"c"} ,{"id":"d", "function":{}}]`} {
		th, err := agui.Restore("t", foldWith(agui.RoleAssistant, `{"id":"a","role":"assistant","toolCalls":`+list+`}`, trackingOver), [32]byte{}, agui.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		th.Await("")
		mustApply(t, th, `{"type":"RUN_STARTED","threadId":"t","runId":"p"}`, `{"type":"TOOL_CALL_START","toolCallId":"x","toolCallName":"n"}`)
		if wrong := sound(th); wrong != "" {
			t.Errorf("%s: %s", list, wrong)
		}
		mustApply(t, th, `{"type":"TOOL_CALL_END","toolCallId":"x"}`, `{"type":"MESSAGES_SNAPSHOT","messages":[]}`)
		if wrong := sound(th); wrong != "" {
			t.Errorf("%s, dropped: %s", list, wrong)
		}
	}
}

// A list of calls, or of messages, ends at what is no object, in the log that is replayed as in the fold that is restored.
func TestListsEndAtWhatIsNoObject(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"assistant", "user"} {
		payload := `{"runId":"r","messages":[{"id":"a","role":"` + role + `","toolCalls":[1,{"id":"c"}]},7,{"id":"b","role":"user","content":"x"}]}`
		e := agui.Entry{Kind: agui.KindInput, Payload: agui.Value(payload)}
		th := agui.NewThread("t", agui.DefaultLimits())
		if err := th.Replay(&e, e.Append(nil)); err != nil {
			t.Fatal(err)
		}
		if n, pending := th.MessageCount(), th.PendingToolCalls(); n != 1 || len(pending) > 0 {
			t.Errorf("%d messages, pending %q", n, pending)
		}
		fold := th.Fold()
		restored, err := agui.Restore("t", fold, th.Hash(), agui.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		if wrong := differ(th, restored); wrong != "" {
			t.Error(wrong)
		}
	}
}

// The input of a run that is stored as no JSON is no part of the run input.
func TestDamagedInputIsLeftOut(t *testing.T) {
	t.Parallel()
	for _, input := range []string{`{"runId":"r","tools":[1,2`, `{"runId":"r","forwardedProps":tru e}`, `{"runId":"r"}}`, strings.Repeat("[", 1<<20)} {
		fold := foldWith(agui.RoleUser, `{"id":"a","role":"user","content":"x"}`, trackingOpen)
		fold.Input = agui.Value(input)
		th, err := agui.Restore("t", fold, [32]byte{}, agui.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		if text := th.RunInput(true).Text; agui.CheckJSON(text, 100) != nil || !strings.Contains(string(text), `"tools":[],"context":[],"forwardedProps":{}`) {
			t.Errorf("%.40s gives %s", input, text)
		}
	}
}

// A fold from elsewhere with a text in it that is not one JSON value is refused.
func TestForeignTextsAreChecked(t *testing.T) {
	t.Parallel()
	const body = `{"id":"a","role":"user","content":"x"}`
	for _, c := range []struct {
		body, interrupt string
		good            bool
	}{
		{body, `eyJpZCI6ImkifQ==`, true}, // {"id":"i"}
		{body + `garbage`, "", false}, {body[:len(body)-1] + `]`, "", false}, {body + `,{"id":"b","role":"user","content":"y"}`, "", false},
		{body, `eyJhIjp0cnUsInRvb2xDYWxsSWQiOiJjIn0=`, false}, // {"a":tru,"toolCallId":"c"}
	} {
		fold := foldWith(agui.RoleUser, c.body, strings.TrimSuffix(trackingOver, "}")+`,"interrupts":["`+c.interrupt+`"]}`)
		if c.interrupt == "" {
			fold.Tracking = []byte(trackingOver)
		}
		if _, err := agui.RestoreForeign("t", fold, [32]byte{}, agui.DefaultLimits()); (err == nil) != c.good {
			t.Errorf("%s %s: %v", c.body, c.interrupt, err)
		}
	}
}
