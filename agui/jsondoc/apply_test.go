package jsondoc

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// applyCase has the document after the patch, or the code with which its last operation fails.
type applyCase struct {
	doc, patch, want string
	code             Code
}

func runApplyCases(t *testing.T, cases []applyCase) {
	t.Helper()
	for _, c := range cases {
		d, p := mustParse(t, c.doc), mustPatch(t, c.patch)
		err := d.Apply(p)
		if c.code == "" {
			if err != nil {
				t.Errorf("%s on %s: %v", c.patch, c.doc, err)
				continue
			}
			checkDoc(t, d, c.want)
			continue
		}
		apply := new(ApplyError)
		if !errors.As(err, &apply) || apply.Code != c.code || apply.Op != p.Len()-1 {
			t.Errorf("%s on %s: %v, want %s of the last operation", c.patch, c.doc, err, c.code)
		}
		checkDoc(t, d, c.doc)
	}
}

func TestAdd(t *testing.T) {
	t.Parallel()
	runApplyCases(t, []applyCase{
		{doc: `{"a":1,"b":2}`, patch: `[{"op":"add","path":"/a","value":3}]`, want: `{"a":3,"b":2}`},
		{doc: `{"a":1}`, patch: `[{"op":"add","path":"/c","value":3}]`, want: `{"a":1,"c":3}`},
		{doc: `{}`, patch: `[{"op":"add","path":"/","value":[1.10, {"z" : "\u0041"}]}]`, want: `{"":[1.10,{"z":"\u0041"}]}`},
		{doc: `{"\u0061":1}`, patch: `[{"op":"add","path":"/a","value":2}]`, want: `{"\u0061":2}`},
		{doc: `{}`, patch: `[{"op":"add","path":"/\u0061\n\u0000<","value":2}]`, want: `{"a\n\u0000<":2}`},
		{doc: `{}`, patch: `[{"op":"add","path":"/\ud800","value":2}]`, want: `{"\ud800":2}`},
		{doc: `{"\ud83d":1,"😀":2}`, patch: `[{"op":"add","path":"/\ud83d\ude00","value":3},{"op":"add","path":"/\ud83d","value":4}]`, want: `{"\ud83d":4,"😀":3}`},
		{doc: `{}`, patch: `[{"op":"add","path":"/~01~1","value":2}]`, want: `{"~1/":2}`},
		{doc: `[1,2]`, patch: `[{"op":"add","path":"/-","value":3}]`, want: `[1,2,3]`},
		{doc: `[1,2]`, patch: `[{"op":"add","path":"/2","value":3}]`, want: `[1,2,3]`},
		{doc: `[1,2]`, patch: `[{"op":"add","path":"/0","value":3}]`, want: `[3,1,2]`},
		{doc: `[]`, patch: `[{"op":"add","path":"/0","value":null}]`, want: `[null]`},
		{doc: `{"-":1,"01":2}`, patch: `[{"op":"add","path":"/-","value":3},{"op":"add","path":"/01","value":4}]`, want: `{"-":3,"01":4}`},
		{doc: `{"a":[]}`, patch: `[{"op":"add","path":"","value":false}]`, want: `false`},
		{doc: `null`, patch: `[{"op":"add","path":"","value":{}},{"op":"add","path":"/a","value":1}]`, want: `{"a":1}`},
		{doc: `[1,2]`, patch: `[{"op":"add","path":"/3","value":0}]`, code: IndexOutOfRange},
		{doc: `{"a":[]}`, patch: `[{"op":"add","path":"/a/2000000000","value":1}]`, code: IndexOutOfRange},
		{doc: `[]`, patch: `[{"op":"add","path":"/18446744073709551616","value":1}]`, code: IndexOutOfRange},
		{doc: `[1]`, patch: `[{"op":"add","path":"/00","value":0}]`, code: InvalidIndex},
		{doc: `[1]`, patch: `[{"op":"add","path":"/01","value":0}]`, code: InvalidIndex},
		{doc: `[1]`, patch: `[{"op":"add","path":"/-1","value":0}]`, code: InvalidIndex},
		{doc: `[1]`, patch: `[{"op":"add","path":"/+1","value":0}]`, code: InvalidIndex},
		{doc: `[1]`, patch: `[{"op":"add","path":"/1e0","value":0}]`, code: InvalidIndex},
		{doc: `[1]`, patch: `[{"op":"add","path":"/","value":0}]`, code: InvalidIndex},
		{doc: `[1]`, patch: `[{"op":"add","path":"/١","value":0}]`, code: InvalidIndex},
		{doc: `[[]]`, patch: `[{"op":"add","path":"/-/0","value":0}]`, code: IndexOutOfRange},
		{doc: `{}`, patch: `[{"op":"add","path":"/a/b","value":0}]`, code: PathNotFound},
		{doc: `{"a":"text"}`, patch: `[{"op":"add","path":"/a/0","value":0}]`, code: NotAContainer},
		{doc: `null`, patch: `[{"op":"add","path":"/a","value":0}]`, code: NotAContainer},
		{doc: `{"a":null}`, patch: `[{"op":"add","path":"/a/b/c","value":0}]`, code: NotAContainer},
	})
}

