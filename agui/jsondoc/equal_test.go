package jsondoc

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestEqual(t *testing.T) {
	t.Parallel()
	nines, zeros := strings.Repeat("9", 40), strings.Repeat("0", 40)
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{`1`, `1.0`, true}, {`1`, `1e0`, true}, {`1`, `10e-1`, true}, {`1`, `0.1e1`, true}, {`1`, `0.01E+2`, true}, {`1`, `1.000e-0`, true},
		{`100`, `1e2`, true}, {`120`, `1.2e2`, true}, {`0`, `-0`, true}, {`0`, `0.000e999999999999999999999`, true}, {`-0.0`, `0e5`, true},
		{`1`, `-1`, false}, {`1`, `2`, false}, {`1`, `10`, false}, {`1`, `1.0000000000000000000000001`, false},
		{`9007199254740993`, `9007199254740992`, false}, {`9007199254740993`, `9007199254740993.0`, true},
		{`0.1`, `0.10000000000000000555`, false}, {`1e400`, `1e401`, false}, {`1e400`, `10e399`, true}, {`1e-400`, `0`, false},
		{`1e131000`, `10e130999`, true}, {`1e131000`, `1e131001`, false}, {`1e1000000000000`, `1e1000000000000`, true},
		{`1e` + nines, `10e` + nines[1:] + `8`, true}, {`1e` + nines, `1e` + nines[1:] + `8`, false}, {`1e1` + zeros, `10e` + nines, true}, {`1e` + nines, `0.1e1` + zeros, true},
		{`1e-1` + zeros, `0.1e-` + nines, true}, {`10e-1` + zeros, `1e-` + nines, true}, {`1e-1` + zeros, `1e1` + zeros, false},
		{`1e999999999999999999`, `0.1e1000000000000000000`, true}, {`1e+5`, `1e00005`, true}, {`1e-` + zeros + `5`, `1e-5`, true},
		{`"A"`, `"\u0041"`, true}, {`"a\/b"`, `"a/b"`, true}, {`"😀"`, `"\ud83d\ude00"`, true}, {`"\n"`, `"\u000a"`, true},
		{`"\ud800"`, `"\ud800"`, true}, {`"\ud800"`, `"\uD800"`, true}, {`"\ud800"`, `"\ud801"`, false}, {`"\ud800"`, `"\ufffd"`, false},
		{`"a"`, `"A"`, false}, {`""`, `"\u0000"`, false}, {`"é"`, `"e\u0301"`, false}, {`""`, `""`, true}, {`"1"`, `1`, false},
		{`null`, `null`, true}, {`null`, `false`, false}, {`true`, `true`, true}, {`0`, `false`, false}, {`0`, `null`, false}, {`""`, `null`, false},
		{`[]`, `[]`, true}, {`[]`, `{}`, false}, {`[]`, `null`, false}, {`{}`, `{}`, true}, {`[null]`, `[null]`, true}, {`[null]`, `[]`, false},
		{`[1,2]`, `[2,1]`, false}, {`[1,[2]]`, `[1.0,[2e0]]`, true},
		{`{"a":1,"b":2}`, `{"b":2.0,"a":1}`, true}, {`{"a":1}`, `{"a":1,"b":null}`, false}, {`{"a":null}`, `{"b":null}`, false},
		{`{"\u0061":1}`, `{"a":1}`, true}, {`{"a":1,"a":2}`, `{"a":2}`, true}, {`{"\ud800":1}`, `{"\udc00":1}`, false},
	} {
		for _, pair := range [][2]string{{c.a, c.b}, {c.b, c.a}} {
			if got, err := Equal([]byte(pair[0]), []byte(pair[1])); err != nil || got != c.want {
				t.Errorf("Equal(%s, %s) = %v, %v, want %v", pair[0], pair[1], got, err, c.want)
			}
		}
	}
	malformed := new(MalformedError)
	if _, err := Equal([]byte(`1`), []byte(`{`)); !errors.As(err, &malformed) {
		t.Errorf("got %v", err)
	}
	if _, err := Equal([]byte(`{`), []byte(`1`)); !errors.As(err, &malformed) {
		t.Errorf("got %v", err)
	}
}

func TestTestOperation(t *testing.T) {
	t.Parallel()
	runApplyCases(t, []applyCase{
		{doc: `{"a":[1,null,{"x":"\u0041"}]}`, patch: `[{"op":"test","path":"","value":{"a":[1.0,null,{"x":"A"}]}}]`, want: `{"a":[1,null,{"x":"\u0041"}]}`},
		{doc: `null`, patch: `[{"op":"test","path":"","value":null}]`, want: `null`},
		{doc: `[null]`, patch: `[{"op":"test","path":"","value":[null]}]`, want: `[null]`},
		{doc: `{"a":1e131000}`, patch: `[{"op":"test","path":"/a","value":1000e130997}]`, want: `{"a":1e131000}`},
		{doc: `{"a":null}`, patch: `[{"op":"test","path":"/b","value":null}]`, code: PathNotFound},
		{doc: `[1]`, patch: `[{"op":"test","path":"/-","value":1}]`, code: IndexOutOfRange},
		{doc: `[1]`, patch: `[{"op":"test","path":"/0","value":"1"}]`, code: TestFailed},
		{doc: `{"a":{"b":1}}`, patch: `[{"op":"test","path":"/a","value":{"b":1,"c":2}}]`, code: TestFailed},
	})
}

// TestEqualNumbers shifts digits between the parts of a literal, which must not change its value, and then changes it.
func TestEqualNumbers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		digits := rapid.StringMatching(`[1-9][0-9]{0,25}[1-9]`).Draw(t, "digits")
		exponent := rapid.StringMatching(`-?[1-9][0-9]{0,30}`).Draw(t, "exponent")
		shift := rapid.Int64Range(0, 30).Draw(t, "shift")
		a := digits + "e" + exponent
		b := digits + strings.Repeat("0", int(shift)) + "e" + addExponent(exponent, -shift)
		c := "0." + strings.Repeat("0", int(shift)) + digits + "e" + addExponent(exponent, shift+int64(len(digits)))
		for _, other := range []string{b, c} {
			if equal, err := Equal([]byte(a), []byte(other)); err != nil || !equal {
				t.Fatalf("%s != %s (%v)", a, other, err)
			}
			if equal, err := Equal([]byte("-"+a), []byte(other)); err != nil || equal {
				t.Fatalf("-%s == %s (%v)", a, other, err)
			}
			if equal, err := Equal([]byte(digits+"1e"+exponent), []byte(other)); err != nil || equal {
				t.Fatalf("%s1e%s == %s (%v)", digits, exponent, other, err)
			}
		}
	})
}

func TestAddExponent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		exponent string
		delta    int64
		want     string
	}{
		{"0", 0, "0"}, {"-0", 0, "0"}, {"+7", -8, "-1"}, {"-7", 8, "1"}, {"999999999999999999", 1, "1000000000000000000"},
		{"1000000000000000000", -1, "999999999999999999"}, {"-1000000000000000000", 1, "-999999999999999999"},
		{"-9999999999999999999", -1, "-10000000000000000000"}, {"10000000000000000000000", -12345, "9999999999999999987655"},
		{"000000000000000000000000005", 1, "6"}, {"123456789012345678901234567890", 10, "123456789012345678901234567900"},
	} {
		if got := addExponent(c.exponent, c.delta); got != c.want {
			t.Errorf("%s + %d = %s, want %s", c.exponent, c.delta, got, c.want)
		}
	}
}
