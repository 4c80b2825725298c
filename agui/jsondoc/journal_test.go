package jsondoc

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// What a journal did can be taken back step by step, and what each step says of itself is true.
func TestJournal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := &generator{intn: func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "n") }}
		text := g.doc()
		root := modelParse([]byte(text))
		doc, err := Parse([]byte(text), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		j := NewJournal(doc)
		states := []string{string(doc.AppendTo(nil))}
		for range 6 {
			if g.intn(8) == 0 {
				text := g.doc()
				next, _ := Parse([]byte(text), Limits{})
				j.Replace(next)
				root = modelParse([]byte(text))
				states = append(states, modelText(root))
				continue
			}
			patch, after, ok := g.patch(root, 4)
			p, _ := ParsePatch([]byte(patch), Limits{})
			if err := j.Apply(p); (err == nil) != ok {
				t.Fatalf("%s: %v, model applies: %v", patch, err, ok)
			} else if apply := new(ApplyError); err != nil && !errors.As(err, &apply) {
				t.Fatalf("%s: %v", patch, err)
			}
			if !ok {
				checkDoc(t, j.Doc(), modelText(root))
				continue
			}
			root = after
			checkDoc(t, j.Doc(), modelText(root))
			for len(states) <= j.Len() { // those within a patch are seen on the way back
				states = append(states, "")
			}
			states[j.Len()] = modelText(root)
		}
		takeBack(t, j, states)
	})
}

// takeBack takes all steps back, one by one, to the states that are known.
func takeBack(t *rapid.T, j *Journal, states []string) {
	for j.Len() > 0 {
		after := j.Doc().Clone()
		s := j.Last()
		if undone := j.Undo(); undone != s {
			t.Fatalf("took back %+v, not %+v", undone, s)
		}
		if want := states[j.Len()]; want != "" {
			checkDoc(t, j.Doc(), want)
		}
		checkStep(t, s, j.Doc(), after)
	}
}

// checkStep finds what a step says in the documents before and after it.
func checkStep(t *rapid.T, s Step, before, after *Doc) {
	in := func(d *Doc, p Pointer) string {
		text, found := d.Find(p)
		if !found {
			t.Fatalf("%+v: nothing at %q of %s", s, p, d.AppendTo(nil))
		}
		return string(text)
	}
	switch s.Op {
	case "remove":
		in(before, s.Path)
	case "move", "copy":
		if in(before, s.From) != in(after, s.Path) {
			t.Fatalf("%+v from %s to %s", s, before.AppendTo(nil), after.AppendTo(nil))
		}
	default:
		in(after, s.Path)
	}
	if _, found := before.Find(s.Path); s.Op == "replace" && !found {
		t.Fatalf("%+v on %s", s, before.AppendTo(nil))
	}
}

// A difference makes one document of the other, to the last digit and escape, and is empty for documents that say the same.
func TestDiff(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := &generator{intn: func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "n") }}
		text := g.doc()
		from, _ := Parse([]byte(text), Limits{})
		to := from.Clone()
		if g.intn(4) == 0 {
			to, _ = Parse([]byte(g.doc()), Limits{})
		}
		if patch, _, ok := g.patch(modelParse(to.AppendTo(nil)), 5); ok {
			p, _ := ParsePatch([]byte(patch), Limits{})
			if err := to.Apply(p); err != nil {
				t.Fatal(err)
			}
		}
		text = string(Diff(from, to))
		if same(from.root, to.root) != (text == "[]") {
			t.Fatalf("%s for %s and %s", text, from.AppendTo(nil), to.AppendTo(nil))
		}
		if most := to.Size() + len(`[{"op":"replace","path":"","value":}]`); len(text) > most {
			t.Fatalf("a difference of %d bytes for a document of %d", len(text), to.Size())
		}
		p, err := ParsePatch([]byte(text), Limits{})
		if err == nil {
			err = from.Apply(p)
		}
		if err != nil || !same(from.root, to.root) {
			t.Fatalf("%s gives %s, want %s: %v", text, from.AppendTo(nil), to.AppendTo(nil), err)
		}
	})
}

func TestDiffByExample(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ from, to, want string }{
		{`{"a":1,"b":2}`, `{"b":2,"a":1}`, `[]`},
		{`{"a":1.0}`, `{"a":1}`, `[{"op":"replace","path":"/a","value":1}]`},
		{`{"a":9007199254740993}`, `{"a":9007199254740992}`, `[{"op":"replace","path":"/a","value":9007199254740992}]`},
		{`["a"]`, `["\u0061"]`, `[{"op":"replace","path":"/0","value":"\u0061"}]`},
		{`[1,2,3,4]`, `[1,3,4]`, `[{"op":"remove","path":"/1"}]`},
		{`[1,2,3,4,5,6,7777777777777777777777777777]`, `[1,2,8,9,3,4,5,6,7777777777777777777777777777]`, `[{"op":"add","path":"/2","value":8},{"op":"add","path":"/3","value":9}]`},
		{`{"a/b":{"m~n":[{},1,1,1,1,1,1,1]}}`, `{"a/b":{"m~n":[[],1,1,1,1,1,1,1]}}`, `[{"op":"replace","path":"/a~1b/m~0n/0","value":[]}]`},
		{`{"\ud800":"aaaaaaaaaaaaaaaaaaaaa","b":1}`, `{"\ud800":"aaaaaaaaaaaaaaaaaaaaa"}`, `[{"op":"remove","path":"/b"}]`},
		{`{"a":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","b":1}`, `7`, `[{"op":"replace","path":"","value":7}]`},
		{`[{"a":1},{"b":2},{"c":3}]`, `[]`, `[{"op":"replace","path":"","value":[]}]`},
	} {
		from, _ := Parse([]byte(tc.from), Limits{})
		to, _ := Parse([]byte(tc.to), Limits{})
		if got := string(Diff(from, to)); got != tc.want {
			t.Errorf("%s to %s: %s, want %s", tc.from, tc.to, got, tc.want)
		}
	}
}

func TestLeaves(t *testing.T) {
	t.Parallel()
	doc, _ := Parse([]byte(`{"a":[1,{},[ ],{"b/c":null}],"":"x","~":{"":true}}`), Limits{})
	for at, want := range map[string][]string{
		"":     {"/a/0 1", "/a/1 {}", "/a/2 []", "/a/3/b~1c null", `/ "x"`, "/~0/ true"},
		"/a":   {"/a/0 1", "/a/1 {}", "/a/2 []", "/a/3/b~1c null"},
		"/a/0": {"/a/0 1"}, "/b": nil,
	} {
		ptr, _ := ParsePointer(at)
		var got []string
		var places []Pointer
		for place := range doc.Leaves(ptr, nil) {
			text, _ := doc.Find(place)
			got, places = append(got, place.String()+" "+string(text)), append(places, place)
		}
		for i := range places { // from any of them on
			n := i + 1
			for place := range doc.Leaves(ptr, &places[i]) {
				if n == len(places) || place != places[n] {
					t.Fatalf("%q: after %q comes %q", at, places[n-1], place)
				}
				n++
			}
			if n != len(places) {
				t.Errorf("%q: after %q come %d, want %d", at, places[i], n-i-1, len(places)-i-1)
			}
		}
		if len(got) != len(want) {
			t.Fatalf("%q: %q, want %q", at, got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%q: %q, want %q", at, got, want)
			}
		}
	}
}
