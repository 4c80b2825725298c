package aguitest

import (
	"fmt"
	"slices"
)

// step starts a step, or finishes one.
func (p *producer) step() {
	if len(p.running) > 0 && p.chance(60) {
		s := p.running[0]
		p.running = p.running[1:]
		p.explicit("STEP_FINISHED", p.tag(s.owner, false), "stepName", s.id)
		return
	}
	s := item{id: p.text(), owner: p.owner()}
	same := func(other item) bool { return unquoted(other.id) == unquoted(s.id) && other.owner == s.owner }
	if slices.ContainsFunc(p.running, same) {
		return
	}
	p.running = append(p.running, s)
	p.explicit("STEP_STARTED", p.tag(s.owner, false), "stepName", s.id)
}

func (p *producer) startSubagent() {
	p.announced++
	id := fmt.Sprintf("sub%d", p.announced)
	members := []string{"subagentRunId", quote(id), "name", p.text()}
	if len(p.subagents) > 0 && p.chance(50) {
		members = append(members, "parentSubagentRunId", quote(p.pick(p.subagents...)))
	}
	p.subagents = append(p.subagents, id)
	p.aside("SUBAGENT_STARTED", nil, members...)
}

func (p *producer) endSubagent() {
	if len(p.subagents) == 0 {
		return
	}
	id := p.subagents[0]
	p.subagents = p.subagents[1:]
	p.closeLane(id)
	if p.chance(30) {
		p.aside("SUBAGENT_ERROR", nil, "subagentRunId", quote(id), "message", p.text())
		return
	}
	p.aside("SUBAGENT_FINISHED", nil, "subagentRunId", quote(id), "outcome", p.pick(`{"type":"success"}`, `{"type":"suspended"}`))
}

func (p *producer) passThrough() {
	switch p.number("aside", 0, 3) {
	case 0:
		p.explicit("CUSTOM", p.tag(p.owner(), false), "name", p.text(), "value", p.value())
	case 1:
		p.aside("EVENT_OF_THE_FUTURE", nil, "value", p.value())
	case 2:
		p.aside("REASONING_ENCRYPTED_VALUE", nil, "subtype", `"of the future"`, "entityId", `"x"`, "encryptedValue", `"v"`)
	default:
		p.aside("RAW", p.tag(p.owner(), false), "event", p.value())
	}
}

// fault emits something that is likely to break the protocol.
func (p *producer) fault() {
	kind := p.pick("text", "call", "reasoning", "span")
	family := families[kind]
	id := []string{family.id, quote(p.newID(kind))}
	if held := p.explicitItem(); held >= 0 && p.chance(50) {
		kind, id[1] = p.open[held].kind, quote(p.open[held].id)
		family = families[kind]
	}
	switch p.number("fault", 0, 9) {
	case 0:
		p.event(endOf(kind), id...)
	case 1:
		p.event("TEXT_MESSAGE_CONTENT", append(id, "delta", p.text(), "subagentRunId", `"stranger"`)...)
	case 2:
		p.event("RUN_FINISHED", "threadId", quote(p.opts.ThreadID), "runId", quote(p.runID))
	case 3:
		p.event("RUN_STARTED", "threadId", quote(p.opts.ThreadID), "runId", `"another"`)
	case 4:
		p.event(family.start, append(id, "toolCallName", `"n"`, "role", `"reasoning"`)...)
	case 5:
		p.event("TEXT_MESSAGE_CHUNK", "delta", p.text())
	case 6:
		p.event("TOOL_CALL_CHUNK", "toolCallName", p.text())
	case 7:
		p.event("SUBAGENT_FINISHED", "subagentRunId", `"stranger"`)
	case 8:
		p.event("STATE_DELTA", "delta", p.value())
	default:
		p.steps = append(p.steps, Step{Event: []byte(p.pick(`{`, `[]`, `{"type":7}`, `{"type":"CUSTOM"}`, ``))})
	}
}
