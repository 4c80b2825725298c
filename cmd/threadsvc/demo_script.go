package main

import (
	"bytes"
	"encoding/json"
	"strings"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// The conversation of the demo: a customer plans and books a trip with an agent.

const (
	demoTenant = "demo"
	demoThread = "trip-to-lisbon"
)

// scriptedRun is one run as the demo plays it.
type scriptedRun struct {
	id, shows  string
	messages   []string // what the customer says
	statePatch string   // what the customer's app changes
	tools      string
	resume     string
	crash      bool // the server is killed in the middle
	refused    bool // the run is tried without resume first
	events     []string

	status   threadsvcv1.RunStatus // how it must end
	warnings int                   // how many warnings it must raise
}

const demoTools = `[{"name":"search_flights","description":"Find flights","parameters":{"type":"object"}},` +
	`{"name":"book_flights","description":"Book an offer; needs the customer's approval","parameters":{"type":"object"}}]`

func conversation() []scriptedRun {
	return []scriptedRun{planRun(), chooseRun(), bookRun(), approveRun()}
}

func planRun() scriptedRun {
	return scriptedRun{
		id: "run-1", shows: "reasoning, streamed text, a step, a tool call, an activity, state, chunks",
		messages: []string{userMessage("user-1", "Two of us want to fly from Berlin to Lisbon on 12 March and back on the 16th.")},
		tools:    demoTools,
		status:   threadsvcv1.RunStatus_RUN_STATUS_FINISHED, warnings: 1,
		events: script(
			started("run-1"),
			lines(`{"type":"REASONING_START","messageId":"span-1"}
				{"type":"REASONING_MESSAGE_START","messageId":"think-1","role":"reasoning"}`),
			deltas("REASONING_MESSAGE_CONTENT", "messageId", "think-1", "Two travellers, fixed dates. Search first, then offer the cheapest."),
			lines(`{"type":"REASONING_MESSAGE_END","messageId":"think-1"}
				{"type":"REASONING_ENCRYPTED_VALUE","subtype":"message","entityId":"think-1","encryptedValue":"gAAAAABl3Zt0aGlua2luZw=="}
				{"type":"REASONING_END","messageId":"span-1"}
				{"type":"STATE_SNAPSHOT","snapshot":{"status":"searching","trip":{"from":"BER","to":"LIS","on":["12 March","16 March"],"seats":2},"offers":[]}}`),
			text("say-1", "Let me see what flies on those days."),
			lines(`{"type":"STEP_STARTED","stepName":"search"}
				{"type":"ACTIVITY_SNAPSHOT","messageId":"search-1","activityType":"SEARCH","content":{"airlines":3,"done":0}}
				{"type":"TOOL_CALL_START","toolCallId":"call-1","toolCallName":"search_flights","parentMessageId":"say-1"}`),
			deltas("TOOL_CALL_ARGS", "toolCallId", "call-1", `{"from": "BER", "to": "LIS", "on": ["12 March", "16 March"]}`),
			lines(`{"type":"TOOL_CALL_END","toolCallId":"call-1"}
				{"type":"ACTIVITY_DELTA","messageId":"search-1","activityType":"SEARCH","patch":[{"op":"replace","path":"/done","value":3}]}
				{"type":"TOOL_CALL_RESULT","messageId":"found-1","toolCallId":"call-1","content":"TP 535 412.50 EUR nonstop; LH 173 388.00 EUR via FRA, 7 h 40; FR 1144 cancelled"}
				{"type":"STATE_DELTA","delta":[{"op":"add","path":"/offers/-","value":{"flight":"TP 535","price":412.50,"stops":0}}]}
				{"type":"STATE_DELTA","delta":[{"op":"add","path":"/offers/-","value":{"flight":"LH 173","price":388.00,"stops":1}}]}
				{"type":"STATE_DELTA","delta":[{"op":"test","path":"/status","value":"idle"},{"op":"remove","path":"/offers"}]}
				{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/status","value":"offered"}]}
				{"type":"STEP_FINISHED","stepName":"search"}`),
			chunks("say-2", "TAP flies nonstop for 412.50 EUR each. Lufthansa is 388.00 EUR, with a stop in Frankfurt. Which one?"),
			finished("run-1", ""),
		),
	}
}

// chosenID is the message with choseText.
const chosenID = "say-3"

// choseText is streamed while the server is killed.
const choseText = "Good choice: TP 535 leaves Berlin at 11:40 and lands in Lisbon at 14:25. With one checked bag it is " +
	"448.50 EUR each, 897.00 EUR in all. The fare can be changed once for free, and the seats next to each other are held " +
	"for thirty minutes. Shall I book?"

func chooseRun() scriptedRun {
	return scriptedRun{
		id: "run-2", shows: "the app changes state, the server is killed, MESSAGES_SNAPSHOT",
		messages:   []string{userMessage("user-2", "The nonstop one, please, with a bag.")},
		statePatch: `[{"op":"add","path":"/trip/bags","value":1}]`,
		tools:      demoTools, crash: true,
		status: threadsvcv1.RunStatus_RUN_STATUS_FINISHED,
		events: script(
			started("run-2"),
			lines(`{"type":"STATE_DELTA","delta":[{"op":"remove","path":"/offers/1"},{"op":"replace","path":"/offers/0/price","value":448.50}]}`),
			text(chosenID, choseText),
			lines(`{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/status","value":"held"},{"op":"add","path":"/hold","value":{"fareId":9007199254740993,"minutes":30}}]}`),
			snapshot(
				userMessage("user-1", "Two of us want to fly from Berlin to Lisbon on 12 March and back on the 16th."),
				`{"id":"say-1","role":"assistant","content":"Let me see what flies on those days.","toolCalls":[{"id":"call-1","type":"function",`+
					`"function":{"name":"search_flights","arguments":"{\"from\": \"BER\", \"to\": \"LIS\", \"on\": [\"12 March\", \"16 March\"]}"}}]}`,
				`{"id":"found-1","role":"tool","toolCallId":"call-1","content":"two offers, see state"}`,
				`{"id":"say-2","role":"assistant","content":"TAP flies nonstop for 412.50 EUR each. Lufthansa is 388.00 EUR, with a stop in Frankfurt. Which one?"}`,
				userMessage("user-2", "The nonstop one, please, with a bag."),
				`{"id":"say-3","role":"assistant","content":`+quoted(choseText)+`}`,
			),
			finished("run-2", ""),
		),
	}
}

func bookRun() scriptedRun {
	return scriptedRun{
		id: "run-3", shows: "ends with an interrupt",
		messages: []string{userMessage("user-3", "Yes, book it.")},
		tools:    demoTools,
		status:   threadsvcv1.RunStatus_RUN_STATUS_INTERRUPTED,
		events: script(
			started("run-3"),
			text("say-4", "I need your approval for the payment."),
			lines(`{"type":"TOOL_CALL_START","toolCallId":"call-2","toolCallName":"book_flights","parentMessageId":"say-4"}`),
			deltas("TOOL_CALL_ARGS", "toolCallId", "call-2", `{"offer": 0, "total": 897.00}`),
			lines(`{"type":"TOOL_CALL_END","toolCallId":"call-2"}`),
			finished("run-3", `,"outcome":{"type":"interrupt","interrupts":[{"id":"approve-payment","reason":"tool_call",`+
				`"message":"Charge 897.00 EUR to the card ending in 4242?","toolCallId":"call-2"}]}`),
		),
	}
}

func approveRun() scriptedRun {
	return scriptedRun{
		id: "run-4", shows: "refused without an answer to the interrupt, then resumed",
		tools: demoTools, refused: true,
		resume: `[{"interruptId":"approve-payment","status":"resolved","payload":{"approved":true}}]`,
		status: threadsvcv1.RunStatus_RUN_STATUS_FINISHED,
		events: script(
			started("run-4"),
			lines(`{"type":"TOOL_CALL_RESULT","messageId":"booked-1","toolCallId":"call-2","content":"confirmed: QX7R2M"}
				{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/status","value":"booked"},{"op":"add","path":"/reference","value":"QX7R2M"}]}`),
			text("say-5", "Booked: TP 535 on 12 March, reference QX7R2M. Boa viagem!"),
			finished("run-4", `,"result":{"reference":"QX7R2M"},"usage":[{"model":"demo","inputTokens":2210,"outputTokens":96}]`),
		),
	}
}

// finalState is what all snapshots, deltas and patches must have come to, byte for byte.
const finalState = `{"status":"booked","trip":{"from":"BER","to":"LIS","on":["12 March","16 March"],"seats":2,"bags":1},` +
	`"offers":[{"flight":"TP 535","price":448.50,"stops":0}],"hold":{"fareId":9007199254740993,"minutes":30},"reference":"QX7R2M"}`

// finalMessages are the ids of the messages the thread must hold, in order.
const finalMessages = "user-1 think-1 say-1 found-1 search-1 say-2 user-2 say-3 user-3 say-4 booked-1 say-5"

func script(parts ...[]string) []string {
	var all []string
	for _, part := range parts {
		all = append(all, part...)
	}
	return all
}

// lines splits events that are written one on a line.
func lines(events string) []string {
	all := strings.Split(events, "\n")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}

func started(runID string) []string {
	return []string{`{"type":"RUN_STARTED","threadId":"` + demoThread + `","runId":"` + runID + `","protocolVersion":"1.1"}`}
}

func finished(runID, more string) []string {
	return []string{`{"type":"RUN_FINISHED","threadId":"` + demoThread + `","runId":"` + runID + `"` + more + `}`}
}

// deltas streams a text word by word.
func deltas(eventType, idName, id, text string) []string {
	var all []string
	for _, word := range strings.SplitAfter(text, " ") {
		all = append(all, `{"type":"`+eventType+`","`+idName+`":"`+id+`","delta":`+quoted(word)+`}`)
	}
	return all
}

func text(id, content string) []string {
	return script(
		[]string{`{"type":"TEXT_MESSAGE_START","messageId":"` + id + `","role":"assistant"}`},
		deltas("TEXT_MESSAGE_CONTENT", "messageId", id, content),
		[]string{`{"type":"TEXT_MESSAGE_END","messageId":"` + id + `"}`},
	)
}

func chunks(id, content string) []string {
	return deltas("TEXT_MESSAGE_CHUNK", "messageId", id, content)
}

func snapshot(messages ...string) []string {
	return []string{`{"type":"MESSAGES_SNAPSHOT","messages":[` + strings.Join(messages, ",") + `]}`}
}

func userMessage(id, content string) string {
	return `{"id":"` + id + `","role":"user","content":` + quoted(content) + `}`
}

func quoted(text string) string {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // a string can always be encoded
	return strings.TrimSuffix(b.String(), "\n")
}
