package jsondoc

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
)

var (
	differentialPatches = flag.Int("differential.patches", 20_000, "patches that TestDifferential applies")
	differentialSeed    = flag.Uint64("differential.seed", 1, "seed of TestDifferential")
)

// TestDifferential applies random patches here and with evanphx/json-patch, within the range where that is right: no
// whole-document pointers, empty tokens, tests or indices with a leading zero, no move onto or into itself, negative
// indices off.
func TestDifferential(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(*differentialSeed, 0))
	g := &generator{intn: rnd.IntN, tame: true}
	applied, differences := 0, 0
	var d *Doc
	var root any // the document in the model, which the generator walks
	for n := range *differentialPatches {
		if n%25 == 0 || d.Size() > 1<<10 {
			d = mustParse(t, g.doc())
			root = modelParse(d.AppendTo(nil))
		}
		before := d.AppendTo(nil)
		patch, after, ok := g.patch(root, 4)
		err := d.Apply(mustPatch(t, patch))
		want, wantErr := referenceApply(before, patch)
		if err == nil {
			applied++
		}
		if ok {
			root = after
		}
		if (err == nil) != (wantErr == nil) || err == nil && !sameJSON(t, d.AppendTo(nil), want) {
			differences++
			t.Errorf("%.500s on %.500s:\ngot  %.500s, %v\nwant %.500s, %v", patch, before, d.AppendTo(nil), err, want, wantErr)
		}
		if differences > 20 {
			break
		}
	}
	fmt.Printf("differential: %d patches, %d differences (%d applied, seed %d)\n",
		*differentialPatches, differences, applied, *differentialSeed)
	if applied < *differentialPatches/10 {
		t.Errorf("only %d of %d patches applied", applied, *differentialPatches)
	}
}

func referenceApply(doc []byte, patch string) ([]byte, error) {
	p, err := jsonpatch.DecodePatch([]byte(patch))
	if err != nil {
		return nil, err
	}
	options := jsonpatch.NewApplyOptions()
	options.SupportNegativeIndices, options.EscapeHTML = false, false
	return p.ApplyWithOptions(doc, options)
}

// sameJSON compares with the standard library, number text included.
func sameJSON(t *testing.T, a, b []byte) bool {
	decode := func(text []byte) (v any) {
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		if err := dec.Decode(&v); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return v
	}
	return reflect.DeepEqual(decode(a), decode(b))
}

func mustParse(t testing.TB, text string) *Doc {
	t.Helper()
	d, err := Parse([]byte(text), Limits{})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return d
}

func mustPatch(t testing.TB, text string) *Patch {
	t.Helper()
	p, err := ParsePatch([]byte(text), Limits{})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return p
}
