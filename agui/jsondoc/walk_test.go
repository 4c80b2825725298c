package jsondoc

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

// walked is what Members and Elements give of a text.
func walked(text []byte) (parts []string) {
	for name, value := range Members(text) {
		parts = append(parts, string(name), string(value))
	}
	for element := range Elements(text) {
		parts = append(parts, string(element))
	}
	return parts
}

// read is what a decoder finds right within the container that a text is, which must be JSON.
func read(t *testing.T, text []byte) (parts []string) {
	t.Helper()
	d := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	if kind := d.PeekKind(); kind != '{' && kind != '[' {
		return nil
	}
	for _, err := d.ReadToken(); d.PeekKind() != '}' && d.PeekKind() != ']'; {
		var part jsontext.Value
		if part, err = d.ReadValue(); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		parts = append(parts, string(part))
	}
	return parts
}

func TestWalkFindsWhatADecoderDoes(t *testing.T) {
	t.Parallel()
	texts := []string{
		` { "a" : [ 1 , "]" ] , "a":{"}":"\\"}	,"\u0041\"":-1e5}`, "\n[ ]", "{}", ` [[],{},"", true ,null ]`, `"[1]"`, `7`,
		`["\\\\\"","\\",{"b":"\"}"}]`,
	}
	rapid.Check(t, func(rt *rapid.T) {
		g := &generator{intn: func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "n") }}
		texts = append(texts, g.doc())
	})
	for _, text := range texts {
		var spread bytes.Buffer
		if err := json.Indent(&spread, []byte(text), " ", "\t"); err != nil {
			t.Fatal(err)
		}
		for _, text := range [][]byte{[]byte(text), spread.Bytes()} {
			if got, want := walked(text), read(t, text); !slices.Equal(got, want) {
				t.Errorf("%s\ngives %q\nwant  %q", text, got, want)
			}
		}
	}
}

func TestWalkStops(t *testing.T) {
	t.Parallel()
	for range Members([]byte(`{"a":1,"b":2}`)) {
		break
	}
	for range Elements([]byte(`[1,2]`)) {
		break
	}
	for _, text := range []string{"", " ", "{", "[", `{"`, `{"a`, `{"a"`, `{"a":`, `{"a":1`, `{a:1}`, `{"a":}`, "[,]", `["\`, `[1 2]`, `{"a" "b"}`, "]", `{":1}`} {
		for _, part := range walked([]byte(text)) {
			if part == "" {
				t.Errorf("%q gives %q", text, walked([]byte(text)))
			}
		}
	}
}

func FuzzWalk(f *testing.F) {
	for _, text := range append(nastyDocs, nastyPatches...) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		parts := walked(text)
		if _, err := Parse(text, fuzzLimits); err == nil && !slices.Equal(parts, read(t, text)) {
			t.Fatalf("%q gives %q, want %q", text, parts, read(t, text))
		}
	})
}