func TestReplaceAndRemove(t *testing.T) {
	t.Parallel()
	runApplyCases(t, []applyCase{
		{doc: `{"a":1,"b":2}`, patch: `[{"op":"replace","path":"/a","value":[1]}]`, want: `{"a":[1],"b":2}`},
		{doc: `[1,2]`, patch: `[{"op":"replace","path":"/1","value":null}]`, want: `[1,null]`},
		{doc: `"x"`, patch: `[{"op":"replace","path":"","value":null},{"op":"replace","path":"","value":[1]},{"op":"remove","path":"/0"}]`, want: `[]`},
		{doc: `{}`, patch: `[{"op":"replace","path":"/a","value":1}]`, code: PathNotFound},
		{doc: `[1]`, patch: `[{"op":"replace","path":"/1","value":1}]`, code: IndexOutOfRange},
		{doc: `[1]`, patch: `[{"op":"replace","path":"/-","value":1}]`, code: IndexOutOfRange},
		{doc: `1`, patch: `[{"op":"replace","path":"/a","value":1}]`, code: NotAContainer},
		{doc: `{"a":1,"b":2,"c":3}`, patch: `[{"op":"remove","path":"/b"}]`, want: `{"a":1,"c":3}`},
		{doc: `{"a":1,"b":2}`, patch: `[{"op":"remove","path":"/a"},{"op":"add","path":"/a","value":1}]`, want: `{"b":2,"a":1}`},
		{doc: `{"a":1}`, patch: `[{"op":"remove","path":"/a"}]`, want: `{}`},
		{doc: `[1,2,3]`, patch: `[{"op":"remove","path":"/0"},{"op":"remove","path":"/1"}]`, want: `[2]`},
		{doc: `{"":{"":1}}`, patch: `[{"op":"remove","path":"//"}]`, want: `{"":{}}`},
		{doc: `{"a":1}`, patch: `[{"op":"remove","path":"/b"}]`, code: PathNotFound},
		{doc: `{"a":1}`, patch: `[{"op":"remove","path":"/a"},{"op":"remove","path":"/a"}]`, code: PathNotFound},
		{doc: `[1]`, patch: `[{"op":"remove","path":"/-"}]`, code: IndexOutOfRange},
		{doc: `[1]`, patch: `[{"op":"remove","path":"/-1"}]`, code: InvalidIndex},
		{doc: `{"a":1}`, patch: `[{"op":"remove","path":""}]`, code: RootRemoval},
	})
}

