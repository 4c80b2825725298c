package jsondoc

import (
	"encoding/json"
	"os"
	"testing"
)

type suiteCase struct {
	Comment  string
	Doc      json.RawMessage
	Patch    json.RawMessage
	Expected json.RawMessage
	Error    *string
	Disabled bool
}

// TestSuite runs the public json-patch-tests.
func TestSuite(t *testing.T) {
	t.Parallel()
	ran := 0
	for _, file := range []string{"testdata/tests.json", "testdata/spec_tests.json"} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var cases []suiteCase
		if err := json.Unmarshal(data, &cases); err != nil {
			t.Fatal(err)
		}
		for i, c := range cases {
			if c.Disabled || c.Doc == nil || c.Patch == nil {
				continue
			}
			ran++
			got, err := applyText(c.Doc, c.Patch)
			switch {
			case c.Error != nil && err == nil:
				t.Errorf("%s %d %q: applied, want error %q; got %s", file, i, c.Comment, *c.Error, got)
			case c.Error == nil && err != nil:
				t.Errorf("%s %d %q: %v", file, i, c.Comment, err)
			case c.Expected != nil:
				if equal, err := Equal(got, c.Expected); err != nil || !equal {
					t.Errorf("%s %d %q: got %s, want %s (%v)", file, i, c.Comment, got, c.Expected, err)
				}
			}
		}
	}
	t.Logf("json-patch-tests: %d cases", ran)
	if ran < 90 {
		t.Errorf("only %d cases were run", ran)
	}
}

func applyText(doc, patch []byte) ([]byte, error) {
	d, err := Parse(doc, Limits{})
	if err != nil {
		return nil, err
	}
	p, err := ParsePatch(patch, Limits{})
	if err != nil {
		return nil, err
	}
	if err := d.Apply(p); err != nil {
		return nil, err
	}
	return d.AppendTo(nil), nil
}
