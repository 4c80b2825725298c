package aguitest

import (
	"fmt"
	"slices"
)

func (p *producer) stateSnapshot() {
	p.explicit("STATE_SNAPSHOT", p.tag(p.owner(), false), "snapshot", p.value())
}

func (p *producer) stateDelta() {
	p.explicit("STATE_DELTA", p.tag(p.owner(), false), "delta", p.patch())
}

func (p *producer) activitySnapshot() {
	id := p.newID("activity")
	members := []string{"messageId", quote(id), "activityType", p.text(), "content", p.content()}
	keep := p.chance(30)
	if keep {
		members = append(members, "replace", "false")
	}
	owner, key := p.owner(), "activity "+id
	if _, known := p.owners[key]; !known || !keep {
		p.owners[key] = owner
	}
	p.note(id, "activity")
	p.aside("ACTIVITY_SNAPSHOT", p.tag(owner, false), members...)
}

func (p *producer) activityDelta() {
	id := p.known("activity")
	if id == "" {
		id = "nowhere"
	}
	owner := p.owners["activity "+id]
	p.aside("ACTIVITY_DELTA", p.tag(owner, true), "messageId", quote(id), "activityType", p.text(), "patch", p.patch())
}

func (p *producer) messagesSnapshot() {
	p.closeLanes()
	p.event("MESSAGES_SNAPSHOT", append([]string{"messages", p.snapshot(5)}, p.extras()...)...)
}

// snapshot is a list of known and new messages, whose owners it establishes.
func (p *producer) snapshot(most int) string {
	var all []string
	seen := map[string]bool{}
	for range p.number("messages", 0, most) {
		id, role := p.messageID()
		if seen[id] {
			continue
		}
		seen[id] = true
		owner := p.pick("", "", "ghost")
		p.owners[kindOf(role)+" "+id] = owner
		all = append(all, string(p.message(id, role, owner)))
	}
	return list(all)
}

// messages is a list of messages for an input, which claims no owners.
func (p *producer) messages(most int) string {
	var all []string
	seen := map[string]bool{}
	for range p.number("messages", 0, most) {
		id, role := p.messageID()
		if seen[id] || p.owners[kindOf(role)+" "+id] != "" {
			continue
		}
		seen[id] = true
		if _, known := p.owners[kindOf(role)+" "+id]; !known {
			p.owners[kindOf(role)+" "+id] = ""
		}
		all = append(all, string(p.message(id, role, "")))
	}
	return list(all)
}

func kindOf(role string) string {
	if role == "reasoning" || role == "activity" {
		return role
	}
	return "text"
}

// messageID is a known or a new message.
func (p *producer) messageID() (id, role string) {
	if len(p.roles) > 0 && p.chance(60) {
		var ids []string
		for id := range p.roles {
			ids = append(ids, id)
		}
		slices.Sort(ids)
		id = p.pick(ids...)
		return id, p.roles[id]
	}
	p.made++
	id, role = fmt.Sprintf("s%d", p.made), p.pick("user", "assistant", "system", "developer", "tool", "activity", "reasoning")
	p.note(id, role)
	return id, role
}

// message writes a whole message.
func (p *producer) message(id, role, owner string) []byte {
	members := []string{"id", quote(id), "role", quote(role)}
	switch role {
	case "activity":
		members = append(members, "activityType", p.text(), "content", p.content())
	case "tool":
		call := p.known("call")
		if call == "" {
			call = "nowhere"
		}
		members = append(members, "toolCallId", quote(call), "content", p.text())
	case "user":
		members = append(members, "content", p.pick(p.text(), `[ {"type":"text","text":"x"} ]`))
	case "assistant":
		members = append(members, p.heldCalls(id, owner)...)
	default:
		members = append(members, "content", p.text())
	}
	members = append(members, p.tag(owner, false)...)
	if p.chance(15) {
		members = append(members, "metadata", p.metadata())
	}
	return p.object(members...)
}

// heldCalls are the members of an assistant message: a text, or the calls it is known to hold, and now and then another's.
func (p *producer) heldCalls(id, owner string) []string {
	var held []string
	for call, holder := range p.holders {
		if holder == id {
			held = append(held, call)
		}
	}
	slices.Sort(held)
	if other := p.known("call"); other != "" && p.chance(15) && !slices.Contains(held, other) {
		held = append(held, other)
	}
	if len(held) == 0 || p.chance(20) {
		return []string{"content", p.text()}
	}
	var calls []string
	for _, call := range held {
		p.owners["call "+call] = owner
		function := p.object("name", p.text(), "arguments", p.text())
		calls = append(calls, string(p.object("id", quote(call), "type", `"function"`, "function", string(function))))
	}
	return []string{"toolCalls", list(calls)}
}
