package jsondoc

import (
	"errors"
	"testing"
)

var nastyDocs = []string{
	`null`, `0`, `-0`, `1e131000`, `"\ud800"`, `"\u0000"`, `[]`, `{}`, `[[[[[[[]]]]]]]`, `{"a":1,"a":{"b":[]}}`, `{"":{"":null}}`,
	`{"a":[1,null,{"b":"\u0041"}],"k0":0,"k1":1,"k2":2,"k3":3,"k4":4,"k5":5,"k6":6,"k7":7,"k8":8,"k9":9,"k10":10,"k11":11,"k12":12}`,
	`[1,]`, `{"a"}`, "\xff", ` [ 1 ] `, `"`, `1e`, `{"\ud83d":1,"\ud83d\ude00":2}`,
}

var nastyPatches = []string{
	`[]`, `[{"op":"remove","path":""}]`, `[{"op":"add","path":"","value":[]},{"op":"copy","from":"","path":"/-"},{"op":"copy","from":"","path":"/0/-"}]`,
	`[{"op":"move","from":"/a","path":"/a/0"}]`, `[{"op":"move","from":"/a","path":""}]`, `[{"op":"test","path":"","value":null}]`,
	`[{"op":"replace","path":"","value":null},{"op":"add","path":"/a","value":1}]`, `[{"op":"add","path":"/a/2000000000","value":1}]`,
	`[{"op":"remove","path":"/k3"},{"op":"remove","path":"/k1"},{"op":"add","path":"/k1","value":{}},{"op":"move","from":"/a","path":"/k1/a"},{"op":"test","path":"/x","value":1}]`,
	`[{"op":"test","path":"/a","value":1e99999999999999999999999}]`, `[{"op":"add","path":"/\ud800~1~0","value":"\udc00"}]`,
	`[{"op":"add","op":"add","path":"/","value":1}]`, `[{"op":"add","path":"/~","value":1}]`, `{}`, `[[]]`, `[{"op":"spam"}]`,
}

var fuzzLimits = Limits{Depth: 12, Ops: 50, Size: 4 << 10, Work: 64 << 10}

// isTyped reports whether err is one of the two kinds of errors of this package.
func isTyped(err error) bool {
	var malformed *MalformedError
	var apply *ApplyError
	return errors.As(err, &malformed) || errors.As(err, &apply)
}

func FuzzParse(f *testing.F) {
	for _, text := range append(nastyDocs, nastyPatches...) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := Parse(text, fuzzLimits)
		if err != nil {
			if !isTyped(err) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		compact := string(d.AppendTo(nil))
		checkDoc(t, d, compact)
		if d.root.height() > fuzzLimits.Depth {
			t.Fatalf("height %d", d.root.height())
		}
		checkDoc(t, mustParse(t, compact), compact)
		if equal, err := Equal(text, []byte(compact)); err != nil || !equal {
			t.Fatalf("%q and its compact text %s: equal %v, %v", text, compact, equal, err)
		}
		if compact[0] == '"' {
			s, err := Unquote([]byte(compact))
			if err != nil {
				t.Fatal(err)
			}
			if equal, err := Equal([]byte(compact), AppendQuote(nil, s)); err != nil || !equal {
				t.Fatalf("%s was quoted as %s (%v)", compact, AppendQuote(nil, s), err)
			}
		}
	})
}

func FuzzPatch(f *testing.F) {
	for _, doc := range nastyDocs {
		for _, patch := range nastyPatches {
			f.Add([]byte(doc), []byte(patch))
		}
	}
	f.Fuzz(func(t *testing.T, doc, patch []byte) {
		d, err := Parse(doc, fuzzLimits)
		if err != nil {
			return
		}
		p, err := ParsePatch(patch, fuzzLimits)
		if err != nil {
			if !isTyped(err) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		before := string(d.AppendTo(nil))
		clone := d.Clone()
		err = d.Apply(p)
		if err != nil && !isTyped(err) {
			t.Fatalf("untyped error %v", err)
		}
		after := string(d.AppendTo(nil))
		if err != nil && after != before {
			t.Fatalf("%s left a trace: %s became %s", patch, before, after)
		}
		checkDoc(t, d, after)
		if d.Size() > fuzzLimits.Size || d.root.height() > fuzzLimits.Depth {
			t.Fatalf("%d bytes, height %d", d.Size(), d.root.height())
		}
		again := mustPatch(t, string(p.AppendTo(nil)))
		if errAgain := clone.Apply(again); (errAgain == nil) != (err == nil) || string(clone.AppendTo(nil)) != after {
			t.Fatalf("the patch's own text does otherwise: %v, %v", err, errAgain)
		}
	})
}
