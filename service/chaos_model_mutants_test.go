package service_test

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// told is a history, written operation by operation.
type told struct {
	history history
	plans   map[string]*streamPlan
}

// op adds an operation with its times, in seconds.
func (h *told) op(call, back int64, in asked, out answered) *told {
	if h.plans[in.run] == nil {
		h.plans[in.run] = &streamPlan{runs: []planned{{id: in.run, end: 20}}}
	}
	in.plan, in.ttl = h.plans[in.run], int64(8*time.Second)
	in.call, in.back = call*int64(time.Second), back*int64(time.Second)
	if out.verdict == unknown {
		in.back = forever
	}
	h.history.ops = append(h.history.ops, &chaosOp{in, out})
	return h
}

func (h *told) start(call, back int64, run string, token, version uint64) *told {
	return h.op(call, back, asked{kind: opStart, run: run}, answered{verdict: done, token: token, version: version, next: -1})
}

func (h *told) takeOver(call, back int64, run string, token, version uint64) *told {
	return h.op(call, back, asked{kind: opStart, run: run, takesOver: true}, answered{verdict: done, token: token, version: version, next: -1})
}

func (h *told) append(call, back int64, run string, token uint64, first, until int, version uint64) *told {
	return h.op(call, back, asked{kind: opAppend, run: run, token: token, first: first, until: until},
		answered{verdict: done, next: until, version: version})
}

func (h *told) refusal(call, back int64, run string, token uint64, first, until int, reason string) *told {
	return h.op(call, back, asked{kind: opAppend, run: run, token: token, first: first, until: until}, answered{verdict: refused, reason: reason})
}

// lostAppend is one without an answer.
func (h *told) lostAppend(call int64, run string, token uint64, first, until int) *told {
	return h.op(call, 0, asked{kind: opAppend, run: run, token: token, first: first, until: until}, answered{})
}

func (h *told) end(call, back int64, run string, version uint64) *told {
	return h.op(call, back, asked{kind: opEnd, run: run}, answered{verdict: done, version: version, next: -1})
}

func (h *told) read(call, back int64, version uint64) *told {
	return h.op(call, back, asked{kind: opRead}, answered{verdict: done, version: version})
}

func (h *told) tail(at int64, version uint64) *told {
	return h.op(at, at, asked{kind: opTail}, answered{verdict: done, version: version})
}

// check checks the history. Every lost append may have happened.
func (h *told) check() porcupine.CheckResult {
	next := map[string]int{}
	for _, op := range h.history.ops {
		next[op.run] = 100
	}
	return linearize(h.history.operations(&logFacts{next: next}), time.Minute)
}

// opened is a history that begins with a run r1 of twenty events, which got the token 5 and has sent three.
func opened() *told {
	h := &told{plans: map[string]*streamPlan{}}
	return h.start(1, 2, "r1", 5, 1).append(2, 3, "r1", 5, 0, 3, 4)
}

// resends are many appends at once of what the stream has received, answered in their order.
func (h *told) resends(call, back int64, run string, token, version uint64, out answered) *told {
	for i := range 30 {
		out.next, out.version = 3, version
		h.op(call, back, asked{kind: opAppend, run: run, token: token, first: 0, until: 3, order: i + 1}, out)
	}
	return h
}

