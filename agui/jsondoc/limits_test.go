package jsondoc

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func wantCode(t *testing.T, err error, op int, code Code) {
	t.Helper()
	apply := new(ApplyError)
	if !errors.As(err, &apply) || apply.Op != op || apply.Code != code {
		t.Errorf("got %v, want %s of operation %d", err, code, op)
	}
}

func parseWith(t *testing.T, text string, lim Limits) *Doc {
	t.Helper()
	d, err := Parse([]byte(text), lim)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func TestLimitDepth(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		doc, patch string
		code       Code
	}{
		{`[[]]`, `[{"op":"add","path":"/0/0","value":[]}]`, ""},
		{`[[]]`, `[{"op":"add","path":"/0/0","value":[[]]}]`, LimitDepth},
		{`[[[1]]]`, `[{"op":"add","path":"/0/0/0","value":{}}]`, LimitDepth},
		{`[[[1]]]`, `[{"op":"replace","path":"/0/0/0","value":{}}]`, LimitDepth},
		{`[[[1]]]`, `[{"op":"replace","path":"/0/0","value":[2]}]`, ""},
		{`[[1]]`, `[{"op":"copy","from":"","path":"/-"}]`, ""},
		{`[[[]]]`, `[{"op":"copy","from":"","path":"/-"}]`, LimitDepth},
		{`[[],[[]]]`, `[{"op":"move","from":"/1","path":"/0/0"}]`, LimitDepth},
		{`[[],[1]]`, `[{"op":"move","from":"/1","path":"/0/0"}]`, ""},
		{`[[[]],[]]`, `[{"op":"move","from":"/1","path":"/0"}]`, ""},
		{`[[[1]]]`, `[{"op":"move","from":"/0/0","path":""}]`, ""},
		{`1`, `[{"op":"replace","path":"","value":[[[]]]}]`, ""},
		{`1`, `[{"op":"add","path":"","value":[[[[]]]]}]`, LimitDepth},
	} {
		d := parseWith(t, c.doc, Limits{Depth: 3})
		err := d.Apply(mustPatch(t, c.patch))
		if c.code == "" && err != nil {
			t.Errorf("%s on %s: %v", c.patch, c.doc, err)
		}
		if c.code != "" {
			wantCode(t, err, 0, c.code)
			checkDoc(t, d, c.doc)
		}
	}
}

func TestLimitDepthOfTexts(t *testing.T) {
	t.Parallel()
	checkDoc(t, mustParse(t, nested(512)), nested(512))
	_, err := Parse([]byte(nested(513)), Limits{})
	wantCode(t, err, -1, LimitDepth)
	_, err = Parse([]byte(strings.Repeat("[", 1<<20)), Limits{Depth: 1 << 30})
	wantCode(t, err, -1, LimitDepth)
	if d := parseWith(t, nested(9000), Limits{Depth: 1 << 30}); string(d.AppendTo(nil)) != nested(9000) {
		t.Error("text changed")
	}
	_, err = ParsePatch([]byte(`[{"op":"remove","path":""},{"op":"add","path":"","value":`+nested(513)+`}]`), Limits{})
	wantCode(t, err, 1, LimitDepth)
	malformed := new(MalformedError)
	if _, err = ParsePatch([]byte(`[{"x":`+strings.Repeat("[", 1<<20)), Limits{}); !errors.As(err, &malformed) {
		t.Errorf("got %v", err)
	}
}

func TestLimitOps(t *testing.T) {
	t.Parallel()
	op := `{"op":"add","path":"/-","value":1}`
	patch := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat(op+",", n), ",") + "]" }
	_, err := ParsePatch([]byte(patch(4)), Limits{Ops: 3})
	wantCode(t, err, 3, LimitOps)
	d := parseWith(t, `[]`, Limits{Ops: 3})
	wantCode(t, d.Apply(mustPatch(t, patch(4))), 3, LimitOps)
	checkDoc(t, d, `[]`)
	if err := d.Apply(mustPatch(t, patch(3))); err != nil {
		t.Fatal(err)
	}
	_, err = ParsePatch([]byte(patch(10_001)), Limits{})
	wantCode(t, err, 10_000, LimitOps)
}

func TestLimitSize(t *testing.T) {
	t.Parallel()
	lim := Limits{Size: 20}
	_, err := Parse([]byte(`"123456789012345678901"`), lim)
	wantCode(t, err, -1, LimitSize)
	_, err = ParsePatch([]byte(`[{"op":"remove","path":"/a"}]`), lim)
	wantCode(t, err, -1, LimitSize)
	for _, c := range []struct {
		patch string
		code  Code
	}{
		{`[{"op":"add","path":"/b","value":1234567}]`, ""},
		{`[{"op":"add","path":"/b","value":12345678}]`, LimitSize},
		{`[{"op":"replace","path":"/a","value":"123456789012"}]`, ""},
		{`[{"op":"replace","path":"/a","value":"1234567890123"}]`, LimitSize},
		{`[{"op":"add","path":"/a","value":"1234567890123"}]`, LimitSize},
		{`[{"op":"add","path":"","value":"123456789012345678"}]`, ""},
		{`[{"op":"add","path":"","value":"1234567890123456789"}]`, LimitSize},
		{`[{"op":"move","from":"/a","path":"/abcdefghijkl"}]`, ""},
		{`[{"op":"move","from":"/a","path":"/abcdefghijklm"}]`, ""},
		{`[{"op":"move","from":"/a","path":"/abcdefghijklmno"}]`, LimitSize},
		{`[{"op":"copy","from":"/a","path":"/b"}]`, ""},
		{`[{"op":"copy","from":"","path":"/b"}]`, LimitSize},
		{`[{"op":"copy","from":"/a","path":"/b"},{"op":"copy","from":"","path":"/b"}]`, LimitSize},
	} {
		d := parseWith(t, `{"a":12}`, lim)
		err := d.Apply(mustPatch(t, c.patch))
		if c.code == "" {
			if err != nil || d.Size() > lim.Size {
				t.Errorf("%s: %v, %s", c.patch, err, d.AppendTo(nil))
			}
			continue
		}
		if apply := new(ApplyError); !errors.As(err, &apply) || apply.Code != c.code {
			t.Errorf("%s: %v, want %s; %s", c.patch, err, c.code, d.AppendTo(nil))
		}
		checkDoc(t, d, `{"a":12}`)
	}
}

