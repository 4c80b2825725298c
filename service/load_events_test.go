package service_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// sentEvent is one event of a producer's stream.
type sentEvent struct {
	text string
	run  string
	// exact tells that the log must hold the very text. It is false for chunks, and for events that are stripped or
	// dropped.
	exact bool
}

func exact(format string, args ...any) sentEvent {
	return sentEvent{text: fmt.Sprintf(format, args...), exact: true}
}

func inexact(format string, args ...any) sentEvent {
	return sentEvent{text: fmt.Sprintf(format, args...)}
}

// script writes streams of events that keep the protocol.
type script struct {
	rnd  *rand.Rand
	name string // distinguishes its identifiers from those of other scripts
	ids  int
}

func newScript(seed uint64, name string) *script {
	return &script{rnd: rand.New(rand.NewPCG(seed, 1)), name: name}
}

func (g *script) id(kind string) string {
	g.ids++
	return fmt.Sprintf("%s-%s%d", g.name, kind, g.ids)
}

func (g *script) oneIn(n int) bool { return g.rnd.IntN(n) == 0 }

// stream writes the events of a run, sometimes followed by another run in the same stream.
func (g *script) stream(thread, run string) []sentEvent {
	events := g.run(thread, run)
	if g.oneIn(8) {
		events = append(events, g.run(thread, run+"-next")...)
	}
	return events
}

func (g *script) run(thread, run string) []sentEvent {
	events := []sentEvent{exact(`{"type":"RUN_STARTED","threadId":%q,"runId":%q}`, thread, run)}
	writers := []func() []sentEvent{
		g.text, g.text, g.textChunks, g.toolCall, g.toolChunks, g.state, g.state, g.messages, g.activity, g.reasoning,
		g.subagent, g.others,
	}
	var pieces [][]sentEvent
	for range 1 + g.rnd.IntN(10) {
		pieces = append(pieces, writers[g.rnd.IntN(len(writers))]())
	}
	if g.oneIn(15) {
		pieces = append(pieces, g.largeStates())
	}
	events = append(events, g.weave(pieces)...)
	events = append(events, g.end(thread, run))
	for i := range events {
		events[i].run = run
	}
	return events
}

// weave mixes the events of pieces, up to three of which are under way at once.
func (g *script) weave(pieces [][]sentEvent) []sentEvent {
	var events []sentEvent
	for len(pieces) > 0 {
		i := g.rnd.IntN(min(3, len(pieces)))
		events = append(events, pieces[i][0])
		if pieces[i] = pieces[i][1:]; len(pieces[i]) == 0 {
			pieces = append(pieces[:i], pieces[i+1:]...)
		}
	}
	return events
}

func (g *script) end(thread, run string) sentEvent {
	finished := fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":%q,"runId":%q`, thread, run)
	switch g.rnd.IntN(8) {
	case 0:
		return exact(`%s,"outcome":{"type":"interrupt","interrupts":[{"id":%q,"reason":"approval"},{"id":%q,"reason":"input"}]}}`,
			finished, g.id("i"), g.id("i"))
	case 1:
		return exact(`%s,"outcome":{"type":"cancelled"}}`, finished)
	case 2:
		return exact(`{"type":"RUN_ERROR","message":"the model went away","code":"E%d"}`, g.rnd.IntN(100))
	case 3:
		return exact(`%s,"outcome":{"type":"success"},"result":{"n":1.10},"usage":[{"model":"m","inputTokens":%d}]}`, finished, g.rnd.IntN(1000))
	}
	return exact("%s}", finished)
}

// fragments are pieces of JSON strings: joined emojis, halves of surrogate pairs and NUL among them.
var fragments = []string{"the ", "quick ", "brown ", "😀", `\ud83d`, `\ude00`, "\U0001F468‍", "👩", `\u0000`, `\"`, `\n`, "é", "", "漢字 "}

func (g *script) delta() string {
	var b strings.Builder
	for range g.rnd.IntN(6) {
		b.WriteString(fragments[g.rnd.IntN(len(fragments))])
	}
	return b.String()
}

// several returns up to six events.
func (g *script) several(write func() sentEvent) []sentEvent {
	var events []sentEvent
	for range g.rnd.IntN(7) {
		events = append(events, write())
	}
	return events
}

// enclose puts events between an opener and a closer.
func enclose(opener sentEvent, events []sentEvent, closer ...sentEvent) []sentEvent {
	return append(append([]sentEvent{opener}, events...), closer...)
}

func (g *script) text() []sentEvent { return g.textOf("") }

// textOf writes a text message; more are further members of each event.
func (g *script) textOf(more string) []sentEvent {
	id := g.id("m")
	return enclose(
		exact(`{"type":"TEXT_MESSAGE_START","messageId":%q,"role":"assistant"%s}`, id, more),
		g.several(func() sentEvent {
			if g.oneIn(10) {
				return inexact(`{"type":"TEXT_MESSAGE_CONTENT","messageId":%q,"delta":"%s","unknown":[1]%s}`, id, g.delta(), more)
			}
			return exact(`{"type":"TEXT_MESSAGE_CONTENT","messageId":%q,"delta":"%s"%s}`, id, g.delta(), more)
		}),
		exact(`{"type":"TEXT_MESSAGE_END","messageId":%q,"metadata":{"n":%d}%s}`, id, g.ids, more))
}

func (g *script) textChunks() []sentEvent {
	id := g.id("m")
	write := func() sentEvent {
		return inexact(`{"type":"TEXT_MESSAGE_CHUNK","messageId":%q,"delta":"%s"}`, id, g.delta())
	}
	return enclose(write(), g.several(write))
}

