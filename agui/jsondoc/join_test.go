package jsondoc

import (
	"strings"
	"testing"
)

func TestJoinPatches(t *testing.T) {
	const a, b = `{"op":"add","path":"/a","value":[1, 2]}`, `{ "op":"remove","path":"/a" }`
	for _, tc := range []struct {
		patches []string
		want    string
	}{
		{nil, `[]`},
		{[]string{`[]`, " [ ] "}, `[]`},
		{[]string{"[" + a + "]"}, "[" + a + "]"},
		{[]string{"\n[ " + a + "\t] ", "[]", "[" + b + "," + a + "]"}, "[" + a + "," + b + "," + a + "]"},
		{[]string{"[" + a + "]", `{"no":"array"}`, "[" + b + "]"}, `{"no":"array"}`},
		{[]string{"[", "[" + b + "]"}, `[`},
		{[]string{""}, ``},
	} {
		var patches [][]byte
		for _, p := range tc.patches {
			patches = append(patches, []byte(p))
		}
		if got := string(JoinPatches(patches...)); got != tc.want {
			t.Errorf("%q: %s, want %s", strings.Join(tc.patches, " + "), got, tc.want)
		}
	}
}
