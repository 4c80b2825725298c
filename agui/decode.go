package agui

import (
	"fmt"
	"sync"
)

// Decode reads one event and enforces its shape: the stages decode, enforce and the part of compatibility that needs
// no memory of earlier events (binary content parts).
//
// On success Event.Text is the canonical text: the received bytes themselves, not a copy, when nothing had to be
// removed or upgraded; otherwise a new text without what was removed and byte for byte as received elsewhere. It too
// respects lim.Event. Decoding a canonical text again gives the same text and no warning. The caller must not change
// text while the event is used.
//
// An event that the protocol tells a consumer to drop, because its type (or the subtype of a
// REASONING_ENCRYPTED_VALUE) is unknown, comes back with its Type, a nil Text and one warning.
//
// A violation comes without event and warnings. Its Path, like those of the warnings, is relative to the received text.
func Decode(text []byte, lim Limits) (Event, []Warning, *Violation) {
	d := newDecoder()
	defer d.release()
	warnings, v := d.decodeEvent(text, lim)
	return d.event, warnings, v
}

// decodeEvent is Decode, which leaves the event in the decoder, where it is good until the decoder is released.
func (d *decoder) decodeEvent(text []byte, lim Limits) ([]Warning, *Violation) {
	if v := checkText(text, lim); v != nil {
		return nil, v
	}
	d.begin(text, lim)
	event, warning, v := d.eventShape()
	if v != nil {
		return nil, v
	}
	if event == nil {
		d.event.Type = EventType(d.unknown)
		return []Warning{warning}, nil
	}
	d.about = event.name
	d.event.Type = EventType(event.name)
	return d.decode(event)
}

// checkText judges what needs no shape: the size, and that the text is one JSON object.
func checkText(text []byte, lim Limits) *Violation {
	if len(text) > lim.Event {
		return tooLarge(text, lim)
	}
	if v := checkJSON(text, lim.Depth); v != nil {
		return v
	}
	if text[skipSpace(text, 0)] != '{' {
		return &Violation{Code: JSONMalformed, Detail: "not an object"}
	}
	return nil
}

func tooLarge(text []byte, lim Limits) *Violation {
	return &Violation{Code: EventTooLarge, Detail: fmt.Sprintf("%d bytes, the limit is %d", len(text), lim.Event)}
}

// decoder walks one checked text along a shape. It collects what to cut from the text, the warnings, and the first
// violation. Decoders are pooled.
type decoder struct {
	text  []byte
	pos   int
	about string // what is decoded, for people: the event type
	event Event

	path   []pathStep
	edits  []textEdit // ascending, not overlapping
	names  [][]byte   // unknown names of the closed objects being walked, to find repeated ones
	word   string     // the decoded identifier or closed-set string read last
	recent string     // the identifier read last, which outlives the event

	unknown   string // the tag that made a value unrecognisable, not sanitised
	unknownAt string // and its pointer

	lim        Limits
	warnings   []Warning
	unrecorded int // warnings beyond lim.Warnings
	violation  *Violation
}

// textEdit replaces text[start:end].
type textEdit struct {
	start, end int
	with       []byte
}

var decoders = sync.Pool{New: func() any { return new(decoder) }}

func newDecoder() *decoder { return decoders.Get().(*decoder) }

func (d *decoder) begin(text []byte, lim Limits) {
	d.text, d.pos = text, skipSpace(text, 0)
	d.lim = lim
	d.lim.Warnings = max(lim.Warnings, 1)
}

// pooledEdits bounds the memory a pooled decoder keeps from one extraordinary event.
const pooledEdits = 32

func (d *decoder) release() {
	clear(d.edits[:cap(d.edits)])
	clear(d.names[:cap(d.names)])
	d.path, d.edits, d.names = d.path[:0], d.edits[:0], d.names[:0]
	if cap(d.edits) > pooledEdits || cap(d.names) > pooledEdits {
		d.edits, d.names = nil, nil
	}
	d.text, d.about, d.word, d.unknown, d.unknownAt = nil, "", "", "", ""
	d.event, d.warnings, d.unrecorded, d.violation = Event{}, nil, 0, nil
	decoders.Put(d)
}

