// Package aguitest generates AG-UI event streams for property tests: runs that open and close what they must, of every
// event the protocol has, on one thread, with the inputs that start them.
package aguitest

import (
	"fmt"

	"pgregory.net/rapid"
)

// Options says what to generate. The zero value of a field stands for the default its comment names.
type Options struct {
	// ThreadID is the thread of all runs. Default "t".
	ThreadID string
	// Runs and Events are the most runs, and the most events per run before it is brought to its end. Default 4 and 25.
	Runs, Events int
	// Faults is the percentage of events that are likely to break the protocol. Default 0: none.
	Faults int
	// Plain leaves out what JSON.parse or the official client does not keep: numbers beyond float64, repeated names in
	// open objects, events of retired versions, and ids that messages of different roles share.
	Plain bool
}

// Step is one thing that happens to the thread. Exactly one of Input, Await, Event, Abandon and End is set.
type Step struct {
	// Input is the RunAgentInput that the application starts a run with.
	Input []byte
	// Await is the run of a producer stream that nobody announced; its events follow.
	Await string
	// Event is the next event of the stream.
	Event []byte
	// Abandon is true when the producer goes away without a terminal event.
	Abandon bool
	// End is true when somebody ends the run, or gives up the interrupts that it left open. Its stream is over.
	End bool
}

// Stream generates the steps of one thread. Without faults every event is accepted and every input starts a run, if
// tool calls may stay unanswered; warnings are raised all the same, by patches that do not apply and the like.
func Stream(t *rapid.T, opts Options) []Step {
	if opts.ThreadID == "" {
		opts.ThreadID = "t"
	}
	if opts.Runs == 0 {
		opts.Runs = 4
	}
	if opts.Events == 0 {
		opts.Events = 25
	}
	p := &producer{t: t, opts: opts, roles: map[string]string{}, holders: map[string]string{}}
	for run := range p.number("runs", 1, opts.Runs) {
		p.run(fmt.Sprintf("run-%d", run+1))
	}
	return p.steps
}

// run generates one run from its announcement to its end.
func (p *producer) run(id string) {
	p.reset(id)
	chained := p.chain
	if chained || p.chance(30) {
		p.openStream(id)
	} else {
		p.steps = append(p.steps, Step{Input: p.input(id)})
	}
	p.chain = false
	if !chained && p.chance(5) {
		p.event("RUN_ERROR", "message", p.text())
		p.interrupts = nil
		return
	}
	p.started()
	for range p.number("events", 0, p.opts.Events) {
		p.act()
	}
	p.finish()
}

// openStream lets the next run follow in the stream that is open, or announces another stream.
func (p *producer) openStream(id string) {
	if !p.chain {
		p.steps = append(p.steps, Step{Await: id})
	}
	p.interrupts = nil
}

func (p *producer) started() {
	members := []string{"threadId", quote(p.opts.ThreadID), "runId", quote(p.runID)}
	if p.chance(40) {
		members = append(members, "protocolVersion", p.pick(`"1.1"`, `"1.0"`, `"0.0.39"`, `"2.7"`, `"next"`))
	}
	if p.chance(25) {
		input := p.object("threadId", quote(p.opts.ThreadID), "runId", quote(p.runID), "messages", p.messages(3))
		members = append(members, "input", string(input))
	}
	p.event("RUN_STARTED", members...)
}

// input is the input of a run, which answers the interrupts of the one before.
func (p *producer) input(id string) []byte {
	members := []string{"threadId", quote(p.opts.ThreadID), "runId", quote(id)}
	if p.chance(70) {
		members = append(members, "messages", p.messages(3))
	}
	if p.chance(20) {
		members = append(members, "state", p.notNull())
	}
	if p.chance(20) {
		members = append(members, "forwardedProps", p.notNull(), "tools", `[{"name":"search","description":"d"}]`)
	}
	if len(p.interrupts) > 0 {
		var answers []string
		for _, interrupt := range p.interrupts {
			status := p.pick(`"resolved"`, `"cancelled"`)
			answers = append(answers, string(p.object("interruptId", quote(interrupt), "status", status, "payload", p.notNull())))
		}
		members = append(members, "resume", list(answers))
	}
	p.interrupts = nil
	return p.object(members...)
}

// finish ends the run in one of the ways a run can end.
func (p *producer) finish() {
	switch p.number("ending", 0, 9) {
	case 0:
		if p.chance(40) {
			p.endByRequest()
			return
		}
		p.steps = append(p.steps, Step{Abandon: true})
		return
	case 1:
		p.event("RUN_ERROR", "message", p.text(), "code", p.text())
	default:
		p.closeAll()
		p.finished()
		if p.chance(10) {
			p.event("RUN_ERROR", "message", p.text())
			p.interrupts = nil
		}
	}
	if p.chance(5) || len(p.interrupts) > 0 && p.chance(20) {
		p.endByRequest()
		return
	}
	p.chain = p.chance(30)
}

// endByRequest ends a run that is open, or one whose interrupts are; otherwise it does nothing.
func (p *producer) endByRequest() {
	p.steps = append(p.steps, Step{End: true})
	p.interrupts = nil
}

func (p *producer) finished() {
	members := []string{"threadId", quote(p.opts.ThreadID), "runId", quote(p.runID)}
	switch p.number("outcome", 0, 6) {
	case 0:
		members = append(members, "outcome", `{"type":"cancelled"}`)
	case 1, 2:
		members = append(members, "outcome", p.interruptOutcome())
	case 3:
		members = append(members, "outcome", `{"type":"success"}`, "result", p.notNull())
	case 4:
		members = append(members, "outcome", `{"type":"of the future"}`, "usage", `[{"model":"m","inputTokens":3}]`)
	}
	p.event("RUN_FINISHED", members...)
}

func (p *producer) interruptOutcome() string {
	var interrupts []string
	for n := range p.number("interrupts", 1, 3) {
		id := fmt.Sprintf("i%d-%s", n, p.runID)
		members := []string{"id", quote(id), "reason", p.text()}
		if call := p.known("call"); call != "" && p.chance(50) {
			members = append(members, "toolCallId", quote(call))
		}
		p.interrupts = append(p.interrupts, id)
		interrupts = append(interrupts, string(p.object(members...)))
	}
	return string(p.object("type", `"interrupt"`, "interrupts", list(interrupts)))
}
