package service_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// threadState is a thread as its clients may know it: the sequential specification of runs. What happens without an answer,
// and what the thread does by itself, is not taken as operations, of which the checker would try every order; it is allowed
// for when an answer tells of it:
//   - an append without an answer may have happened at any time since it was called: next is the least that the stream can
//     have reached, and reach the most;
//   - a run whose lease has ended counts as active until an answer says otherwise;
//   - version is the least that it can be, unless it is exact.
type threadState struct {
	version uint64
	exact   bool   // version is the thread's, not less
	fence   uint64 // no token that was granted is higher
	// The stream that may append:
	run     string
	plan    *streamPlan
	token   uint64 // 0 if nobody was told
	next    int
	closed  bool // by a mark
	idle    bool // the run that may have been active is not
	fenced  bool // its token is worthless, while its run is still active
	renewed int64
	ttl     int64
	order   int    // of the last append that was answered
	over    string // the streams before it, each as an overStream
}

// threadModel is the specification in the checker's form.
var threadModel = porcupine.Model{
	Init: func() any { return threadState{exact: true} },
	Step: func(state, input, output any) (bool, any) {
		s, in, out := state.(threadState), input.(*asked), output.(*answered)
		ok := s.step(in, out)
		return ok, s
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", *input.(*asked), *output.(*answered)) },
}

// step takes an operation and reports whether it could have that answer.
func (s *threadState) step(in *asked, out *answered) bool {
	switch in.kind {
	case opStart:
		return s.start(in, out)
	case opAppend:
		return s.append(in, out)
	case opEnd:
		return s.end(in, out)
	case opTail:
		return out.version <= s.version || s.read(out.version, in.back)
	}
	return s.read(out.version, in.back)
}

// active is the run that holds the lease, "" if none does.
func (s *threadState) active() string {
	if s.run == "" || s.closed {
		return ""
	}
	run, over := s.plan.at(s.next)
	if !over {
		return run.id
	}
	return ""
}

// mayHaveExpired reports whether the lease may have ended at a time, and the run been closed. A lease lasts at least half of
// its time after it was renewed.
func (s *threadState) mayHaveExpired(at int64) bool {
	return s.run != "" && !s.closed && (s.idle || at >= s.renewed+s.ttl/2)
}

// reach is the most that the stream can have reached at a time.
func (s *threadState) reach(at int64) int {
	if s.run == "" || s.closed {
		return s.next
	}
	return max(s.next, s.plan.lost.by(at))
}

// mayBeActive reports whether a run can hold the lease at a time.
func (s *threadState) mayBeActive(run string, at int64) bool {
	for next := s.next; s.run != "" && !s.closed && next <= s.reach(at); next++ {
		if planned, over := s.plan.at(next); !over && planned.id == run {
			return true
		}
	}
	return false
}

// mayBeIdle reports whether no run may hold the lease at a time.
func (s *threadState) mayBeIdle(at int64) bool {
	for next := s.next; s.active() != "" && next <= s.reach(at); next++ {
		if _, over := s.plan.at(next); over {
			return true
		}
	}
	return s.active() == "" || s.mayHaveExpired(at)
}

// grow notes that an operation added so many entries at least. told is the version after that, 0 if it was not told.
func (s *threadState) grow(least, told uint64) bool {
	if told == 0 {
		s.version, s.exact = s.version+least, s.exact && least == 0
		return true
	}
	ok := told >= s.version+least && (least > 0 || !s.exact || told == s.version)
	s.version, s.exact = told, true
	return ok
}

// read notes that the thread was at a version. It grows by itself if a run expires.
func (s *threadState) read(version uint64, at int64) bool {
	switch {
	case version <= s.version || !s.exact:
	case s.reach(at) > s.next: // or it expired, which is still to be told
		s.exact = false
	case s.mayHaveExpired(at):
		s.closed, s.exact = true, false
	}
	return s.grow(0, version)
}

func (s *threadState) start(in *asked, out *answered) bool {
	if out.verdict == refused {
		return out.reason != "RUN_ACTIVE" ||
			!in.takesOver && (s.mayBeActive(out.holder, in.back) || slices.Contains(in.waiting, out.holder))
	}
	if s.known(in.run) || out.token != 0 && out.token <= s.fence {
		return false
	}
	least := uint64(1)
	if !s.mayBeIdle(in.back) {
		if !in.takesOver {
			return false
		}
		least = 2 // the mark of the run that was truncated
	}
	if !s.grow(least, out.version) {
		return false
	}
	if s.run != "" {
		s.over += overStream{s.run, s.next, s.order}.String()
	}
	s.fence = max(s.fence+1, out.token)
	s.run, s.plan, s.token, s.next, s.closed, s.fenced, s.idle = in.run, in.plan, out.token, 0, false, false, false
	s.renewed, s.ttl, s.order = in.call, in.ttl, 0
	return true
}

// known reports whether a stream was started.
func (s *threadState) known(run string) bool {
	_, over := s.ended(run)
	return over || s.run == run
}

// overStream is a stream that another has followed.
type overStream struct {
	run   string
	next  int // the offset after its last event
	order int // of the last append that was answered
}

// String is its text in threadState.over.
func (o overStream) String() string { return fmt.Sprintf("%s=%d#%d ", o.run, o.next, o.order) }

// ended returns a stream that another has followed.
func (s *threadState) ended(run string) (o overStream, ok bool) {
	_, rest, ok := strings.Cut(" "+s.over, " "+run+"=")
	if ok {
		text, _, _ := strings.Cut(rest, " ")
		next, order, _ := strings.Cut(text, "#")
		o.run = run
		o.next, _ = strconv.Atoi(next)
		o.order, _ = strconv.Atoi(order)
	}
	return o, ok
}

// inTurn notes the place of an answered append among those of its stream, and reports whether it is the next: they are judged
// in their order, whether the stream may append or not.
func (s *threadState) inTurn(in *asked) bool {
	o, over := s.ended(in.run)
	switch {
	case in.order == 0:
	case over && in.order != o.order+1 || s.run == in.run && in.order != s.order+1:
		return false
	case over:
		s.over = strings.Replace(s.over, o.String(), overStream{o.run, o.next, in.order}.String(), 1)
	case s.run == in.run:
		s.order = in.order
	}
	return true
}

func (s *threadState) append(in *asked, out *answered) bool {
	switch {
	case !s.inTurn(in):
		return false
	case out.verdict == refused:
		return s.refuse(in, out)
	case s.run == in.run && s.mayAppend(in):
		return s.take(in, out)
	}
	o, over := s.ended(in.run)
	if s.run == in.run && s.closed {
		o.next, over = s.next, true
	}
	// What a stream that is over had received is acknowledged again.
	next := max(o.next, in.plan.lost.by(in.back))
	received := over && in.first < in.until && in.until <= next && (out.next < 0 || out.next == in.until)
	return received && (out.version == 0 || s.read(out.version, in.back))
}

// mayAppend reports whether the writer has the right to.
func (s *threadState) mayAppend(in *asked) bool {
	return !s.closed && !s.fenced && (s.token == 0 || in.token == 0 || s.token == in.token)
}

// take adds what is new of an append.
func (s *threadState) take(in *asked, out *answered) bool {
	reach, next := s.reach(in.back), max(s.next, in.until)
	if in.first > reach {
		return false
	}
	if in.first < in.until && in.until <= reach && s.mayHaveExpired(in.back) {
		return s.resend(in, out)
	}
	if out.next >= 0 {
		// The events of appends that are still to be answered may be durable: a server that does not learn how a commit of several
		// has ended looks at what there is, and answers each with that.
		if out.next < next || out.next > max(in.until, reach, in.plan.sent.by(in.back)) {
			return false
		}
		next = out.next
	}
	added := uint64(max(0, next-reach)) // what lies below may have been counted in the version already
	s.exact = s.exact && reach == s.next
	s.next, s.renewed, s.idle = next, max(s.renewed, in.call), false
	return s.grow(added, out.version)
}

// resend takes events that may have been received before by a stream that may be over: they do not renew its lease then, and
// the answer has the offset after them instead of the stream's.
func (s *threadState) resend(in *asked, out *answered) bool {
	s.exact = s.exact && max(in.until, s.reach(in.back)) <= s.next // some may be new
	switch {
	case out.next >= 0 && (out.next < in.until || out.next > max(s.reach(in.back), in.plan.sent.by(in.back))):
		return false
	case out.next == in.until && in.until < s.next:
		return s.close(out.version, in.back)
	default:
		s.next = max(s.next, in.until, out.next)
	}
	return out.version == 0 || s.read(out.version, in.back)
}

// close notes that the run turns out to be over. told is the version then, 0 if it was not told: the run's mark is counted in it,
// or is still to come, where its writer was only fenced off.
func (s *threadState) close(told uint64, at int64) bool {
	before, exact := s.version, s.exact && !s.idle && s.reach(at) == s.next
	s.closed, s.exact = true, false
	if told == 0 {
		return true
	}
	ok := s.grow(0, told) && (!exact || told <= before+1)
	s.exact = told > before
	return ok
}

// refuse judges a refused append: it must have had no right, or come too early.
func (s *threadState) refuse(in *asked, out *answered) bool {
	if out.reason == "OFFSET_GAP" {
		return s.run == in.run && in.first > s.next
	}
	if out.reason != "LEASE_LOST" && out.reason != "RUN_CLOSED" {
		return false
	}
	_, over := s.ended(in.run)
	switch {
	case over || s.run == in.run && (s.closed || s.fenced):
	case s.run != in.run:
		return false
	case in.contested && out.reason == "LEASE_LOST":
		s.fenced = true
	case s.mayHaveExpired(in.back):
		least := uint64(1)
		if s.idle || s.reach(in.back) > s.next { // the mark may be among what the last version that was told counts
			least, s.exact = 0, false
		}
		s.closed = true
		return s.grow(least, 0)
	default:
		return false
	}
	return true
}

// end ends the run, or gives up the interrupts that it left open, if it is the last one.
func (s *threadState) end(in *asked, out *answered) bool {
	if out.verdict == refused {
		return !s.known(in.run)
	}
	if out.verdict == done && !s.known(in.run) {
		return false
	}
	last := s.run == in.run && !s.closed
	if last && s.reach(in.back) > s.next { // it may have been over already
		s.idle, s.exact = true, false
		return s.grow(0, out.version)
	}
	if last {
		run, over := s.plan.at(s.next)
		last = run.id == in.run && (!over || run.interrupted)
	}
	if !last {
		return out.version == 0 || s.read(out.version, in.back)
	}
	s.closed = true
	s.fence++
	return s.grow(1, out.version)
}

// linearize reports whether there is an order of the operations of a history, each at some time between its call and its
// answer, in which a thread would have given these answers. It gives up after a while, with the result Unknown.
func linearize(ops []porcupine.Operation, limit time.Duration) porcupine.CheckResult {
	if slices.ContainsFunc(ops, func(op porcupine.Operation) bool { return op.Call > op.Return }) {
		return porcupine.Illegal // by the order of the versions, see narrow
	}
	return porcupine.CheckOperationsTimeout(threadModel, ops, limit)
}

// outOfTurn finds two operations of which the first had its answer before the second was called, with a higher version; nil if
// there are none.
func outOfTurn(ops []porcupine.Operation) (first, second *porcupine.Operation) {
	for i := range ops {
		for j := range ops {
			a, b := ops[i].Input.(*asked), ops[j].Input.(*asked)
			if a.kind != opTail && b.kind != opTail && a.back < b.call && versionOf(&ops[j]) > 0 && versionOf(&ops[i]) > versionOf(&ops[j]) {
				return &ops[i], &ops[j]
			}
		}
	}
	return nil, nil
}

// obstacle describes where the longest order that was found ends: the state there, and what could not follow.
func obstacle(ops []porcupine.Operation) string {
	_, info := porcupine.CheckOperationsVerbose(threadModel, ops, 10*time.Second)
	var longest []porcupine.Operation
	for _, order := range slices.Concat(info.PartialLinearizationsOperations()...) {
		if len(order) > len(longest) {
			longest = order
		}
	}
	state, placed := threadState{exact: true}, map[any]bool{}
	for _, op := range longest {
		state.step(op.Input.(*asked), op.Output.(*answered))
		placed[op.Input] = true
	}
	var b strings.Builder
	state.over = "…" + state.over[max(0, len(state.over)-200):]
	fmt.Fprintf(&b, "; %d in order, then %+v", len(longest), state)
	tell := func(op porcupine.Operation) {
		in := *op.Input.(*asked)
		lost := 0
		if in.plan != nil {
			lost = in.plan.lost.by(in.back)
		}
		in.plan = nil
		fmt.Fprintf(&b, "\n\t%+v, lost until %d -> %+v", in, lost, *op.Output.(*answered))
	}
	b.WriteString("\n  before:")
	for _, op := range longest[max(0, len(longest)-12):] {
		tell(op)
	}
	if early, late := outOfTurn(ops); early != nil {
		b.WriteString("\n  out of turn:")
		tell(*early)
		tell(*late)
	}
	b.WriteString("\n  left:")
	left := slices.DeleteFunc(slices.Clone(ops), func(op porcupine.Operation) bool { return placed[op.Input] })
	slices.SortFunc(left, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	for _, op := range left[:min(12, len(left))] {
		tell(op)
	}
	return b.String()
}