// eventShape finds the shape of the event by its type. It returns no shape but a warning when the type is unknown.
func (d *decoder) eventShape() (*shape, Warning, *Violation) {
	value, next := findMember(d.text, skipSpace(d.text, d.pos+1), "type")
	if value < 0 {
		return nil, Warning{}, &Violation{Code: FieldMissing, Path: "/type", Detail: "an event needs a type"}
	}
	if d.text[value] != '"' {
		return nil, Warning{}, &Violation{Code: FieldMalformed, Path: "/type", Detail: wrongType(d.text[value], "a string")}
	}
	name := unquoted(d.text[value:skipString(d.text, value)])
	if s := eventShapes[string(name)]; s != nil {
		return s, Warning{}, nil
	}
	if again, _ := findMember(d.text, next, "type"); again >= 0 {
		return nil, Warning{}, &Violation{Code: JSONMalformed, Path: "/type", Detail: "repeated name"}
	}
	d.unknown = string(name)
	return nil, Warning{Code: EventUnknown, Path: "/type", Detail: printable(d.unknown), Removed: d.text}, nil
}

// decode walks the text along its shape and leaves the event in the decoder, empty if there is a violation. When something was removed or upgraded it walks the canonical text once more,
// which finds nothing else to do and leaves the event's fields aliasing the new text.
func (d *decoder) decode(s *shape) ([]Warning, *Violation) {
	switch d.check(s) {
	case bad:
		d.event = Event{}
		return nil, d.violation
	case gone:
		w := Warning{Code: MemberUnknown, Path: d.unknownAt, Detail: printable(d.unknown), Removed: d.text}
		d.event = Event{Type: d.event.Type}
		return []Warning{w}, nil
	}
	if len(d.edits) > 0 {
		if d.canonicalise(); len(d.text) > d.lim.Event { // upgraded parts are longer than what they replace
			d.event = Event{}
			return nil, tooLarge(d.text, d.lim)
		}
		d.check(s)
	}
	d.event.Text = d.text[:len(d.text):len(d.text)]
	return d.recorded(), nil
}

// canonicalise applies the edits and makes the decoder walk the result.
func (d *decoder) canonicalise() {
	size := len(d.text)
	for _, e := range d.edits {
		size += len(e.with) - (e.end - e.start)
	}
	text, from := make([]byte, 0, size), 0
	for _, e := range d.edits {
		text = append(append(text, d.text[from:e.start]...), e.with...)
		from = e.end
	}
	d.text = append(text, d.text[from:]...)
	d.pos = skipSpace(d.text, 0)
	d.event = Event{Type: d.event.Type}
	clear(d.edits)
	d.edits = d.edits[:0]
}

// cut removes text[start:end]. What is cut in a row becomes one edit, so a text full of unknown members costs little.
func (d *decoder) cut(start, end int) {
	if n := len(d.edits); n > 0 && d.edits[n-1].end == start {
		d.edits[n-1].end = end
		return
	}
	d.edits = append(d.edits, textEdit{start: start, end: end})
}

// warn records a warning about the value the path leads to.
func (d *decoder) warn(w Warning) {
	if len(d.warnings) == d.lim.Warnings {
		d.unrecorded++
		return
	}
	if w.Path == "" {
		w.Path = d.pointer()
	}
	d.warnings = append(d.warnings, w)
}

// recorded returns the warnings, the last of which counts those that were not recorded.
func (d *decoder) recorded() []Warning {
	if d.unrecorded > 0 {
		last := &d.warnings[len(d.warnings)-1]
		last.Detail = fmt.Sprintf("%s (and %d more warnings)", last.Detail, d.unrecorded)
	}
	return d.warnings
}

// rewindPoint is a place to rewind to when what was walked since is removed as a whole.
type rewindPoint struct{ edits, warnings, unrecorded int }

func (d *decoder) mark() rewindPoint {
	return rewindPoint{len(d.edits), len(d.warnings), d.unrecorded}
}

func (d *decoder) rewind(m rewindPoint) {
	d.edits, d.warnings, d.unrecorded = d.edits[:m.edits], d.warnings[:m.warnings], m.unrecorded
}

// fail records a violation at the value the path leads to, unless an earlier one stands.
func (d *decoder) fail(code Code, detail string) verdict {
	if d.violation == nil {
		d.violation = &Violation{Code: code, Path: d.pointer(), Detail: detail}
	}
	return bad
}

// failAt is fail for a member of the value the path leads to.
func (d *decoder) failAt(code Code, name, detail string) verdict {
	d.push(name)
	v := d.fail(code, detail)
	d.pop()
	return v
}