// TestModelAcceptsWhatMayHappen checks histories that a sound service can leave behind.
func TestModelAcceptsWhatMayHappen(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]*told{
		"sent again": opened().append(3, 4, "r1", 5, 0, 3, 4).read(4, 5, 4),
		"expansion":  opened().append(3, 4, "r1", 5, 3, 4, 9),
		"pipelined":  opened().append(3, 6, "r1", 5, 3, 4, 5).append(3, 6, "r1", 5, 4, 6, 7),
		"pipelined, and answered by what there is": opened().tail(4, 7).
			op(3, 8, asked{kind: opAppend, run: "r1", token: 5, first: 3, until: 4}, answered{verdict: done, next: 6, version: 7}).
			op(3, 8, asked{kind: opAppend, run: "r1", token: 5, first: 4, until: 6}, answered{verdict: done, next: 6, version: 7}),
		"lost, and never happened":            opened().lostAppend(3, "r1", 5, 3, 6).read(4, 5, 4).append(5, 6, "r1", 5, 3, 4, 5),
		"lost, and happened":                  opened().lostAppend(3, "r1", 5, 3, 6).read(4, 5, 7).append(5, 6, "r1", 5, 6, 7, 8),
		"lost, and happened late":             opened().lostAppend(3, "r1", 5, 3, 6).read(3, 4, 4).read(4, 5, 7),
		"lost, and sent again late":           opened().lostAppend(3, "r1", 5, 3, 6).append(8, 9, "r1", 5, 3, 6, 7).append(9, 10, "r1", 5, 6, 7, 8),
		"taken over":                          opened().takeOver(3, 5, "r2", 6, 6).refusal(4, 6, "r1", 5, 3, 4, "RUN_CLOSED").append(6, 7, "r2", 6, 0, 1, 7),
		"fenced off before":                   opened().takeOver(3, 8, "r2", 7, 6).refusal(4, 5, "r1", 5, 3, 4, "LEASE_LOST").read(6, 7, 4),
		"received by who lost":                opened().takeOver(3, 4, "r2", 6, 6).append(4, 5, "r1", 5, 0, 3, 6),
		"ended":                               opened().end(3, 5, "r1", 5).refusal(4, 6, "r1", 5, 3, 4, "RUN_CLOSED"),
		"expired, as a start tells":           opened().start(8, 9, "r2", 6, 6),
		"expired, as a read tells":            opened().read(8, 9, 5).refusal(9, 10, "r1", 5, 3, 4, "RUN_CLOSED"),
		"expired, as its owner sees":          opened().refusal(8, 9, "r1", 5, 3, 4, "RUN_CLOSED").start(9, 10, "r2", 6, 6),
		"expired, as who sends again sees":    opened().append(9, 10, "r1", 5, 0, 2, 5).read(11, 12, 5).start(13, 14, "r2", 6, 6),
		"fenced off, as who sends again sees": opened().append(9, 10, "r1", 5, 0, 2, 4).read(11, 12, 5).start(13, 14, "r2", 6, 6),
		"a lease that nobody minded":          opened().append(50, 51, "r1", 5, 3, 4, 5),
		"many that were received":             opened().takeOver(3, 4, "r2", 6, 6).resends(4, 9, "r1", 5, 6, answered{verdict: done}).append(4, 5, "r2", 6, 0, 1, 7),
		"many that were refused":              opened().takeOver(3, 4, "r2", 6, 6).resends(4, 9, "r1", 5, 0, answered{verdict: refused, reason: "RUN_CLOSED"}),
		"ended late by a lost attempt": opened().op(2, 0, asked{kind: opEnd, run: "r2"}, answered{}).
			op(3, 4, asked{kind: opEnd, run: "r2"}, answered{verdict: refused, reason: "RUN_NOT_FOUND"}).
			takeOver(5, 6, "r2", 6, 6).read(7, 8, 7),
		"followed":                   opened().tail(3, 1).tail(4, 4),
		"two that race":              opened().takeOver(3, 6, "r2", 6, 6).takeOver(3, 6, "r3", 7, 8),
		"finished, and the next run": opened().append(3, 4, "r1", 5, 3, 20, 21).start(4, 5, "r2", 6, 22),
		"lost, and ended":            opened().lostAppend(3, "r1", 5, 3, 6).end(4, 5, "r1", 8).refusal(6, 7, "r1", 5, 6, 8, "RUN_CLOSED").start(8, 9, "r2", 6, 9),
		"lost, expired, and read":    opened().lostAppend(3, "r1", 5, 3, 6).read(8, 9, 8).refusal(9, 10, "r1", 5, 6, 8, "RUN_CLOSED").start(11, 12, "r2", 6, 9),
		"refused, and nothing came of it": opened().op(3, 4, asked{kind: opStart, run: "r2"},
			answered{verdict: refused, reason: "RUN_ACTIVE", holder: "r1"}).append(4, 5, "r1", 5, 3, 4, 5),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := h.check(); got != porcupine.Ok {
				t.Error(got, obstacle(h.history.operations(&logFacts{})))
			}
		})
	}
}

