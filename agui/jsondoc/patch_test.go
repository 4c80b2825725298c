package jsondoc

import (
	"errors"
	"slices"
	"testing"
)

// malformedPatches has patches and where their fault is; "" is not checked.
var malformedPatches = map[string]string{
	``: "", `{}`: "", `null`: "", `"x"`: "", `{"op":"add","path":"/a","value":1}`: "",
	`[1]`: "/0", `[null]`: "/0", `[[]]`: "/0", `[{}]`: "/0",
	`[{"op":"add","path":"/a"}]`:                                                "/0",
	`[{"op":"replace","path":"/a"}]`:                                            "/0",
	`[{"op":"test","path":"/a"}]`:                                               "/0",
	`[{"op":"add","value":1}]`:                                                  "/0",
	`[{"path":"/a","value":1}]`:                                                 "/0",
	`[{"op":"move","path":"/a"}]`:                                               "/0",
	`[{"op":"copy","path":"/a","value":1}]`:                                     "/0",
	`[{"op":"remove","path":"/a"},{"op":"remove"}]`:                             "/1",
	`[{"op":"remove","path":"a"}]`:                                              "/0/path",
	`[{"op":"remove","path":"/~2"}]`:                                            "/0/path",
	`[{"op":"remove","path":1}]`:                                                "/0/path",
	`[{"op":"remove","path":null}]`:                                             "/0/path",
	`[{"op":"remove","path":["/a"]}]`:                                           "/0/path",
	`[{"op":"move","path":"/a","from":"b"}]`:                                    "/0/from",
	`[{"op":"copy","path":"/a","from":{}}]`:                                     "/0/from",
	`[{"op":"spam","path":"/a"}]`:                                               "/0/op",
	`[{"op":"ADD","path":"/a","value":1}]`:                                      "/0/op",
	`[{"op":"","path":"/a"}]`:                                                   "/0/op",
	`[{"op":1,"path":"/a"}]`:                                                    "/0/op",
	`[{"op":"add","path":"/a","value":1,"op":"remove"}]`:                        "/0/op",
	`[{"op":"add","path":"/a","value":1,"\u006fp":"add"}]`:                      "/0/op",
	`[{"op":"add","path":"/a","value":1,"path":"/a"}]`:                          "/0/path",
	`[{"op":"add","path":"/a","value":null,"value":null}]`:                      "/0/value",
	`[{"op":"move","path":"/a","from":"/a","from":"/b"}]`:                       "/0/from",
	`[{"op":"add","path":"/a","value":tru}]`:                                    "/0/value",
	`[{"op":"add","path":"/a","value":1},]`:                                     "",
	`[{"op":"add","path":"/a","value":1}] []`:                                   "",
	`[{"op":"add","path":"/a","value":1}`:                                       "",
	"[{\"op\":\"add\",\"path\":\"/\xff\",\"value\":1}]":                         "",
	`[{"op":"add","path":"/a","value":1,"x":{"y":[}]}}]`:                        "",
	`[{"op":"add","path":"/a","value":{"a":1,"a":2}},{"op":"add","path":"/a"}]`: "/1",
}

func TestParsePatchMalformed(t *testing.T) {
	t.Parallel()
	for text, path := range malformedPatches {
		p, err := ParsePatch([]byte(text), Limits{})
		malformed := new(MalformedError)
		if !errors.As(err, &malformed) || p != nil {
			t.Errorf("%s: %v, want a MalformedError", text, err)
			continue
		}
		if path != "" && malformed.Path != path {
			t.Errorf("%s: path %q, want %q", text, malformed.Path, path)
		}
	}
}

func TestParsePatchIgnoresExtraMembers(t *testing.T) {
	t.Parallel()
	d := mustParse(t, `{"a":1}`)
	p := mustPatch(t, ` [ {"x":{"op":[1,{"path":2}]}, "value" : 2, "\u006fp":"replace","from":7,"x":null,"path":"/a"} ,
		{"op":"remove","path":"/a","value":{"a":1},"from":"not a pointer"}, {"op":"add","path":"/\u0062","value":[ 1 ]}]`)
	if p.Len() != 3 {
		t.Fatalf("Len() = %d", p.Len())
	}
	if err := d.Apply(p); err != nil {
		t.Fatal(err)
	}
	checkDoc(t, d, `{"b":[1]}`)
	again := mustPatch(t, string(p.AppendTo(nil)))
	if string(again.AppendTo([]byte("x"))) != "x"+string(p.AppendTo(nil)) || again.Len() != 3 {
		t.Errorf("text became %s", again.AppendTo(nil))
	}
}

func TestParseKnownOps(t *testing.T) {
	t.Parallel()
	text := `[{"op":"inc","path":"/a"},{"op":"add","path":"/b","value":1},{"op":"merge","path":7},{"op":"remove","path":"/nope"}]`
	p, unknown, err := ParseKnownOps([]byte(text), Limits{})
	if err != nil || !slices.Equal(unknown, []int{0, 2}) || p.Len() != 2 {
		t.Fatalf("got %v, %v", unknown, err)
	}
	if got, want := string(p.AppendTo(nil)), `[{"op":"add","path":"/b","value":1},{"op":"remove","path":"/nope"}]`; got != want {
		t.Errorf("text is %s, want %s", got, want)
	}
	err = mustParse(t, `{}`).Apply(p)
	if apply := new(ApplyError); !errors.As(err, &apply) || apply.Op != 3 {
		t.Errorf("got %v, want the failure of operation 3", err)
	}
	for _, text := range []string{`[{"op":7,"path":"/a"}]`, `[{"path":"/a"}]`, `[{"op":"inc"},{"op":"add","path":"/a"}]`, `[{"op":"inc"},`} {
		_, _, err := ParseKnownOps([]byte(text), Limits{})
		if malformed := new(MalformedError); !errors.As(err, &malformed) {
			t.Errorf("%s: %v, want a MalformedError", text, err)
		}
	}
}

// TestPatchIsReusable applies one patch to several documents and changes one of them.
func TestPatchIsReusable(t *testing.T) {
	t.Parallel()
	p := mustPatch(t, `[{"op":"add","path":"/a","value":{"list":[1,{"x":2}]}}]`)
	first, second := mustParse(t, `{}`), mustParse(t, `{}`)
	for _, d := range []*Doc{first, second} {
		if err := d.Apply(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.Apply(mustPatch(t, `[{"op":"remove","path":"/a/list/1/x"},{"op":"add","path":"/a/list/-","value":3}]`)); err != nil {
		t.Fatal(err)
	}
	checkDoc(t, first, `{"a":{"list":[1,{},3]}}`)
	checkDoc(t, second, `{"a":{"list":[1,{"x":2}]}}`)
	third := mustParse(t, `{}`)
	if err := third.Apply(p); err != nil {
		t.Fatal(err)
	}
	checkDoc(t, third, `{"a":{"list":[1,{"x":2}]}}`)
}
