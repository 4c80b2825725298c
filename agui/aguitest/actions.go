package aguitest

import (
	"fmt"
	"slices"
)

// families name the events of what is opened, continued and closed.
var families = map[string]struct{ start, content, end, chunk, id string }{
	"text":      {"TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "TEXT_MESSAGE_CHUNK", "messageId"},
	"call":      {"TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_CHUNK", "toolCallId"},
	"reasoning": {"REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_END", "REASONING_MESSAGE_CHUNK", "messageId"},
	"span":      {"REASONING_START", "", "REASONING_END", "", "messageId"},
}

func endOf(kind string) string { return families[kind].end }
func idOf(kind string) string  { return families[kind].id }

func (p *producer) startText() {
	id := p.newID("text")
	role := p.pick("", "assistant", "user", "system", "developer")
	members := []string{"messageId", quote(id)}
	if role != "" {
		members = append(members, "role", quote(role))
	}
	if p.chance(10) {
		members = append(members, "name", p.text())
	}
	p.openItem("text", id, members)
	p.note(id, "assistant")
}

func (p *producer) startReasoning() {
	id := p.newID("reasoning")
	p.openItem("reasoning", id, []string{"messageId", quote(id), "role", `"reasoning"`})
	p.note(id, "reasoning")
}

func (p *producer) startCall() {
	id := p.newID("call")
	members := []string{"toolCallId", quote(id), "toolCallName", p.text()}
	owner, parent := p.ownerOf("call", id), p.parentFor(id)
	if parent != "" {
		members = append(members, "parentMessageId", quote(parent))
	}
	p.hold(id, parent)
	p.explicit("TOOL_CALL_START", p.tag(owner, false), members...)
	p.open = append(p.open, item{kind: "call", id: id, owner: owner})
}

// parentFor is a message that a call may be attached to, whose owner is the call's.
func (p *producer) parentFor(call string) string {
	parent := p.known("text")
	if parent == "" || p.chance(40) {
		return ""
	}
	if owner, known := p.owners["text "+parent]; known && owner != p.owners["call "+call] {
		return ""
	}
	return parent
}

// hold remembers that a call is held by a message.
func (p *producer) hold(call, parent string) {
	if _, held := p.holders[call]; held {
		return
	}
	if parent == "" {
		parent = call
	}
	p.holders[call] = parent
	p.note(parent, "assistant")
}

func (p *producer) note(id, role string) {
	if _, known := p.roles[id]; !known {
		p.roles[id] = role
	}
}

func (p *producer) openItem(kind, id string, members []string) {
	owner := p.ownerOf(ownerKind(kind), id)
	p.explicit(families[kind].start, p.tag(owner, false), members...)
	p.open = append(p.open, item{kind: kind, id: id, owner: owner})
}

// ownerKind is the kind under which the owner of an item is known: spans share theirs with reasoning messages.
func ownerKind(kind string) string {
	if kind == "span" {
		return "reasoning"
	}
	return kind
}

// span opens a reasoning span, or closes one.
func (p *producer) span() {
	if i := slices.IndexFunc(p.open, func(i item) bool { return i.kind == "span" }); i >= 0 {
		p.endItem(i)
		return
	}
	id := p.newID("reasoning")
	p.openItem("span", id, []string{"messageId", quote(id)})
}

// explicitItem chooses an item that was opened by a START.
func (p *producer) explicitItem() int {
	var places []int
	for i := range p.open {
		if !p.open[i].chunked {
			places = append(places, i)
		}
	}
	if len(places) == 0 {
		return -1
	}
	return places[p.number("item", 0, len(places)-1)]
}

func (p *producer) carryOn() {
	i := p.explicitItem()
	if i < 0 || p.open[i].kind == "span" {
		p.startText()
		return
	}
	held := p.open[i]
	p.explicit(families[held.kind].content, p.tag(p.ownerNow(held), true), idOf(held.kind), quote(held.id), "delta", p.text())
}

// ownerNow is the owner of an open item, which a snapshot may have changed.
func (p *producer) ownerNow(i item) string { return p.owners[ownerKind(i.kind)+" "+i.id] }

func (p *producer) end() {
	if i := p.explicitItem(); i >= 0 {
		p.endItem(i)
	}
}

func (p *producer) endItem(i int) {
	held := p.open[i]
	p.open = slices.Delete(p.open, i, i+1)
	p.explicit(endOf(held.kind), p.tag(p.ownerNow(held), true), idOf(held.kind), quote(held.id))
}

func (p *producer) result() {
	call := p.known("call")
	if call == "" || p.chance(5) {
		call = "nowhere"
	}
	p.made++
	id := fmt.Sprintf("result%d", p.made)
	content := p.text()
	if p.chance(20) {
		content = `[{"type":"text","text":` + p.text() + `},{"type":"image","source":{"type":"url","value":"u"}}]`
	}
	p.note(id, "tool")
	p.explicit("TOOL_CALL_RESULT", p.tag(p.owner(), false), "messageId", quote(id), "toolCallId", quote(call), "content", content)
}

// chunk opens a lane with a chunk, or continues one.
func (p *producer) chunk() {
	lane := slices.IndexFunc(p.open, func(i item) bool { return i.chunked })
	if lane < 0 || p.chance(25) {
		p.firstChunk(p.pick("text", "call", "reasoning"))
		return
	}
	for i := range p.open {
		if p.open[i].chunked && p.chance(50) {
			lane = i
		}
	}
	held := p.open[lane]
	var members []string
	named := p.chance(30)
	if named {
		members = append(members, idOf(held.kind), quote(held.id))
	}
	if p.chance(85) {
		members = append(members, "delta", p.text())
	}
	p.aside(families[held.kind].chunk, p.tag(held.owner, named || p.sole(held)), members...)
}

// sole reports whether a chunk without id and owner continues this lane.
func (p *producer) sole(lane item) bool {
	n := 0
	for _, i := range p.open {
		if i.chunked && i.kind == lane.kind {
			n++
		}
	}
	return n == 1
}

func (p *producer) firstChunk(kind string) {
	id := p.newID(kind)
	if p.opened(kind, id) >= 0 {
		return
	}
	owner := p.ownerOf(kind, id)
	members := []string{idOf(kind), quote(id)}
	switch kind {
	case "call":
		members = append(members, "toolCallName", p.text())
		p.hold(id, "")
	case "text":
		p.note(id, "assistant")
	default:
		p.note(id, "reasoning")
	}
	if p.chance(70) {
		members = append(members, "delta", p.text())
	}
	p.closeLane(owner)
	p.aside(families[kind].chunk, p.tag(owner, false), members...)
	p.open = append(p.open, item{kind: kind, id: id, owner: owner, chunked: true})
}

func (p *producer) encrypted() {
	subtype := p.pick("message", "tool-call")
	entity := p.known("call")
	if subtype == "message" {
		entity = p.known(p.pick("text", "reasoning", "tool", "activity"))
	}
	if entity == "" {
		entity = "nowhere"
	}
	members := []string{"subtype", quote(subtype), "entityId", quote(entity), "encryptedValue", p.text()}
	if p.chance(50) {
		members = append(members, "encryptedValueType", p.text())
	}
	p.aside("REASONING_ENCRYPTED_VALUE", nil, members...)
}

// retired emits the events that have no ids.
func (p *producer) retired() {
	switch {
	case len(p.thinking) == 0:
		p.thinking = []string{"THINKING"}
		p.explicit("THINKING_START", nil, "title", p.text())
	case len(p.thinking) == 1 && p.chance(70):
		p.thinking = append(p.thinking, "THINKING_TEXT_MESSAGE")
		p.explicit("THINKING_TEXT_MESSAGE_START", nil)
	case len(p.thinking) == 2 && p.chance(60):
		p.explicit("THINKING_TEXT_MESSAGE_CONTENT", nil, "delta", p.text())
	default:
		last := p.thinking[len(p.thinking)-1]
		p.thinking = p.thinking[:len(p.thinking)-1]
		p.explicit(last+"_END", nil)
	}
}
