// Package conformance reads recorded AG-UI event streams with what the protocol requires of whoever consumes them, and
// judges what a consumer made of them. The streams in testdata are this project's own; others in the same form can be
// read with Load.
package conformance

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"reflect"
	"strconv"
	"strings"
)

//go:embed testdata/*.json
var own embed.FS

// Case is one stream and what is expected of it.
type Case struct {
	Name   string            `json:"name"`
	Stream []json.RawMessage `json:"stream"`
	// Input is what the run is started with, nil if the stream alone is recorded.
	Input *struct {
		Messages []json.RawMessage `json:"messages"`
		Tools    json.RawMessage   `json:"tools"`
	} `json:"input"`
	Expect Expect `json:"expect"`
}

// Expect is what the protocol requires.
type Expect struct {
	// Outcome is "completed" if every event must be accepted, "failed" if the one at FailsAt must be refused.
	Outcome string `json:"outcome"`
	FailsAt int    `json:"failsAt"`
	// RunError is true or a part of the message if the run itself reports a failure.
	RunError any `json:"runError"`

	Messages     []any           `json:"messages"`
	MessageCount *int            `json:"messageCount"`
	State        json.RawMessage `json:"state"`
	// EventTypes are the types in the canonical log; the paths start with an index into it.
	EventTypes       []string       `json:"eventTypes"`
	EventTypesAbsent []string       `json:"eventTypesAbsent"`
	EventPaths       map[string]any `json:"eventPaths"`
	EventAbsentPaths []string       `json:"eventAbsentPaths"`

	Warns      *bool `json:"warns"`
	NoWarnings bool  `json:"noWarnings"`

	// Request is part of the RunAgentInput handed out for the run.
	Request            any      `json:"request"`
	RequestAbsentPaths []string `json:"requestAbsentPaths"`
}

// Observed is what a consumer made of a stream.
type Observed struct {
	// FailedAt is the index of the event that was refused, -1 if none was.
	FailedAt int
	Messages []json.RawMessage
	State    json.RawMessage
	Events   []json.RawMessage
	Warnings int
	Request  json.RawMessage
	// RunErrors are the messages of the runs that reported a failure.
	RunErrors []string
}

// Own returns this project's cases.
func Own() ([]Case, error) {
	sub, err := fs.Sub(own, "testdata")
	if err != nil {
		return nil, err
	}
	return load(sub)
}

// Load reads the cases of a folder, in the order of their file names.
func Load(dir string) ([]Case, error) { return load(os.DirFS(dir)) }

func load(dir fs.FS) ([]Case, error) {
	names, err := fs.Glob(dir, "*.json")
	if err != nil {
		return nil, err
	}
	var cases []Case
	for _, name := range names {
		text, err := fs.ReadFile(dir, name)
		if err != nil {
			return nil, err
		}
		c := Case{Name: strings.TrimSuffix(path.Base(name), ".json")}
		if err := decode(text, &c); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		cases = append(cases, c)
	}
	return cases, nil
}

// ThreadID is the thread that the stream names, or one made of the case's name.
func (c *Case) ThreadID() string { return c.firstString("threadId", "t-"+c.Name) }

// RunID is the first run that the stream names, or one made of the case's name.
func (c *Case) RunID() string { return c.firstString("runId", "r-"+c.Name) }

func (c *Case) firstString(name, absent string) string {
	for _, event := range c.Stream {
		var members map[string]any
		if json.Unmarshal(event, &members) == nil {
			if value, ok := members[name].(string); ok {
				return value
			}
		}
	}
	return absent
}

// Check returns how what was observed differs from what is expected; nothing if it conforms.
func (c *Case) Check(o Observed) []string {
	var diffs []string
	differ := func(format string, args ...any) { diffs = append(diffs, fmt.Sprintf(format, args...)) }
	e := &c.Expect
	wantFail := -1
	if e.Outcome == "failed" {
		wantFail = e.FailsAt
	}
	if o.FailedAt != wantFail {
		differ("refused event %d, want %d", o.FailedAt, wantFail)
	}
	c.checkFold(&o, differ)
	c.checkLog(&o, differ)
	if warns := o.Warnings > 0; e.NoWarnings && warns || e.Warns != nil && *e.Warns != warns {
		differ("%d warnings", o.Warnings)
	}
	if !runErrorMatches(e.RunError, o.RunErrors) {
		differ("run errors %q, want %v", o.RunErrors, e.RunError)
	}
	request := value(o.Request)
	if e.Request != nil && !matches(e.Request, request) {
		differ("request %s, want %v", o.Request, e.Request)
	}
	for _, at := range e.RequestAbsentPaths {
		if _, found := lookup(request, at); found {
			differ("request has %s", at)
		}
	}
	return diffs
}

func (c *Case) checkFold(o *Observed, differ func(string, ...any)) {
	e := &c.Expect
	if e.MessageCount != nil && len(o.Messages) != *e.MessageCount {
		differ("%d messages, want %d", len(o.Messages), *e.MessageCount)
	}
	var messages []any
	for _, m := range o.Messages {
		messages = append(messages, value(m))
	}
	if e.Messages != nil && !matches(e.Messages, messages) {
		differ("messages %v, want %v", messages, e.Messages)
	}
	if e.State != nil && !matches(value(e.State), value(o.State)) {
		differ("state %s, want %s", o.State, e.State)
	}
}

func (c *Case) checkLog(o *Observed, differ func(string, ...any)) {
	e := &c.Expect
	var types []string
	var events []any
	for _, text := range o.Events {
		event := value(text)
		name, _ := lookup(event, "type")
		types = append(types, fmt.Sprint(name))
		events = append(events, event)
	}
	if e.EventTypes != nil && !reflect.DeepEqual(types, e.EventTypes) {
		differ("log %v, want %v", types, e.EventTypes)
	}
	for _, absent := range e.EventTypesAbsent {
		for _, name := range types {
			if name == absent {
				differ("log has %s", absent)
			}
		}
	}
	for at, want := range e.EventPaths {
		if got, found := lookup(any(events), at); !found || !matches(want, got) {
			differ("log at %s is %v, want %v", at, got, want)
		}
	}
	for _, at := range e.EventAbsentPaths {
		if _, found := lookup(any(events), at); found {
			differ("log has %s", at)
		}
	}
}

func runErrorMatches(want any, got []string) bool {
	switch want := want.(type) {
	case string:
		return strings.Contains(strings.Join(got, "\n"), want)
	case bool:
		return want == (len(got) > 0)
	}
	return true
}

// matches compares objects on the keys that want names, arrays element by element, everything else exactly.
func matches(want, got any) bool {
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		for key, value := range want {
			held, found := object[key]
			if ok = ok && found && matches(value, held); !ok {
				return false
			}
		}
		return ok
	case []any:
		array, _ := got.([]any)
		if len(array) != len(want) {
			return false
		}
		for i := range want {
			if !matches(want[i], array[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(want, got)
}

// lookup finds the value at a dotted path.
func lookup(in any, at string) (any, bool) {
	for _, key := range strings.Split(at, ".") {
		switch container := in.(type) {
		case map[string]any:
			value, found := container[key]
			if !found {
				return nil, false
			}
			in = value
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(container) {
				return nil, false
			}
			in = container[i]
		default:
			return nil, false
		}
	}
	return in, true
}

func value(text json.RawMessage) any {
	var v any
	if len(text) > 0 {
		_ = decode(text, &v)
	}
	return v
}

func decode(text []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return dec.Decode(into)
}