func (g *script) toolCall() []sentEvent {
	id := g.id("c")
	events := enclose(
		exact(`{"type":"TOOL_CALL_START","toolCallId":%q,"toolCallName":"look_up"}`, id),
		g.several(func() sentEvent {
			return exact(`{"type":"TOOL_CALL_ARGS","toolCallId":%q,"delta":"%s"}`, id, g.delta())
		}),
		exact(`{"type":"TOOL_CALL_END","toolCallId":%q}`, id))
	if g.oneIn(5) { // left for the application to answer
		return events
	}
	return append(events, g.result(id))
}

func (g *script) result(call string) sentEvent {
	return exact(`{"type":"TOOL_CALL_RESULT","messageId":%q,"toolCallId":%q,"content":"%s"}`, g.id("r"), call, g.delta())
}

func (g *script) toolChunks() []sentEvent {
	id := g.id("c")
	write := func() sentEvent {
		return inexact(`{"type":"TOOL_CALL_CHUNK","toolCallId":%q,"toolCallName":"draw","delta":"%s"}`, id, g.delta())
	}
	return enclose(write(), g.several(write), g.result(id))
}

// state writes snapshots and patches, of which some do not apply.
func (g *script) state() []sentEvent {
	snapshots := []string{`{"k1":9007199254740993,"k2":1.10}`, `{"list":[1,2,3],"k0":{"a":null}}`, `{}`, `null`, `[1e400]`}
	if g.oneIn(3) {
		return []sentEvent{exact(`{"type":"STATE_SNAPSHOT","snapshot":%s}`, snapshots[g.rnd.IntN(len(snapshots))])}
	}
	operations := []string{
		`{"op":"add","path":"/k%d","value":"%s"}`, `{"op":"replace","path":"/k%d","value":["%s"]}`,
		`{"op":"test","path":"/k%d","value":"%s"}`, `{"op":"remove","path":"/k%d","comment":"%s"}`,
	}
	write := func() sentEvent {
		operation := operations[g.rnd.IntN(len(operations))]
		return exact(`{"type":"STATE_DELTA","delta":[%s]}`, fmt.Sprintf(operation, g.rnd.IntN(8), g.delta()))
	}
	return enclose(write(), g.several(write))
}

// largeStates writes so much that the thread is folded in the midst of the run.
func (g *script) largeStates() []sentEvent {
	var events []sentEvent
	for range 6 {
		text := make([]byte, 0, 64<<10)
		for len(text) < 60<<10 {
			text = fmt.Appendf(text, "%08x ", g.rnd.Uint32())
		}
		events = append(events, exact(`{"type":"STATE_SNAPSHOT","snapshot":{"text":"%s"}}`, text))
	}
	return events
}

// messages writes a snapshot, which drops what the thread held before.
func (g *script) messages() []sentEvent {
	if g.oneIn(2) {
		return g.text()
	}
	var list []string
	for range g.rnd.IntN(4) {
		list = append(list, fmt.Sprintf(`{"id":%q,"role":"user","content":"%s"}`, g.id("m"), g.delta()))
	}
	list = append(list, fmt.Sprintf(`{"id":"%s-kept","role":"assistant","content":"%s"}`, g.name, g.delta()))
	return []sentEvent{exact(`{"type":"MESSAGES_SNAPSHOT","messages":[%s]}`, strings.Join(list, ","))}
}

func (g *script) activity() []sentEvent {
	id := g.id("a")
	return enclose(
		exact(`{"type":"ACTIVITY_SNAPSHOT","messageId":%q,"activityType":"PLAN","content":{"steps":[]}}`, id),
		g.several(func() sentEvent {
			return exact(`{"type":"ACTIVITY_DELTA","messageId":%q,"activityType":"PLAN","patch":[{"op":"add","path":"/steps/-","value":"%s"}]}`, id, g.delta())
		}))
}

func (g *script) reasoning() []sentEvent {
	id := g.id("t")
	return enclose(
		exact(`{"type":"REASONING_MESSAGE_START","messageId":%q,"role":"reasoning"}`, id),
		g.several(func() sentEvent {
			return exact(`{"type":"REASONING_MESSAGE_CONTENT","messageId":%q,"delta":"%s"}`, id, g.delta())
		}),
		exact(`{"type":"REASONING_MESSAGE_END","messageId":%q}`, id),
		exact(`{"type":"REASONING_ENCRYPTED_VALUE","subtype":"message","entityId":%q,"encryptedValue":"%x"}`, id, g.rnd.Uint64()))
}

func (g *script) subagent() []sentEvent {
	id := g.id("s")
	return enclose(
		exact(`{"type":"SUBAGENT_STARTED","subagentRunId":%q,"name":"researcher"}`, id),
		g.textOf(fmt.Sprintf(`,"subagentRunId":%q`, id)),
		exact(`{"type":"SUBAGENT_FINISHED","subagentRunId":%q}`, id))
}

// others writes events that build nothing, one of a type that is not known among them.
func (g *script) others() []sentEvent {
	name := g.id("step")
	return []sentEvent{
		exact(`{"type":"STEP_STARTED","stepName":%q}`, name),
		exact(`{"type":"CUSTOM","name":"note","value":{"b":1,"a":"%s"}}`, g.delta()),
		inexact(`{"type":"NOT_YET_INVENTED","value":%d}`, g.ids),
		exact(`{"type":"RAW","event":{"provider":"%s"}}`, g.delta()),
		exact(`{"type":"STEP_FINISHED","stepName":%q}`, name),
	}
}