// TestCopyAmplification doubles the document with every operation; the limit must stop it before the memory is taken.
func TestCopyAmplification(t *testing.T) {
	t.Parallel()
	var ops []string
	for i := range 40 {
		ops = append(ops, fmt.Sprintf(`{"op":"copy","from":"","path":"/x%d"}`, i))
	}
	text := `{"a":"` + strings.Repeat("x", 1000) + `"}`
	d := parseWith(t, text, Limits{Size: 1 << 20})
	wantCode(t, d.Apply(mustPatch(t, "["+strings.Join(ops, ",")+"]")), 10, LimitSize)
	checkDoc(t, d, text)

	churn := mustPatch(t, "["+strings.TrimSuffix(strings.Repeat(`{"op":"copy","from":"/a","path":"/b"},{"op":"remove","path":"/b"},`, 2000), ",")+"]")
	wantCode(t, d.Apply(churn), 2*1046, LimitSize)
	checkDoc(t, d, text)
}

// TestLimitWork has patches that never grow the document and still must not copy, measure or shift without end.
func TestLimitWork(t *testing.T) {
	t.Parallel()
	list := `[` + strings.TrimSuffix(strings.Repeat(`1,`, 500), ",") + `]`
	for name, c := range map[string]struct{ doc, ops string }{
		"copy and remove": {`{"a":` + list + `}`, `{"op":"copy","from":"/a","path":"/b"},{"op":"remove","path":"/b"}`},
		"shift":           {list, `{"op":"add","path":"/0","value":1},{"op":"remove","path":"/0"}`},
		"number":          {`{"a":1.` + strings.Repeat("0", 1000) + `}`, `{"op":"test","path":"/a","value":1}`},
		"move deeper":     {`{"a":` + list + `,"b":{}}`, `{"op":"move","from":"/a","path":"/b/a"},{"op":"move","from":"/b/a","path":"/a"}`},
	} {
		patch := mustPatch(t, "["+strings.TrimSuffix(strings.Repeat(c.ops+",", 200), ",")+"]")
		d := parseWith(t, c.doc, Limits{Work: 10_000})
		err := d.Apply(patch)
		if apply := new(ApplyError); !errors.As(err, &apply) || apply.Code != LimitWork || apply.Op < 4 {
			t.Errorf("%s: %v, want %s", name, err, LimitWork)
		}
		checkDoc(t, d, c.doc)
		if err := parseWith(t, c.doc, Limits{}).Apply(patch); err != nil {
			t.Errorf("%s with default limits: %v", name, err)
		}
	}
}

// TestRebuild leaves one small value of every large one that passed through; the memory that literals keep alive
// must stay proportional to the document.
func TestRebuild(t *testing.T) {
	t.Parallel()
	d := mustParse(t, `{"kept":[]}`)
	big := strings.Repeat("x", 10_000)
	for range 100 {
		p := mustPatch(t, `[{"op":"add","path":"/t","value":{"big":"`+big+`","k":1}},{"op":"move","from":"/t/k","path":"/kept/-"},{"op":"remove","path":"/t"}]`)
		if err := d.Apply(p); err != nil {
			t.Fatal(err)
		}
		if d.taken > 4*d.Size()+64<<10 {
			t.Fatalf("%d bytes may be alive for a document of %d", d.taken, d.Size())
		}
	}
	checkDoc(t, d, `{"kept":[`+strings.TrimSuffix(strings.Repeat("1,", 100), ",")+`]}`)
}

// TestSetLimits lowers the limits below what a document already has.
func TestSetLimits(t *testing.T) {
	t.Parallel()
	d := mustParse(t, `{"a":[[["long text"]]],"b":1}`)
	d.SetLimits(Limits{Size: 10, Depth: 2})
	wantCode(t, d.Apply(mustPatch(t, `[{"op":"replace","path":"/b","value":10}]`)), 0, LimitSize)
	wantCode(t, d.Apply(mustPatch(t, `[{"op":"replace","path":"/a/0/0/0","value":[]}]`)), 0, LimitDepth)
	if err := d.Apply(mustPatch(t, `[{"op":"replace","path":"/b","value":2},{"op":"replace","path":"/a","value":[]}]`)); err != nil {
		t.Fatal(err)
	}
	checkDoc(t, d, `{"a":[],"b":2}`)
}
