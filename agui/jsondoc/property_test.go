package jsondoc

import (
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// TestModel applies random patches to a living document and to the model: text, order, size and failures must agree,
// and a failed patch must leave no trace.
func TestModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := &generator{intn: func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "n") }}
		text := g.doc()
		root := modelParse([]byte(text))
		d, err := Parse([]byte(text), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			patch, after, ok := g.patch(root, 4)
			p, err := ParsePatch([]byte(patch), Limits{})
			if err != nil {
				t.Fatalf("%s: %v", patch, err)
			}
			before := d.Clone()
			if err := d.Apply(p); (err == nil) != ok {
				t.Fatalf("%s on %s: %v, model applies: %v", patch, modelText(root), err, ok)
			}
			if ok {
				root = after
			}
			checkDoc(t, d, modelText(root))
			checkPointers(t, d, root, "")
			if err := before.Apply(p); (err == nil) != ok || string(before.AppendTo(nil)) != modelText(root) {
				t.Fatalf("the clone came out differently: %v", err)
			}
		}
	})
}

// checkDoc compares the text of a document, and its size and tree with what they are by definition.
func checkDoc(t interface {
	Helper()
	Fatalf(string, ...any)
}, d *Doc, want string) {
	t.Helper()
	got := string(d.AppendTo(nil))
	if got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	if d.Size() != len(got) {
		t.Fatalf("Size() = %d, text has %d bytes: %s", d.Size(), len(got), got)
	}
	if problem := d.root.invariants(nil); problem != "" {
		t.Fatalf("%s in %s", problem, got)
	}
}

// invariants names what is wrong with a tree, if anything.
func (v value) invariants(parent *container) string {
	if v.node == nil {
		return ""
	}
	c := v.node
	switch {
	case c.parent != parent:
		return "wrong parent"
	case c.size != len(v.appendTo(nil)):
		return "wrong size"
	case c.fields != nil && c.fields.dead > max(c.len(), indexThreshold):
		return "object not compacted"
	case c.fields != nil && c.fields.index != nil && len(c.fields.index) != c.len():
		return "index out of step"
	}
	for i, child := range c.values {
		if child.absent() {
			if c.fields == nil {
				return "gap in an array"
			}
			continue
		}
		if c.fields != nil && c.find(c.fields.names[i].key) != i {
			return "member not found"
		}
		if problem := child.invariants(c); problem != "" {
			return problem
		}
	}
	return ""
}

// checkPointers finds every value of the model by its pointer.
func checkPointers(t *rapid.T, d *Doc, v any, ptr string) {
	p, err := ParsePointer(ptr)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := d.Find(p); !ok || string(got) != modelText(v) {
		t.Fatalf("Find(%q) = %s, %v, want %s", ptr, got, ok, modelText(v))
	}
	if c, ok := v.(modelObject); ok {
		for _, m := range c {
			checkPointers(t, d, m.value, ptr+"/"+encodeToken(m.key))
		}
	}
}

// TestWideObject drives one large object through additions and removals, with failing patches in between, so that
// gaps, compaction and the index are exercised.
func TestWideObject(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		root := any(modelObject{})
		d, err := Parse([]byte(`{}`), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		for range 150 {
			key := rapid.IntRange(0, 40).Draw(t, "key")
			path := "/k" + strconv.Itoa(key)
			o := modelOp{op: rapid.SampledFrom([]string{"add", "remove"}).Draw(t, "op"), path: path, value: "1"}
			text := `{"op":"` + o.op + `","path":` + quoted(path) + `,"value":1}`
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