func TestMoveAndCopy(t *testing.T) {
	t.Parallel()
	runApplyCases(t, []applyCase{
		{doc: `{"a":{"x":1},"b":2}`, patch: `[{"op":"move","from":"/a","path":"/c"}]`, want: `{"b":2,"c":{"x":1}}`},
		{doc: `{"a":{"x":1},"b":2}`, patch: `[{"op":"move","from":"/b","path":"/a"}]`, want: `{"a":2}`},
		{doc: `[1,2,3]`, patch: `[{"op":"move","from":"/0","path":"/2"}]`, want: `[2,3,1]`},
		{doc: `[1,2,3]`, patch: `[{"op":"move","from":"/0","path":"/-"}]`, want: `[2,3,1]`},
		{doc: `[1,2,3]`, patch: `[{"op":"move","from":"/2","path":"/0"}]`, want: `[3,1,2]`},
		{doc: `[[1],[]]`, patch: `[{"op":"move","from":"/0","path":"/0/0"}]`, code: MoveIntoChild},
		{doc: `{"a":[1,{"b":2}]}`, patch: `[{"op":"move","from":"/a/1/b","path":""}]`, want: `2`},
		{doc: `{"a":{"b":{"c":1}}}`, patch: `[{"op":"move","from":"/a/b","path":"/a"}]`, want: `{"a":{"c":1}}`},
		{doc: `{"a":1,"b":2}`, patch: `[{"op":"move","from":"/a","path":"/a"}]`, want: `{"a":1,"b":2}`},
		{doc: `[1,2]`, patch: `[{"op":"move","from":"/0","path":"/0"}]`, want: `[1,2]`},
		{doc: `7`, patch: `[{"op":"move","from":"","path":""}]`, want: `7`},
		{doc: `{"a":1}`, patch: `[{"op":"move","from":"/b","path":"/b"}]`, code: PathNotFound},
		{doc: `{"a":1}`, patch: `[{"op":"move","from":"/b","path":"/a"}]`, code: PathNotFound},
		{doc: `{"a":{}}`, patch: `[{"op":"move","from":"/a","path":"/a/b"}]`, code: MoveIntoChild},
		{doc: `{"a":{}}`, patch: `[{"op":"move","from":"","path":"/b"}]`, code: MoveIntoChild},
		{doc: `{"a":1,"ab":{}}`, patch: `[{"op":"move","from":"/a","path":"/ab/x"}]`, want: `{"ab":{"x":1}}`},
		{doc: `{"a":1}`, patch: `[{"op":"move","from":"/a","path":"/b/c"}]`, code: PathNotFound},
		{doc: `[1,2]`, patch: `[{"op":"move","from":"/0","path":"/2"}]`, code: IndexOutOfRange},
		{doc: `[1]`, patch: `[{"op":"move","from":"/-","path":"/0"}]`, code: IndexOutOfRange},
		{doc: `{"a":{"x":1}}`, patch: `[{"op":"copy","from":"/a","path":"/b"},{"op":"add","path":"/a/x","value":2}]`, want: `{"a":{"x":2},"b":{"x":1}}`},
		{doc: `{"a":1}`, patch: `[{"op":"copy","from":"","path":"/b"}]`, want: `{"a":1,"b":{"a":1}}`},
		{doc: `{"a":1}`, patch: `[{"op":"copy","from":"","path":""}]`, want: `{"a":1}`},
		{doc: `{"a":[1],"b":2}`, patch: `[{"op":"copy","from":"/a","path":"/a"}]`, want: `{"a":[1],"b":2}`},
		{doc: `{"a":[1],"b":2}`, patch: `[{"op":"copy","from":"/a","path":"/a/0"}]`, want: `{"a":[[1],1],"b":2}`},
		{doc: `[1,2]`, patch: `[{"op":"copy","from":"/0","path":"/0"}]`, want: `[1,1,2]`},
		{doc: `{"a":{"b":1}}`, patch: `[{"op":"copy","from":"/a/b","path":""}]`, want: `1`},
		{doc: `{"a":1}`, patch: `[{"op":"copy","from":"/x","path":"/a"}]`, code: PathNotFound},
		{doc: `{"a":1}`, patch: `[{"op":"copy","from":"/a","path":"/x/y"}]`, code: PathNotFound},
	})
}

