package agui_test

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/agui/aguitest"
)

// trio is one thread three times: kept live, replayed from its log now and then, and restored from a stored fold now
// and then.
type trio struct {
	t       *rapid.T
	id      string
	lim     agui.Limits
	log     []byte
	threads [3]*agui.Thread // live, replayed, restored
	store   foldStore
	stored  int // length of the log at the stored fold
	over    bool
	offset  uint64
}

func newTrio(t *rapid.T, lim agui.Limits) *trio {
	m := &trio{t: t, id: "t", lim: lim}
	for i := range m.threads {
		m.threads[i] = agui.NewThread(m.id, lim)
	}
	return m
}

// each does the same to the three threads, which must record the same.
func (m *trio) each(do func(*agui.Thread) agui.Applied) agui.Applied {
	applied := do(m.threads[0])
	for _, th := range m.threads[1:] {
		if other := do(th); string(other.Stored) != string(applied.Stored) {
			m.t.Fatalf("entries\n%q\nand\n%q", applied.Stored, other.Stored)
		}
	}
	m.log = append(m.log, applied.Stored...)
	return applied
}

func (m *trio) step(s aguitest.Step) {
	switch {
	case s.Input != nil:
		m.open()
		m.begin(s.Input)
	case s.Await != "":
		m.open()
		for _, th := range m.threads {
			th.Await(s.Await)
		}
	case s.Abandon:
		m.truncate()
	case s.End:
		m.end()
	case !m.over:
		m.apply(s.Event)
	}
}

// open prepares for another stream.
func (m *trio) open() {
	m.truncate()
	m.over, m.offset = false, 0
}

func (m *trio) truncate() {
	if m.threads[0].Running() {
		m.each(func(th *agui.Thread) agui.Applied { return th.Truncate(agui.LeaseExpired) })
		m.check()
	}
}

// end is what somebody's wish to end the run does; what comes after it in the stream is not taken.
func (m *trio) end() {
	before := len(m.threads[0].OpenInterrupts())
	applied := m.each(func(th *agui.Thread) agui.Applied { return th.End("enough") })
	m.over = m.over || applied.Entries > 0
	if th := m.threads[0]; th.Running() || len(th.OpenInterrupts()) > 0 || before > 0 && applied.Entries != 1 || applied.Entries > 0 && !th.Closed() {
		m.t.Fatalf("recorded %d entries; running %v, closed %v, interrupts %s", applied.Entries, th.Running(), th.Closed(), th.OpenInterrupts())
	}
	m.check()
	m.shuffle()
}

func (m *trio) begin(text []byte) {
	in, _, v := agui.DecodeInput(text, m.lim)
	if v != nil {
		m.t.Fatalf("input %s: %v", text, v)
	}
	start := agui.Start{Input: in, Now: time.Unix(0, 0), AllowUnanswered: true}
	if rapid.IntRange(0, 9).Draw(m.t, "patch") == 0 {
		start.StatePatch = agui.Value(`[{"op":"add","path":"/started","value":true}]`)
	}
	var refusal error
	applied := m.each(func(th *agui.Thread) agui.Applied {
		a, err := th.Begin(start)
		refusal = err
		return a
	})
	if refusal != nil { // the threads are to be thrown away
		var refused *agui.RefusalError
		var v *agui.Violation
		if !errors.As(refusal, &refused) && !errors.As(refusal, &v) {
			m.t.Fatalf("begin: %v", refusal)
		}
		m.over = true
		m.reload(0)
		m.reload(1)
		m.threads[2] = m.loaded()
	}
	if (refusal == nil) != (applied.Entries == 1) {
		m.t.Fatalf("begin recorded %d entries, and returned %v", applied.Entries, refusal)
	}
	m.check()
}

func (m *trio) apply(event []byte) {
	var violation *agui.Violation
	first := true
	applied := m.each(func(th *agui.Thread) agui.Applied {
		a, v := th.Apply(m.offset, event)
		if !first && (v == nil) != (violation == nil) || !first && v != nil && *v != *violation {
			m.t.Fatalf("%s: %v and %v", event, violation, v)
		}
		violation, first = v, false
		return a
	})
	switch {
	case violation == nil:
		m.offset++
		if applied.Entries == 0 {
			m.t.Fatalf("%s left no entry", event)
		}
	case violation.Fatal():
		m.over = true
		m.each(func(th *agui.Thread) agui.Applied { return th.Fail(m.offset, violation) })
	}
	if violation == nil || m.threads[0].Closed() {
		m.check()
		m.shuffle()
	}
}

