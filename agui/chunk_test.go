package agui_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/threadsvc/threadsvc/agui"
)

// expansion is what chunks become: the canonical events from the first chunk on, each as "TYPE id".
type expansion struct {
	name    string
	events  []string
	want    string // separated by commas
	refused agui.Code
}

func TestChunkExpansion(t *testing.T) {
	t.Parallel()
	text := func(more string) string { return `{"type":"TEXT_MESSAGE_CHUNK"` + more + `}` }
	call := func(more string) string { return `{"type":"TOOL_CALL_CHUNK"` + more + `}` }
	reasoning := func(more string) string { return `{"type":"REASONING_MESSAGE_CHUNK"` + more + `}` }
	m, c, r := text(`,"messageId":"m","delta":"a"`), call(`,"toolCallId":"c","toolCallName":"n","delta":"a"`), reasoning(`,"messageId":"r","delta":"a"`)
	const opened = "TEXT_MESSAGE_START m,TEXT_MESSAGE_CONTENT m"
	for _, x := range []expansion{
		{"text", []string{m, text(`,"delta":"b"`)}, opened + ",TEXT_MESSAGE_CONTENT m", ""},
		{"a first chunk without delta", []string{text(`,"messageId":"m"`)}, "TEXT_MESSAGE_START m", ""},
		{"a call", []string{c, call(`,"delta":"b"`)}, "TOOL_CALL_START c,TOOL_CALL_ARGS c,TOOL_CALL_ARGS c", ""},
		{"reasoning", []string{r, reasoning(`,"delta":"b"`)}, "REASONING_MESSAGE_START r,REASONING_MESSAGE_CONTENT r,REASONING_MESSAGE_CONTENT r", ""},
		{"no message id", []string{text(`,"delta":"a"`)}, "", agui.ChunkIncomplete},
		{"no reasoning id", []string{reasoning(`,"delta":"a"`)}, "", agui.ChunkIncomplete},
		{"no call id", []string{call(`,"toolCallName":"n"`)}, "", agui.ChunkIncomplete},
		{"no call name", []string{call(`,"toolCallId":"c"`)}, "", agui.ChunkIncomplete},
		{"an equal repeat", []string{text(`,"messageId":"m","name":"A"`), text(`,"messageId":"m","role":"assistant","name":"\u0041","delta":"b"`)}, opened, ""},
		{"another role than the one meant by leaving it out", []string{m, text(`,"role":"user"`)}, opened, agui.ChunkConflict},
		{"another name", []string{m, text(`,"name":"A"`)}, opened, agui.ChunkConflict},
		{"another call name", []string{c, call(`,"toolCallName":"o"`)}, "TOOL_CALL_START c,TOOL_CALL_ARGS c", agui.ChunkConflict},
		{"another parent", []string{c, call(`,"parentMessageId":"p"`)}, "TOOL_CALL_START c,TOOL_CALL_ARGS c", agui.ChunkConflict},
		{"another owner", []string{m, text(`,"messageId":"m","subagentRunId":"s"`)}, opened, agui.OwnerMismatch},
		{"another id closes first", []string{m, text(`,"messageId":"o"`)}, opened + ",TEXT_MESSAGE_END m,TEXT_MESSAGE_START o", ""},
		{"another kind closes first", []string{m, c}, opened + ",TEXT_MESSAGE_END m,TOOL_CALL_START c,TOOL_CALL_ARGS c", ""},
		{"another lane does not close", []string{m, call(`,"toolCallId":"c","toolCallName":"n","subagentRunId":"s"`)}, opened + ",TOOL_CALL_START c", ""},
		{"a tag names the lane", []string{m, text(`,"messageId":"o","subagentRunId":"s"`), text(`,"delta":"b","subagentRunId":"s"`)}, opened + ",TEXT_MESSAGE_START o,TEXT_MESSAGE_CONTENT o", ""},
		{"neither id nor tag: the parent's", []string{text(`,"messageId":"o","subagentRunId":"s"`), m, text(`,"delta":"b"`)}, "TEXT_MESSAGE_START o," + opened + ",TEXT_MESSAGE_CONTENT m", ""},
		{"neither id nor tag: the only one", []string{text(`,"messageId":"o","subagentRunId":"s"`), c, text(`,"delta":"b"`)}, "TEXT_MESSAGE_START o,TOOL_CALL_START c,TOOL_CALL_ARGS c,TEXT_MESSAGE_CONTENT o", ""},
		{"neither id nor tag: several", []string{text(`,"messageId":"o","subagentRunId":"s"`), text(`,"messageId":"p","subagentRunId":"z"`), text(`,"delta":"b"`)}, "TEXT_MESSAGE_START o,TEXT_MESSAGE_START p", agui.ChunkAmbiguous},
		{"metadata only", []string{m, text(`,"metadata":{"k":1}`)}, opened + ",TEXT_MESSAGE_CONTENT m", ""},
		{"a provider's event only", []string{m, text(`,"rawEvent":{}`)}, opened + ",TEXT_MESSAGE_CONTENT m", ""},
		{"nothing at all", []string{m, text(``)}, opened, ""},
		{"after the run's end", []string{m, runFinished, text(`,"messageId":"o"`)}, opened + ",TEXT_MESSAGE_END m,RUN_FINISHED ", agui.SequenceRunOver},
		{"an explicit end for a chunked item", []string{m, `{"type":"TEXT_MESSAGE_END","messageId":"m"}`}, opened, agui.SequenceNotOpen},
		{"an explicit start for a chunked item reopens it", []string{m, `{"type":"TEXT_MESSAGE_START","messageId":"m"}`}, opened + ",TEXT_MESSAGE_END m,TEXT_MESSAGE_START m", ""},
		{"a chunk for an item opened by a start", []string{`{"type":"TEXT_MESSAGE_START","messageId":"m"}`, m}, "TEXT_MESSAGE_START m", agui.SequenceAlreadyOpen},
	} {
		t.Run(x.name, func(t *testing.T) { x.check(t) })
	}
}

