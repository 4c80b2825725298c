package jsondoc

import (
	"errors"
	"strings"
	"testing"
)

// TestParseKeepsText has texts that must come back as they are.
func TestParseKeepsText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`null`, `true`, `false`, `0`, `-0`, `1.10`, `1e400`, `1E+2`, `9007199254740993`, `1e131000`, `""`, `"\ud800"`,
		`"\u0000"`, `"\u0041\/"`, `"\uDBFF"`, `[]`, `{}`, `[[],{}]`, `{"":{"":[""]}}`, `{"b":1,"a":2}`, `{"\u0062":1,"a\/b":2}`,
		`{"\ud800":1,"\udc00":2}`, `{"__proto__":1,"constructor":{"prototype":2}}`, "\"\u2028\"", `"` + strings.Repeat("x", 70_000) + `"`,
	} {
		checkDoc(t, mustParse(t, text), text)
	}
}

func TestParseNormalises(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		" \t\r\n[ 1 , { \"a\" : 2 } ] \n":             `[1,{"a":2}]`,
		`{"a":1,"b":2,"a":3}`:                         `{"a":3,"b":2}`,
		`{"a":1,"\u0061":[2]}`:                        `{"a":[2]}`,
		`{"\u0061":{"x":1},"b":2,"a":null}`:           `{"\u0061":null,"b":2}`,
		`{"\ud83d\ude00":1,"😀":2}`:                    `{"\ud83d\ude00":2}`,
		`{"\ud83d":1,"\ud83d":2,"\ude00":3}`:          `{"\ud83d":2,"\ude00":3}`,
		`{"":1,"":2}`:                                 `{"":2}`,
		`{"k":0` + strings.Repeat(`,"k":1`, 50) + `}`: `{"k":1}`,
	} {
		checkDoc(t, mustParse(t, text), want)
	}
}

func TestParseMalformed(t *testing.T) {
	t.Parallel()
	for text, path := range map[string]string{
		``: "", ` `: "", `nul`: "", `[`: "", `{`: "", `[1`: "", `[1,]`: "", `[,1]`: "", `{"a":1,}`: "", `{"a"}`: "", `{a:1}`: "",
		`1 2`: "", `[] x`: "", `01`: "", `1.`: "", `.5`: "", `+1`: "", `NaN`: "", `"\x"`: "", "\"\n\"": "", "\"\xff\"": "",
		"\"\xed\xa0\x80\"": "", `[1}`: "", `{"a":1]`: "", "\ufeff{}": "", `[1 2]`: "", `{"a":1 "b":2}`: "",
		`{"a":{"b":[0,tru]}}`: "/a/b/1", `{"x":"\ud8"}`: "/x",
	} {
		_, err := Parse([]byte(text), Limits{})
		malformed := new(MalformedError)
		if !errors.As(err, &malformed) {
			t.Errorf("%q: %v, want a MalformedError", text, err)
			continue
		}
		if path != "" && malformed.Path != path {
			t.Errorf("%q: path %q, want %q", text, malformed.Path, path)
		}
	}
}

func TestParseDoesNotKeepText(t *testing.T) {
	t.Parallel()
	text := []byte(`{"key":"value","n":[1,2]}`)
	d, err := Parse(text, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	clear(text)
	checkDoc(t, d, `{"key":"value","n":[1,2]}`)
}

func TestErrorTextIsShort(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("secret", 10_000)
	_, err := Parse([]byte(`{"`+long+`":tru}`), Limits{})
	if malformed := new(MalformedError); !errors.As(err, &malformed) || len(malformed.Path) > 300 || len(err.Error()) > 200 {
		t.Errorf("error of %d bytes: %.300s", len(err.Error()), err)
	}
	err = mustParse(t, `{}`).Apply(mustPatch(t, `[{"op":"replace","path":"/`+long+`/\ud800","value":"`+long+`"}]`))
	if apply := new(ApplyError); !errors.As(err, &apply) || len(err.Error()) > 200 {
		t.Errorf("error of %d bytes: %.300s", len(err.Error()), err)
	}
	err = mustParse(t, `1`).Apply(mustPatch(t, `[{"op":"test","path":"","value":"`+long+`"}]`))
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("error repeats the value: %v", err)
	}
}

func TestPointer(t *testing.T) {
	t.Parallel()
	doc := mustParse(t, `{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,"k\"l":6," ":7,"m~n":8,"~1":9,"x":{"":{"":10}},"\ud800":11}`)
	for ptr, want := range map[string]string{
		"/foo": `["bar","baz"]`, "/foo/0": `"bar"`, "/": `0`, "/a~1b": `1`, "/c%d": `2`, "/e^f": `3`, "/g|h": `4`, `/i\j`: `5`,
		`/k"l`: `6`, "/ ": `7`, "/m~0n": `8`, "/~01": `9`, "/x//": `10`, "/\xed\xa0\x80": `11`,
		"/foo/-": "", "/foo/2": "", "/foo/00": "", "/foo/-1": "", "/foo/1e0": "", "/foo/": "", "/foo/0/x": "", "/nope": "", "/foo/99999999999999999999": "",
	} {
		p, err := ParsePointer(ptr)
		if err != nil || p.String() != ptr {
			t.Errorf("ParsePointer(%q) = %q, %v", ptr, p, err)
		}
		if got, ok := doc.Find(p); string(got) != want || ok != (want != "") {
			t.Errorf("Find(%q) = %s, %v, want %s", ptr, got, ok, want)
		}
	}
	if got, ok := doc.Find(Pointer{}); !ok || string(got) != string(doc.AppendTo(nil)) {
		t.Errorf("the zero pointer finds %s", got)
	}
	for _, ptr := range []string{"a", "a/b", "#/a", "/~", "/~2", "/a~", "/a/~/b", " /a", "~0"} {
		_, err := ParsePointer(ptr)
		if malformed := new(MalformedError); !errors.As(err, &malformed) {
			t.Errorf("ParsePointer(%q): %v, want a MalformedError", ptr, err)
		}
	}
}
