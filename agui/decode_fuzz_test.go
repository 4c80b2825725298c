package agui

import (
	"bytes"
	"fmt"
	"reflect"
	"sort"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

// place is where a property can be added to a closed object of a text.
type place struct {
	pointer string // of the object
	offset  int
	first   bool // before the object's first member; else after some member
}

// placesOf lists the places in the value at i, found by walking the schema's shapes.
func placesOf(s *shape, text []byte, i int, pointer string) []place {
	switch {
	case s.kind == kindUnion:
		tag, _ := findMember(text, skipSpace(text, i+1), s.tag)
		return placesOf(s.options[string(unquoted(text[tag:skipString(text, tag)]))], text, i, pointer)
	case s.kind == kindObject:
		return placesInObject(s, text, i, pointer)
	case s.kind == kindArray && s.element.kind != kindOperation, s.kind == kindText && text[i] == '[':
		var places []place
		for n, i := 0, i+1; text[i] != ']'; n++ {
			places = append(places, placesOf(s.element, text, i, fmt.Sprintf("%s/%d", pointer, n))...)
			if i = skipValue(text, i); text[i] == ',' {
				i++
			}
		}
		return places
	}
	return nil
}

func placesInObject(s *shape, text []byte, i int, pointer string) []place {
	places := []place{{pointer, i + 1, true}}
	for i++; text[i] != '}'; {
		name, value := memberAt(text, i)
		places = append(places, placesOf(s.fields[s.field(name)].shape, text, value, pointer+"/"+string(name))...)
		i = skipValue(text, value)
		places = append(places, place{pointer, i, false})
		if text[i] == ',' {
			i++
		}
	}
	return places
}

// Whatever is added to closed objects is stripped again, exactly, with a warning for each at its path.
func TestDecodeStripsWhatWasAdded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		original := rapid.SampledFrom(fullEvents).Draw(t, "event")
		event, _, _ := Decode([]byte(original), DefaultLimits())
		places := placesOf(eventShapes[string(event.Type)], []byte(original), 0, "")
		at := rapid.SliceOfN(rapid.IntRange(0, len(places)-1), 1, 20).Draw(t, "places")
		sort.Ints(at)
		text, paths, from := []byte(nil), []string(nil), 0
		for n, i := range at {
			p, name := places[i], fmt.Sprintf("~new%d", n)
			text = append(append(text, original[from:p.offset]...), addition(t, name, p.first)...)
			paths, from = append(paths, p.pointer+"/~0new"+name[4:]), p.offset
		}
		text = append(text, original[from:]...)
		canonical, warnings, v := Decode(text, DefaultLimits())
		if v != nil || string(canonical.Text) != original {
			t.Fatalf("%s\ngave %s, %v", text, canonical.Text, v)
		}
		for i, w := range warnings {
			if i >= len(paths) || w.Code != PropertyUnknown || w.Path != paths[i] {
				t.Fatalf("warnings %v, want paths %q", warnings, paths)
			}
		}
		if len(warnings) != len(paths) || !reflect.DeepEqual(canonical, event) {
			t.Fatalf("%d warnings, want %d; event %+v", len(warnings), len(paths), canonical)
		}
	})
}

// addition is an unknown member with the comma it needs and some white space.
func addition(t *rapid.T, name string, first bool) string {
	value := rapid.SampledFrom([]string{`null`, `-1e400`, `"\"},{"`, `{"a":[{}],"a":1}`, `[ "]" ]`, `true`}).Draw(t, "value")
	space := rapid.SampledFrom([]string{"", " ", "\n\t"}).Draw(t, "space")
	if first {
		return space[:0] + `"` + name + `"` + space + `:` + value + space + `,` + space
	}
	return space + `,` + space + `"` + name + `":` + space + value
}

func FuzzDecode(f *testing.F) {
	for _, text := range fullEvents {
		f.Add([]byte(text))
	}
	for _, text := range []string{
		fullInput, `{"type":"X"}`, `{"type":"RAW","event":1,"x":{"a":1},"y":2}`, `[1,{"a":[]}]`, `{"type":"RUN_ERROR","message":"\ud800","usage":[{"x":1}]}`,
		`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"u","role":"user","content":[{"type":"binary","mimeType":"image/a","data":"d"},{"type":"z"}]},{"role":"x"}]}`,
		`{"type":"STATE_DELTA","delta":[{"op":"zap"},{"op":"copy","from":"/a~0","path":""}]}`,
		`{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"later"},"result":1e400}`,
	} {
		f.Add([]byte(text))
	}
	lim := Limits{Event: 1 << 16, Depth: 64, Warnings: 5}
	f.Fuzz(func(t *testing.T, text []byte) {
		received := bytes.Clone(text)
		checkGrammar(t, text)
		checkDecoded(t, text, lim, Decode)
		checkDecoded(t, text, lim, DecodeInput)
		if !bytes.Equal(text, received) {
			t.Fatal("the received text was changed")
		}
	})
}

// checkGrammar compares checkJSON with another implementation of the grammar.
func checkGrammar(t *testing.T, text []byte) {
	v := checkJSON(text, 1<<10)
	if v != nil && v.Code == JSONTooDeep {
		return
	}
	lenient := jsontext.Value(text).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if want := utf8.Valid(text) && lenient; (v == nil) != want {
		t.Fatalf("%q: %v, the reference says %t", text, v, want)
	}
}

func checkDecoded(t *testing.T, text []byte, lim Limits, decode func([]byte, Limits) (Event, []Warning, *Violation)) {
	event, warnings, v := decode(text, lim)
	if len(warnings) > lim.Warnings {
		t.Fatalf("%d warnings", len(warnings))
	}
	for _, w := range warnings {
		if !utf8.ValidString(w.Path+w.Detail) || !bytes.Contains(text, w.Removed) || len(w.Path) > 2*lim.Event {
			t.Fatalf("warning %+v", w)
		}
	}
	if v != nil {
		if !reflect.DeepEqual(event, Event{}) || warnings != nil || v.Code == "" || v.Detail == "" || !utf8.ValidString(v.Path) {
			t.Fatalf("violation %v with %+v %v", v, event, warnings)
		}
		return
	}
	if event.Text == nil {
		if len(warnings) != 1 || !reflect.DeepEqual(event, Event{Type: event.Type}) {
			t.Fatalf("dropped: %+v %v", event, warnings)
		}
		return
	}
	if len(event.Text) != len(text) && len(warnings) == 0 && !bytes.Contains(text, []byte("binary")) && !bytes.Contains(text, []byte(`\u`)) {
		t.Fatalf("%s became %s without a warning", text, event.Text)
	}
	again, quiet, v := decode(event.Text, lim)
	if v != nil || len(quiet) > 0 || !reflect.DeepEqual(again, event) {
		t.Fatalf("canonical text %s decodes to %+v %v %v", event.Text, again, quiet, v)
	}
	checkValues(t, event)
}

// checkValues checks that every field of an event is a part of its text.
func checkValues(t *testing.T, event Event) {
	fields := reflect.ValueOf(event)
	for i := range fields.NumField() {
		value, ok := fields.Field(i).Interface().(Value)
		if ok && value != nil && (!bytes.Contains(event.Text, value) || checkJSON(value, 1<<10) != nil) {
			t.Fatalf("%s is %q, not in %s", fields.Type().Field(i).Name, value, event.Text)
		}
	}
}
