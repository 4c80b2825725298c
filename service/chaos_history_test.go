package service_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/threadsvc/threadsvc/agui"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// opKind is what a client asked of a thread.
type opKind int

const (
	opStart  opKind = iota // StartRun, until its outcome is known
	opAppend               // one batch
	opEnd                  // EndRun, until its outcome is known
	opRead                 // a version that somebody was told is the thread's
	opTail                 // a version that a tail brought
)

// verdict is how an operation ended for who asked.
type verdict int

const (
	unknown verdict = iota // it may have happened, and may yet
	done
	refused
)

// asked is an operation as it was called.
type asked struct {
	kind         opKind
	run          string // the id of the stream
	plan         *streamPlan
	takesOver    bool // if it is a start: by its policy
	waits        bool
	ttl          int64  // of a start's lease, in nanoseconds
	token        uint64 // of an append; 0 if it is not known
	first, until int    // the offsets of an append's events, the last one excluded
	order        int    // of an append among those of its client, which are acknowledged in it; 0 if it is not known
	call, back   int64  // when it was called and answered, in nanoseconds; back is forever if it was not
	// contested is set for an append if somebody tried to take the run over, or to end it, before the answer: they fence the
	// run's writer off before they close the run.
	contested bool
	waiting   []string // for a start: runs that may have waited for their turn
}

// answered is what the caller of an operation was told.
type answered struct {
	verdict verdict
	reason  string // of a refusal
	holder  string // the active run, if that is why
	token   uint64 // 0 if it was not told
	next    int    // -1 if it was not told
	version uint64 // 0 if it was not told
}

const forever = math.MaxInt64

// chaosOp is an operation of a history. call is 0 until it was called.
type chaosOp struct {
	asked
	answered
}

// history is what all clients of one thread asked and were told. A nil history keeps nothing.
type history struct {
	began  time.Time
	mu     sync.Mutex
	ops    []*chaosOp
	closed bool // nothing more is noted
}

func newHistory() *history { return &history{began: time.Now()} }

// now is the time by the history's clock; 0 without one.
func (h *history) now() int64 {
	if h == nil {
		return 0
	}
	return int64(time.Since(h.began)) + 1
}

// call notes that an operation is called: now, unless it says when it was.
func (h *history) call(a asked) *chaosOp {
	if h == nil {
		return nil
	}
	op := &chaosOp{asked: a}
	h.add(op)
	return op
}

// add is call with an operation that the caller has made.
func (h *history) add(op *chaosOp) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	if op.asked.call == 0 {
		op.asked.call = h.now()
	}
	op.back, op.next = forever, -1
	h.ops = append(h.ops, op)
}

// settle notes the answer of an operation, which is known now.
func (h *history) settle(op *chaosOp, got answered) {
	if h == nil || op == nil || got.verdict == unknown {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		op.answered, op.back = got, h.now()
	}
}

// close ends the history.
func (h *history) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
}

// saw notes a version that a tail has just brought.
func (h *history) saw(version uint64) {
	h.settle(h.call(asked{kind: opTail}), answered{verdict: done, version: version})
}

// final are the reasons of refusals after which nothing of a call will happen.
var final = []string{
	"LEASE_LOST", "RUN_CLOSED", "RUN_ACTIVE", "OFFSET_GAP", "OFFSET_MISMATCH", "INTERRUPTS_OPEN", "INTERRUPTS_UNKNOWN",
	"INTERRUPTS_EXPIRED", "TOOL_CALLS_UNANSWERED", "RUN_NOT_FOUND", "THREAD_NOT_FOUND",
}

// outcomeOf is what an error says about what was asked for.
func outcomeOf(err error) answered {
	if err == nil {
		return answered{verdict: done, next: -1}
	}
	reason, meta := reasonOf(err)
	if !slices.Contains(final, reason) {
		return answered{}
	}
	return answered{verdict: refused, reason: reason, holder: meta["active_run"]}
}

// progressOf is what a batch's answer says about it.
func progressOf(progress *threadsvcv1.Progress, err error) answered {
	got := outcomeOf(err)
	if err == nil {
		got.next, got.version = int(progress.GetNextOffset()), progress.GetVersion()
	}
	return got
}

// streamPlan is where the runs of a producer's stream end, and what was asked of it.
type streamPlan struct {
	runs []planned
	sent offsets // all appends that were not refused
	lost offsets // those that had no answer
}

// offsets are the calls of appends in their order, each with the highest offset so far that they go to.
type offsets []struct {
	call  int64
	until int
}

// note notes another append.
func (o *offsets) note(call int64, until int) {
	if n := len(*o); n > 0 {
		until = max(until, (*o)[n-1].until)
	}
	*o = append(*o, struct {
		call  int64
		until int
	}{call, until})
}

// by is the highest offset that the appends which had been called by then may have brought.
func (o offsets) by(at int64) int {
	n := sort.Search(len(o), func(i int) bool { return o[i].call > at })
	if n == 0 {
		return 0
	}
	return o[n-1].until
}

type planned struct {
	id          string
	end         int // the offset after its last event
	interrupted bool
}

func planOf(events []sentEvent) *streamPlan {
	var p streamPlan
	for i, e := range events {
		if i+1 == len(events) || events[i+1].run != e.run {
			p.runs = append(p.runs, planned{e.run, i + 1, bytes.Contains([]byte(e.text), []byte(`"interrupts"`))})
		}
	}
	return &p
}

