package aguitest

import (
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"
)

// producer makes up events and remembers what it has opened.
type producer struct {
	t     *rapid.T
	opts  Options
	steps []Step
	runID string
	made  int // number of ids made up

	roles      map[string]string // of the messages made so far, as far as the producer knows
	holders    map[string]string // the message of each tool call
	interrupts []string          // open ones
	chain      bool              // the next run follows in the same stream

	// Of the run.
	open      []item
	owners    map[string]string // by kind and id
	running   []item
	subagents []string // active ones
	announced int
	thinking  []string // retired kinds that are open
}

// item is something open. A chunked one is its owner's lane.
type item struct {
	kind, id, owner string
	chunked         bool
}

func (p *producer) reset(runID string) {
	p.runID = runID
	p.open, p.running, p.subagents, p.thinking = nil, nil, nil, nil
	p.owners = map[string]string{}
}

func (p *producer) number(what string, low, high int) int {
	return rapid.IntRange(low, high).Draw(p.t, what)
}

func (p *producer) chance(percent int) bool { return p.number("chance", 0, 99) < percent }

func (p *producer) pick(from ...string) string { return rapid.SampledFrom(from).Draw(p.t, "pick") }

// act emits one event, or a few that belong together.
func (p *producer) act() {
	if p.chance(p.opts.Faults) {
		p.fault()
		return
	}
	actions := []func(){
		p.startText, p.carryOn, p.carryOn, p.carryOn, p.carryOn, p.end, p.startCall, p.result, p.startReasoning, p.span,
		p.chunk, p.chunk, p.chunk, p.chunk, p.encrypted, p.stateSnapshot, p.stateDelta, p.stateDelta, p.messagesSnapshot,
		p.activitySnapshot, p.activityDelta, p.activityDelta, p.step, p.step, p.startSubagent, p.endSubagent, p.passThrough,
	}
	if !p.opts.Plain {
		actions = append(actions, p.retired)
	}
	actions[p.number("action", 0, len(actions)-1)]()
}

// newID makes up an id of a kind, or takes a known one that is not open.
func (p *producer) newID(kind string) string {
	if p.chance(20) {
		pool := kind
		if !p.opts.Plain && p.chance(25) {
			pool = p.pick("text", "call", "reasoning", "activity")
		}
		if id := p.known(pool); id != "" && p.opened(kind, id) < 0 {
			return id
		}
	}
	p.made++
	return fmt.Sprintf("%s%d", kind[:1], p.made)
}

// known is a known id of a kind, empty if there is none.
func (p *producer) known(kind string) string {
	var ids []string
	if kind == "call" {
		for id := range p.holders {
			ids = append(ids, id)
		}
	}
	for id, role := range p.roles {
		if role == kind || kind == "text" && role == "assistant" {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return ""
	}
	slices.Sort(ids)
	return p.pick(ids...)
}

func (p *producer) opened(kind, id string) int {
	return slices.IndexFunc(p.open, func(i item) bool { return i.kind == kind && i.id == id })
}

// owner is who does the next thing: the parent agent, an active subagent, or one that was never announced.
func (p *producer) owner() string {
	return p.pick(append([]string{"", "", "", "ghost"}, p.subagents...)...)
}

// ownerOf is the owner that an item must have, which is made up when the item is new in this run.
func (p *producer) ownerOf(kind, id string) string {
	key := kind + " " + id
	if _, known := p.owners[key]; !known {
		p.owners[key] = p.owner()
	}
	return p.owners[key]
}

// tag attributes an event to the owner, or leaves that out if optional.
func (p *producer) tag(owner string, optional bool) []string {
	if owner == "" || optional && p.chance(50) {
		return nil
	}
	return []string{"subagentRunId", quote(owner)}
}

// explicit emits an event that ends the lane of whom it is attributed to.
func (p *producer) explicit(typ string, tag []string, members ...string) {
	owner := ""
	if tag != nil {
		owner = strings.Trim(tag[1], `"`)
	}
	p.closeLane(owner)
	p.event(typ, append(append(members, tag...), p.extras()...)...)
}

// aside emits an event that leaves the lanes alone.
func (p *producer) aside(typ string, tag []string, members ...string) {
	p.event(typ, append(append(members, tag...), p.extras()...)...)
}

func (p *producer) closeLane(owner string) {
	p.open = slices.DeleteFunc(p.open, func(i item) bool { return i.chunked && i.owner == owner })
}

func (p *producer) closeLanes() {
	p.open = slices.DeleteFunc(p.open, func(i item) bool { return i.chunked })
}

// closeAll closes what must be closed before the run finishes.
func (p *producer) closeAll() {
	for _, i := range p.open {
		if !i.chunked {
			p.event(endOf(i.kind), idOf(i.kind), quote(i.id))
		}
	}
	for _, s := range p.running {
		p.event("STEP_FINISHED", append([]string{"stepName", s.id}, p.tag(s.owner, false)...)...)
	}
	for _, id := range p.subagents {
		p.event("SUBAGENT_FINISHED", "subagentRunId", quote(id))
	}
	for _, kind := range slices.Backward(p.thinking) {
		p.event(kind + "_END")
	}
	p.reset(p.runID)
}

// event emits an event.
func (p *producer) event(typ string, members ...string) {
	p.steps = append(p.steps, Step{Event: p.object(append([]string{"type", quote(typ)}, members...)...)})
}

// extras are members that any event may have.
func (p *producer) extras() []string {
	var extras []string
	if p.chance(15) {
		extras = append(extras, "metadata", p.metadata())
	}
	if p.chance(5) {
		extras = append(extras, "timestamp", "1700000000000")
	}
	if p.chance(5) {
		extras = append(extras, "rawEvent", p.notNull())
	}
	if p.chance(5) {
		extras = append(extras, "unknownProperty", p.value())
	}
	return extras
}