// check compares the threads with each other.
func (m *trio) check() {
	m.t.Helper()
	for i, th := range m.threads {
		if wrong := sound(th); wrong != "" {
			m.t.Fatalf("thread %d: %s", i, wrong)
		}
		if wrong := differ(m.threads[0], th); wrong != "" {
			m.t.Fatalf("threads 0 and %d: %s", i, wrong)
		}
	}
}

// shuffle reloads threads now and then, and lets the limits change when all are reloaded.
func (m *trio) shuffle() {
	switch rapid.IntRange(0, 11).Draw(m.t, "reload") {
	case 0, 1:
		m.reload(1)
	case 2, 3:
		m.save()
		m.threads[2] = m.loaded()
	case 4:
		m.save()
	case 5:
		m.threads[2] = m.loaded() // an older fold, and the log since
	case 6:
		m.lim = limits(m.t)
		m.reload(0)
		m.reload(1)
		m.threads[2] = m.loaded()
	default:
		return
	}
	m.check()
}

func (m *trio) reload(i int) { m.threads[i] = replay(m.t, m.id, m.log, m.lim) }

func (m *trio) save() {
	m.store.write(m.t, m.threads[2])
	m.stored = len(m.log)
}

// loaded is the thread as a store loads it: the fold, then the log since.
func (m *trio) loaded() *agui.Thread {
	th := m.store.restore(m.t, m.id, m.lim)
	if errs := th.ReplayAll(m.log[m.stored:]); len(errs) > 0 {
		m.t.Fatalf("replay: %v", errs)
	}
	return th
}

// limits are the ordinary ones, or such that streams meet them.
func limits(t *rapid.T) agui.Limits {
	lim := agui.DefaultLimits()
	if rapid.IntRange(0, 2).Draw(t, "small limits") == 0 {
		lim.State, lim.Context, lim.PatchOps, lim.OpenItems = 120, 3000, 2, 25
	}
	return lim
}

// TestThreadIsItsLog folds streams with and without faults: what is replayed or restored at any moment is the
// live thread, and stays it.
func TestThreadIsItsLog(t *testing.T) {
	t.Parallel()
	rapid.Check(t, threadIsItsLog)
}

func threadIsItsLog(t *rapid.T) {
	m := newTrio(t, limits(t))
	faults := rapid.SampledFrom([]int{0, 0, 4}).Draw(t, "faults")
	for _, s := range aguitest.Stream(t, aguitest.Options{Faults: faults}) {
		m.step(s)
	}
}

// TestGeneratedStreamsAreAccepted keeps the generator honest: without faults nothing is refused.
func TestGeneratedStreamsAreAccepted(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{false, true} {
		rapid.Check(t, func(t *rapid.T) {
			th, offset := agui.NewThread("t", agui.DefaultLimits()), uint64(0)
			for i, s := range aguitest.Stream(t, aguitest.Options{Plain: plain}) {
				if err := take(th, s, &offset); err != nil {
					t.Fatalf("step %d, %s%s%s: %v", i, s.Input, s.Await, s.Event, err)
				}
			}
		})
	}
}

// take takes a step and returns why it was refused.
func take(th *agui.Thread, s aguitest.Step, offset *uint64) error {
	switch {
	case s.Input != nil:
		in, _, v := agui.DecodeInput(s.Input, agui.DefaultLimits())
		if v != nil {
			return v
		}
		*offset = 0
		_, err := th.Begin(agui.Start{Input: in, AllowUnanswered: true})
		return err
	case s.Await != "":
		*offset = 0
		th.Await(s.Await)
	case s.Abandon:
		th.Truncate(agui.LeaseExpired)
	case s.End:
		th.End("")
	default:
		if _, v := th.Apply(*offset, s.Event); v != nil {
			return v
		}
		*offset++
	}
	return nil
}
