package agui

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/threadsvc/threadsvc/agui/jsondoc"
)

// phase says where a thread is between its runs.
type phase int8

// The phases. They are stored within the tracking.
const (
	phaseIdle     phase = iota // no run was ever awaited
	phaseAwaited               // a run is open or expected, and its RUN_STARTED has not come
	phaseRunning               // between RUN_STARTED and the terminal event
	phaseFinished              // after RUN_FINISHED
	phaseFailed                // after RUN_ERROR
	phaseClosed                // after the service closed the run: truncated, or failed by a violation
)

// itemKind is a kind of item that events open, continue and close.
type itemKind string

const (
	itemText      itemKind = "text message"
	itemCall      itemKind = "tool call"
	itemReasoning itemKind = "reasoning message"
	itemSpan      itemKind = "reasoning span"
	itemActivity  itemKind = "activity"
)

// item names one item within a run, as its kind and its id. An id contains no NUL.
type item string

func itemOf(kind itemKind, id string) item { return item(string(kind) + "\x00" + id) }

// recentItem is the item that was named last: neighbouring events tend to name the same.
type recentItem struct {
	kind itemKind
	id   string
	item item
}

// itemOf is the function of that name, without its cost if the item is the one that was named last.
func (t *tracking) itemOf(kind itemKind, id string) item {
	if t.recent.kind != kind || t.recent.id != id {
		t.recent = recentItem{kind, id, itemOf(kind, id)}
	}
	return t.recent.item
}

// stepOf names a step by its owner and its name; a long name is represented by its hash.
func stepOf(owner string, name Value) item {
	literal := jsondoc.AppendQuote(nil, unquote(name))
	if len(literal) > MaxIDBytes {
		literal = fmt.Appendf(nil, "%x", sha256.Sum256(literal))
	}
	return item(owner + "\x00" + string(literal))
}

// set is a set of strings.
type set[K ~string] map[K]struct{}

func (s set[K]) has(k K) bool { _, ok := s[k]; return ok }
func (s set[K]) add(k K)      { s[k] = struct{}{} }

// tracking is what a thread remembers of its runs: what verification, chunk expansion and the rules for run inputs need
// beside messages and state. Its JSON form is stored with the fold, texts as base64, so that they stay exact.
type tracking struct {
	Phase phase  `json:"phase"`
	RunID string `json:"runId,omitempty"`
	// Opened tells whether the run was announced (Applied.Opened, or by StartRun).
	Opened bool `json:"opened,omitempty"`

	// This group is reset by each RUN_STARTED.

	ProtocolVersion Value           `json:"protocolVersion,omitempty"`
	Open            set[item]       `json:"open,omitempty"`
	Owners          map[item]string `json:"owners,omitempty"` // the subagent of each item; empty for the parent agent
	Steps           set[item]       `json:"steps,omitempty"`
	Subagents       map[string]bool `json:"subagents,omitempty"` // of this run; true while active
	Lanes           lanes           `json:"lanes,omitzero"`
	Calls           []string        `json:"calls,omitempty"`    // tool calls started in this run, in order
	Started         set[string]     `json:"started,omitempty"`  // the same, to find them
	Answered        set[string]     `json:"answered,omitempty"` // tool calls that got a result in this run
	TouchedState    bool            `json:"touchedState,omitempty"`

	// Pending are the tool calls that the last completed run left for the application to answer.
	Pending []string `json:"pending,omitempty"`
	// Interrupts are the open ones, as they came.
	Interrupts []Value `json:"interrupts,omitempty"`
	// Suspended are the tool calls of the interrupted runs that the present run continues, which wait for no repair.
	Suspended []string `json:"suspended,omitempty"`
	// Resumed are the interrupts that the last run was started to answer, and ResumedCalls the calls suspended with them,
	// until a run gets an ordinary end: if that one does not, another may answer them again.
	Resumed      []Value  `json:"resumed,omitempty"`
	ResumedCalls []string `json:"resumedCalls,omitempty"`
	recent       recentItem

	// IncompleteTouch is true if the state was last touched by a run that got no ordinary end.
	IncompleteTouch bool `json:"incompleteTouch,omitempty"`

	// Resync says what changes of the state were lost, nil if none were since the state was last set as a whole.
	Resync *Resync `json:"resync,omitempty"`

	// What rewinds have undone, and where the thread was forked from.
	Undone []Undone `json:"undone,omitempty"`
	Origin *Origin  `json:"origin,omitempty"`
	// Amended are the last amendments, oldest first.
	Amended []Amended `json:"amended,omitempty"`
}

// resetRun forgets what belongs to one run.
func (t *tracking) resetRun() {
	t.ProtocolVersion = nil
	t.Open, t.Owners, t.Steps = set[item]{}, map[item]string{}, set[item]{}
	t.Subagents, t.Started, t.Answered = map[string]bool{}, set[string]{}, set[string]{}
	t.Lanes, t.Calls = lanes{}, nil
	t.TouchedState = false
}

// size is the number of things tracked for the run.
func (t *tracking) size() int {
	return len(t.Owners) + len(t.Steps) + len(t.Subagents) + len(t.Calls) + len(t.Answered)
}

// noteCall notes a tool call that the run started.
func (t *tracking) noteCall(id string) {
	if !t.Started.has(id) {
		t.Started.add(id)
		t.Calls = append(t.Calls, id)
	}
}

// end notes that the run is over. An ordinary end is one the agent meant: RUN_FINISHED.
func (t *tracking) end(to phase, ordinary bool) {
	if t.TouchedState {
		t.IncompleteTouch = !ordinary
	}
	version, touched := t.ProtocolVersion, t.TouchedState
	t.resetRun()
	t.Phase = to
	t.ProtocolVersion, t.TouchedState = version, touched // for a RUN_ERROR that comes late
}

// encode returns the stored form.
func (t *tracking) encode() []byte {
	text, err := json.Marshal(t)
	if err != nil { // cannot happen: there is nothing in it that JSON lacks
		panic(fmt.Sprintf("agui: encode tracking: %v", err))
	}
	return text
}

// decodeTracking reads the stored form; nil is that of a new thread.
func decodeTracking(text []byte) (tracking, error) {
	var t tracking
	t.resetRun()
	if len(text) == 0 {
		return t, nil
	}
	if err := json.Unmarshal(text, &t); err != nil {
		return t, fmt.Errorf("agui: stored tracking: %w", err)
	}
	return t, nil
}