// TestAtomic fails at every operation of a long patch in turn, on objects with and without an index.
func TestAtomic(t *testing.T) {
	t.Parallel()
	ops := strings.Split(strings.TrimSpace(`
{"op":"add","path":"/new","value":{"x":[1,2]}}
{"op":"remove","path":"/b"}
{"op":"add","path":"/b","value":2}
{"op":"remove","path":"/b"}
{"op":"move","from":"/list/0","path":"/new/x/1"}
{"op":"copy","from":"/list","path":"/copied"}
{"op":"add","path":"/list/0","value":"first"}
{"op":"remove","path":"/list/1"}
{"op":"replace","path":"/obj/k","value":null}
{"op":"move","from":"/obj","path":"/a"}
{"op":"move","from":"/new","path":""}
{"op":"add","path":"/y","value":{}}
{"op":"copy","from":"","path":"/y/z"}
{"op":"replace","path":"","value":0}
{"op":"replace","path":"","value":[0]}`), "\n")
	wide := ""
	for i := range 2 * indexThreshold {
		wide += fmt.Sprintf(`,"w%d":%d`, i, i)
	}
	for _, more := range []string{"", wide} {
		doc := `{"a":1,"b":{"c":[true]},"list":[{"deep":[1,[2]]},"\u0041",3],"obj":{"k":1e0,"l":"x"}` + more + `}`
		for k := range len(ops) + 1 {
			patch := strings.Join(append(append([]string{}, ops[:k]...), `{"op":"test","path":"","value":"never"}`), ",")
			d := mustParse(t, doc)
			err := d.Apply(mustPatch(t, "["+patch+"]"))
			apply := new(ApplyError)
			if !errors.As(err, &apply) || apply.Op != k || apply.Code != TestFailed {
				t.Fatalf("failing at %d: %v", k, err)
			}
			checkDoc(t, d, doc)
			if err := d.Apply(mustPatch(t, "["+strings.Join(ops[:k], ",")+"]")); err != nil {
				t.Fatalf("after undoing %d: %v", k, err)
			}
			checkDoc(t, d, string(d.AppendTo(nil)))
		}
	}
}

func TestApplyErrorNamesThePlace(t *testing.T) {
	t.Parallel()
	err := mustParse(t, `{"plan":{}}`).Apply(mustPatch(t, `[{"op":"replace","path":"/plan","value":1},{"op":"copy","from":"/no","path":"/plan"}]`))
	apply := new(ApplyError)
	if !errors.As(err, &apply) || apply.Op != 1 || apply.Pointer.String() != "/no" || apply.Code != PathNotFound {
		t.Errorf("got %#v", err)
	}
	if want := `jsondoc: operation 1 does not apply at "/no": PATH_NOT_FOUND`; err.Error() != want {
		t.Errorf("text is %s", err)
	}
}

func TestCloneIsIndependent(t *testing.T) {
	t.Parallel()
	d := mustParse(t, `{"a":[1,{"b":2}],"c":3}`)
	clone := d.Clone()
	if err := d.Apply(mustPatch(t, `[{"op":"add","path":"/a/1/x","value":1},{"op":"remove","path":"/c"}]`)); err != nil {
		t.Fatal(err)
	}
	checkDoc(t, clone, `{"a":[1,{"b":2}],"c":3}`)
	if err := clone.Apply(mustPatch(t, `[{"op":"remove","path":"/a/0"}]`)); err != nil {
		t.Fatal(err)
	}
	checkDoc(t, clone, `{"a":[{"b":2}],"c":3}`)
	checkDoc(t, d, `{"a":[1,{"b":2,"x":1}]}`)
}
