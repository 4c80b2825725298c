package jsondoc

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// TestKnownModel applies random patches to a document that is known by its text, to one that is made anew from the text
// before each patch, and to the model.
func TestKnownModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := &generator{intn: func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "n") }}
		root := modelParse([]byte(g.doc()))
		living := Known([]byte(modelText(root)), Limits{})
		for range 8 {
			patch, after, ok := g.patch(root, 4)
			p, err := ParsePatch([]byte(patch), Limits{})
			if err != nil {
				t.Fatalf("%s: %v", patch, err)
			}
			for _, d := range []*Doc{living, Known([]byte(modelText(root)), Limits{})} {
				before := d.Clone()
				if err := d.Apply(p); (err == nil) != ok {
					t.Fatalf("%s on %s: %v, model applies: %v", patch, modelText(root), err, ok)
				}
				want := root
				if ok {
					want = after
				}
				checkDoc(t, d, modelText(want))
				checkDoc(t, before, modelText(root))
				if g.intn(3) == 0 {
					checkPointers(t, before, root, "")
				}
			}
			if ok {
				root = after
			}
		}
	})
}

// TestKnownLimits checks that a document known by its text refuses what a parsed one refuses.
func TestKnownLimits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := &generator{intn: func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "n") }}
		root := modelParse([]byte(g.doc()))
		text := []byte(modelText(root))
		lim := Limits{Depth: 1 + g.intn(4), Size: len(text) + g.intn(20), Work: 1 + g.intn(30)}
		parsed, err := Parse(text, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		parsed.SetLimits(lim)
		known := Known(text, lim)
		patch, _, _ := g.patch(root, 3)
		p, err := ParsePatch([]byte(patch), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		want, got := parsed.Apply(p), known.Apply(p)
		if fmt.Sprint(want) != fmt.Sprint(got) || string(parsed.AppendTo(nil)) != string(known.AppendTo(nil)) {
			t.Fatalf("%s on %s: %v and %s, want %v and %s", patch, text, got, known.AppendTo(nil), want, parsed.AppendTo(nil))
		}
	})
}

// TestKnownSpreadsOut checks a text that AppendTo would not have written: white space goes where a patch reaches in.
func TestKnownSpreadsOut(t *testing.T) {
	t.Parallel()
	d := Known([]byte(" { \"b\" : [ 1 , {\"x\" : \"]}\\\\\"} ] ,\n\"a\": {\"c\" : [ ] }, \"d\":[ ]} "), Limits{})
	p, err := ParsePatch([]byte(`[{"op":"add","path":"/a/c/-","value":7},{"op":"add","path":"/d/0","value":[]}]`), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Apply(p); err != nil {
		t.Fatal(err)
	}
	checkDoc(t, d, `{"b":[ 1 , {"x" : "]}\\"} ],"a":{"c":[7]},"d":[[]]}`)
}

// TestKnownReadsNoMoreThanThePath checks that what lies beside the way of a pointer stays text.
func TestKnownReadsNoMoreThanThePath(t *testing.T) {
	t.Parallel()
	d := Known([]byte(`{"a":{"x":{"y":1}},"b":{"z":[1,2]}}`), Limits{})
	p, err := ParsePatch([]byte(`[{"op":"replace","path":"/b/z/1","value":3}]`), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Apply(p); err != nil {
		t.Fatal(err)
	}
	if a := d.root.node.values[0]; !a.folded() {
		t.Error("the member beside the path was read")
	}
	checkDoc(t, d, `{"a":{"x":{"y":1}},"b":{"z":[1,3]}}`)
}

// FuzzKnown gives a document texts that are no JSON: nothing may panic, and what does not apply changes nothing.
func FuzzKnown(f *testing.F) {
	for _, text := range []string{"", "{", "[", `{"`, `{"a`, `{"a":`, `{"a":"`, `{"a":[1,`, `["`, `["\`, `[[}`, `{"a":1}x`, `[x"y]`, `{"a":{"b"}}`, "nul"} {
		f.Add(text, "/a/0/b")
	}
	f.Fuzz(func(t *testing.T, text, path string) {
		for _, op := range []string{`"test","value":[{"a":"x"}]`, `"test","value":"x"`, `"add","value":{"x":1}`, `"remove"`, `"copy","from":""`, `"move","from":"/a"`} {
			p, err := ParsePatch([]byte(`[{"op":`+op+`,"path":`+quoted(path)+`}]`), Limits{})
			if err != nil {
				return
			}
			d := Known([]byte(text), Limits{})
			_ = d.Apply(p)
			if got := d.AppendTo(nil); len(got) != d.Size() {
				t.Fatalf("%q: Size() = %d, text has %d bytes: %q", text, d.Size(), len(got), got)
			}
		}
	})
}

// TestKnownWideObject drives a wide object that was read without an index beyond the search that makes one.
func TestKnownWideObject(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		members := modelObject{}
		for i := range rapid.IntRange(indexThreshold-2, 60).Draw(t, "members") {
			members = append(members, modelMember{fmt.Sprint("k", i), quoted(fmt.Sprint("k", i)), "1"})
		}
		root := any(members)
		d := Known([]byte(modelText(root)), Limits{})
		for range 60 {
			path := fmt.Sprint("/k", rapid.IntRange(0, 70).Draw(t, "key"))
			o := modelOp{op: rapid.SampledFrom([]string{"add", "remove", "replace"}).Draw(t, "op"), path: path, value: "2"}
			text := `{"op":"` + o.op + `","path":` + quoted(path) + `,"value":2}`
			fail := rapid.IntRange(0, 3).Draw(t, "fail") == 0
			if fail {
				text += `,{"op":"test","path":"","value":0}`
			}
			p, err := ParsePatch([]byte("["+text+"]"), Limits{})
			if err != nil {
				t.Fatal(err)
			}
			after, modelErr := modelApply(root, o)
			if err := d.Apply(p); (err == nil) != (modelErr == nil && !fail) {
				t.Fatalf("%s: %v", text, err)
			}
			if modelErr == nil && !fail {
				root = after
			}
			checkDoc(t, d, modelText(root))
		}
	})
}