func (x *expansion) check(t *testing.T) {
	t.Parallel()
	th, got := started(t), []string{}
	for i, event := range x.events {
		a, v := th.Apply(uint64(i+1), []byte(event))
		if v != nil {
			if i < len(x.events)-1 || v.Code != x.refused {
				t.Errorf("%s: %v", event, v)
			}
			break
		}
		if i == len(x.events)-1 && x.refused != "" {
			t.Errorf("%s was accepted, want %s", event, x.refused)
		}
		got = append(got, canonical(t, a.Stored)...)
	}
	if joined := strings.Join(got, ","); joined != x.want {
		t.Errorf("canonical events %s, want %s", joined, x.want)
	}
}

// canonical lists the events among stored entries.
func canonical(t *testing.T, stored []byte) []string {
	t.Helper()
	entries, err := agui.DecodeEntries(stored)
	if err != nil {
		t.Fatal(err)
	}
	var events []string
	for _, e := range entries {
		var ev struct{ Type, MessageID, ToolCallID string }
		if e.Kind != agui.KindEvent {
			continue
		}
		if err := json.Unmarshal(e.Payload, &ev); err != nil {
			t.Fatal(err)
		}
		events = append(events, ev.Type+" "+ev.MessageID+ev.ToolCallID)
	}
	return events
}

// TestWhatClosesAChunk goes through every event that can follow a chunk of the parent agent.
func TestWhatClosesAChunk(t *testing.T) {
	t.Parallel()
	const tagged = `,"subagentRunId":"s"`
	for event, closes := range map[string]bool{
		`{"type":"TEXT_MESSAGE_START","messageId":"x"}`:                                                        true,
		`{"type":"TEXT_MESSAGE_START","messageId":"x"` + tagged + `}`:                                          false,
		`{"type":"TOOL_CALL_START","toolCallId":"x","toolCallName":"n"}`:                                       true,
		`{"type":"TOOL_CALL_RESULT","messageId":"x","toolCallId":"c","content":""}`:                            true,
		`{"type":"STEP_STARTED","stepName":"x"}`:                                                               true,
		`{"type":"STEP_STARTED","stepName":"x"` + tagged + `}`:                                                 false,
		`{"type":"STATE_SNAPSHOT","snapshot":1}`:                                                               true,
		`{"type":"STATE_DELTA","delta":[]}`:                                                                    true,
		`{"type":"CUSTOM","name":"n","value":1}`:                                                               true,
		`{"type":"REASONING_START","messageId":"x"}`:                                                           true,
		`{"type":"REASONING_MESSAGE_START","messageId":"x","role":"reasoning"}`:                                true,
		`{"type":"THINKING_START"}`:                                                                            true,
		`{"type":"MESSAGES_SNAPSHOT","messages":[]}`:                                                           true,
		`{"type":"RUN_ERROR","message":"no"}`:                                                                  true,
		runFinished:                                                                                            true,
		`{"type":"RAW","event":1}`:                                                                             false,
		`{"type":"ACTIVITY_SNAPSHOT","messageId":"x","activityType":"a","content":{}}`:                         false,
		`{"type":"ACTIVITY_DELTA","messageId":"x","activityType":"a","patch":[]}`:                              false,
		`{"type":"REASONING_ENCRYPTED_VALUE","subtype":"message","entityId":"m","encryptedValue":""}`:          false,
		`{"type":"SUBAGENT_STARTED","subagentRunId":"s","name":"n"}`:                                           false,
		`{"type":"EVENT_OF_THE_FUTURE"}`:                                                                       false,
		`{"type":"REASONING_ENCRYPTED_VALUE","subtype":"of the future","entityId":"m","encryptedValue":"abc"}`: false,
	} {
		th := started(t)
		mustApply(t, th, `{"type":"TEXT_MESSAGE_CHUNK","messageId":"m","delta":"a"}`)
		a, v := th.Apply(2, []byte(event))
		if v != nil {
			t.Errorf("%s: %v", event, v)
			continue
		}
		got := canonical(t, a.Stored)
		if closed := len(got) > 0 && got[0] == "TEXT_MESSAGE_END m"; closed != closes {
			t.Errorf("%s: canonical events %v", event, got)
		}
	}
}