// TestModelRefusesBugs checks what clients of services with one bug each would be told.
func TestModelRefusesBugs(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]*told{
		"ack before commit":                   opened().append(3, 4, "r1", 5, 3, 6, 7).read(5, 6, 4),
		"ack before commit, sent on":          opened().append(3, 4, "r1", 5, 3, 6, 7).append(5, 6, "r1", 5, 6, 7, 5),
		"ack of a start before commit":        opened().takeOver(3, 4, "r2", 6, 6).append(5, 6, "r1", 5, 3, 4, 5),
		"no fence check":                      opened().takeOver(3, 4, "r2", 6, 6).append(5, 6, "r1", 5, 3, 4, 7),
		"no fence check after an end":         opened().end(3, 4, "r1", 5).append(5, 6, "r1", 5, 3, 4, 6),
		"no fence check, between two appends": opened().takeOver(3, 4, "r2", 6, 6).append(5, 6, "r1", 5, 3, 4, 7).append(6, 7, "r2", 6, 0, 2, 9),
		"no fence check after an expiry":      opened().start(8, 9, "r2", 6, 6).append(10, 11, "r1", 5, 3, 4, 7),
		"token granted twice":                 opened().takeOver(3, 4, "r2", 5, 6),
		"no offset check: again":              opened().append(3, 4, "r1", 5, 0, 3, 7),
		"no offset check: gap":                opened().append(3, 4, "r1", 5, 7, 8, 5),
		"no offset check: progress":           opened().op(3, 4, asked{kind: opAppend, run: "r1", token: 5, first: 0, until: 3}, answered{verdict: done, next: 6, version: 4}),
		"no offset check: progress of what was refused": opened().refusal(3, 4, "r1", 5, 4, 6, "OFFSET_GAP").
			op(4, 5, asked{kind: opAppend, run: "r1", token: 5, first: 3, until: 4}, answered{verdict: done, next: 6, version: 7}),
		"no offset check: progress of what comes later": opened().
			op(3, 4, asked{kind: opAppend, run: "r1", token: 5, first: 3, until: 4}, answered{verdict: done, next: 6, version: 7}).
			append(5, 6, "r1", 5, 4, 6, 7),
		"tail before commit":        opened().lostAppend(3, "r1", 5, 3, 6).tail(4, 7).read(5, 6, 4),
		"tail of what nobody wrote": opened().tail(4, 5),
		"tail before the call":      opened().tail(3, 7).append(4, 5, "r1", 5, 3, 6, 7),
		"stale read":                opened().read(4, 5, 3),
		"stale read of two":         opened().append(3, 4, "r1", 5, 3, 4, 5).read(3, 6, 5).read(7, 8, 4),
		"acknowledged out of order": opened().takeOver(3, 4, "r2", 6, 6).
			op(4, 5, asked{kind: opAppend, run: "r1", token: 5, first: 0, until: 2, order: 2}, answered{verdict: done, next: 2, version: 6}).
			op(6, 7, asked{kind: opAppend, run: "r1", token: 5, first: 0, until: 1, order: 1}, answered{verdict: done, next: 1, version: 6}),
		"ended by who was refused": opened().op(3, 4, asked{kind: opEnd, run: "r2"}, answered{verdict: refused, reason: "RUN_NOT_FOUND"}).
			takeOver(5, 6, "r2", 6, 6).read(7, 8, 7),
		"expired twice":                opened().append(9, 10, "r1", 5, 0, 2, 6),
		"two active runs":              opened().start(3, 4, "r2", 6, 5),
		"expired too early":            opened().start(4, 4, "r2", 6, 6),
		"expired while it was renewed": opened().append(7, 8, "r1", 5, 3, 3, 4).start(8, 8, "r2", 6, 6),
		"refused without a reason":     opened().refusal(3, 4, "r1", 5, 3, 4, "LEASE_LOST"),
		"taken over without a mark":    opened().takeOver(3, 4, "r2", 6, 5),
		"refused, and it happened":     opened().takeOver(3, 4, "r2", 6, 6).refusal(4, 5, "r1", 5, 3, 6, "RUN_CLOSED").read(5, 6, 9),
		"started twice":                opened().takeOver(3, 4, "r2", 6, 6).takeOver(4, 5, "r2", 7, 8),
		"active after its end": opened().append(3, 4, "r1", 5, 3, 20, 21).op(5, 6, asked{kind: opStart, run: "r2"},
			answered{verdict: refused, reason: "RUN_ACTIVE", holder: "r1"}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := h.check(); got != porcupine.Illegal {
				t.Error(got)
			}
		})
	}
}