// at is the run that the event before next belongs to, or the first; over tells whether it ends there.
func (p *streamPlan) at(next int) (run planned, over bool) {
	for _, run := range p.runs {
		if next <= run.end {
			return run, next == run.end
		}
	}
	return planned{}, true
}

// logFacts are what the log, read last, tells about operations without an answer: which happened at all.
type logFacts struct {
	inputs map[string]uint64 // the version of each run's input
	next   map[string]int    // the offset after the last event of each stream that has an input
}

func factsOf(entries []*threadsvcv1.LogEntry, streams []*sentStream) *logFacts {
	facts := &logFacts{inputs: map[string]uint64{}, next: map[string]int{}}
	stream := map[string]string{}
	for _, s := range streams {
		for _, e := range s.events {
			stream[e.run] = s.id
		}
	}
	for _, e := range entries {
		id := stream[e.GetRunId()]
		switch {
		case e.GetKind() == threadsvcv1.EntryKind_ENTRY_KIND_INPUT:
			facts.inputs[id] = e.GetVersion()
		case e.GetKind() == threadsvcv1.EntryKind_ENTRY_KIND_EVENT, isOmission(e):
			facts.next[id] = max(facts.next[id], int(e.GetOffset())+1)
		}
	}
	return facts
}

func isOmission(e *threadsvcv1.LogEntry) bool {
	var mark agui.Mark
	return json.Unmarshal(e.GetPayload(), &mark) == nil && mark.Type == agui.MarkEventOmitted
}

// operations makes the history of what it is for the checker. Calls without an answer may have happened at any time since;
// those that never did, by the log, are left out. It is called once.
func (h *history) operations(facts *logFacts) []porcupine.Operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.SortStableFunc(h.ops, func(a, b *chaosOp) int { return cmp.Compare(a.asked.call, b.asked.call) })
	var kept []*chaosOp
	for _, op := range h.ops {
		if op.kind == opAppend && op.verdict != refused {
			op.plan.sent.note(op.asked.call, op.until)
		}
		switch {
		case op.verdict != unknown || op.mayHaveHappened(facts):
			kept = append(kept, op)
		case op.kind == opAppend && op.until <= facts.next[op.run]:
			op.plan.lost.note(op.asked.call, op.until)
		}
	}
	relate(kept, h.ops)
	rank(kept)
	var all []porcupine.Operation
	for _, op := range kept {
		all = append(all, porcupine.Operation{Input: &op.asked, Call: op.asked.call, Output: &op.answered, Return: op.back})
	}
	narrow(all)
	return all
}

// rank makes the order of each append its place, from 1, among those of its stream that were answered.
func rank(ops []*chaosOp) {
	streams := map[string][]*chaosOp{}
	for _, op := range ops {
		if op.kind == opAppend && op.order > 0 {
			streams[op.run] = append(streams[op.run], op)
		}
	}
	for _, appends := range streams {
		slices.SortFunc(appends, func(a, b *chaosOp) int { return cmp.Compare(a.order, b.order) })
		for i, op := range appends {
			op.order = i + 1
		}
	}
}

// narrow leaves the checker fewer orders to try: versions only grow, so whoever was told a lower one than another was served
// before. No operation can have been served before the calls of those, nor after the answers of the others. A tail tells what
// was a version at some time before.
func narrow(ops []porcupine.Operation) {
	var told []*porcupine.Operation
	for i := range ops {
		if ops[i].Input.(*asked).kind != opTail && versionOf(&ops[i]) > 0 {
			told = append(told, &ops[i])
		}
	}
	slices.SortStableFunc(told, func(a, b *porcupine.Operation) int { return cmp.Compare(versionOf(a), versionOf(b)) })
	call, latest := int64(0), int64(0) // the last call among those told less, and among all so far
	for i, op := range told {
		if i > 0 && versionOf(told[i-1]) < versionOf(op) {
			call = latest
		}
		latest = max(latest, op.Call)
		op.Call = max(op.Call, call)
	}
	back, first := int64(forever), int64(forever)
	for i := len(told) - 1; i >= 0; i-- {
		if i+1 < len(told) && versionOf(told[i]) < versionOf(told[i+1]) {
			back = first
		}
		first = min(first, told[i].Return)
		told[i].Return = min(told[i].Return, back)
	}
}

// versionOf is the version that an operation's caller was told, 0 if none.
func versionOf(op *porcupine.Operation) uint64 { return op.Output.(*answered).version }

// mayHaveHappened judges an operation without an answer, save appends. The log tells the version of a run's input, but no token.
func (op *chaosOp) mayHaveHappened(facts *logFacts) bool {
	if op.kind == opStart {
		version, happened := facts.inputs[op.run]
		if happened {
			op.answered = answered{verdict: done, version: version, next: -1}
		}
		return happened
	}
	return op.kind == opEnd
}

// relate finds, among all operations, those that others may have met on their way.
func relate(ops, all []*chaosOp) {
	started := map[string]int64{}
	for _, op := range ops {
		if op.kind == opStart && op.verdict != refused {
			started[op.run] = op.asked.call
		}
	}
	for _, op := range ops {
		for _, other := range all {
			if other.asked.call > op.back {
				continue
			}
			closes := other.kind == opEnd || other.kind == opStart && other.takesOver && other.run != op.run
			if op.kind == opAppend && op.verdict == refused && closes && other.back >= started[op.run] {
				op.contested = true
			}
			if op.reason == "RUN_ACTIVE" && other.kind == opStart && other.waits {
				op.waiting = append(op.waiting, other.run)
			}
		}
	}
}
