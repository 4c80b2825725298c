package jsondoc

import (
	"math"
	"strconv"
	"strings"
)

// Equal reports whether two JSON texts have the same value as RFC 6902 section 4.6 defines it: numbers by mathematical
// value, strings after unescaping, objects without regard to order. The errors are those of Parse, with the default
// Depth and without a bound on the size.
func Equal(a, b []byte) (bool, error) {
	lim := Limits{Size: math.MaxInt}.orDefaults()
	left, err := parseValue(a, lim)
	if err != nil {
		return false, err
	}
	right, err := parseValue(b, lim)
	if err != nil {
		return false, err
	}
	var c comparison
	return c.equal(left, right), nil
}

// comparison compares values and counts the bytes of number literals it had to read: the one cost that the smaller of
// two values does not bound.
type comparison struct{ read int }

func (c *comparison) equal(a, b value) bool {
	a, b = a.unfolded(), b.unfolded()
	switch {
	case a.node == nil && b.node == nil:
		return c.equalScalars(a.text, b.text)
	case a.node == nil || b.node == nil || a.node.len() != b.node.len():
		return false
	case a.node.fields == nil && b.node.fields == nil:
		return c.equalArrays(a.node, b.node)
	case a.node.fields == nil || b.node.fields == nil:
		return false
	}
	return c.equalObjects(a.node, b.node)
}

func (c *comparison) equalArrays(a, b *container) bool {
	for i := range a.values {
		if !c.equal(a.values[i], b.values[i]) {
			return false
		}
	}
	return true
}

func (c *comparison) equalObjects(a, b *container) bool {
	for i, v := range a.values {
		if v.absent() {
			continue
		}
		j := b.find(a.fields.names[i].key)
		if j < 0 || !c.equal(v, b.values[j]) {
			return false
		}
	}
	return true
}

func (c *comparison) equalScalars(a, b string) bool {
	switch {
	case a == b:
		return true
	case a[0] == '"' && b[0] == '"':
		return equalStrings(a, b)
	case isNumber(a) && isNumber(b):
		c.read += len(a) + len(b)
		return normalize(a) == normalize(b)
	}
	return false
}

// equalStrings compares two literals. An escape is at most six times as long as what it stands for, which spares the
// work where one literal is far longer than the other.
func equalStrings(a, b string) bool {
	if len(a)-2 > 6*(len(b)-2) || len(b)-2 > 6*(len(a)-2) {
		return false
	}
	return unquote(a) == unquote(b)
}

func isNumber(literal string) bool {
	return literal[0] == '-' || '0' <= literal[0] && literal[0] <= '9'
}

// number is the mathematical value of a number literal, 0.digits × 10^exponent, in a form that is the same for equal
// values: digits without zeros at either end, and zero without sign and exponent. It is never longer than the literal
// by more than a few bytes, however large the exponent.
type number struct {
	negative bool
	digits   string
	exponent string // decimal, canonical
}

func normalize(literal string) number {
	text, negative := strings.CutPrefix(literal, "-")
	exponent := "0"
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		text, exponent = text[:i], text[i+1:]
	}
	whole, fraction, _ := strings.Cut(text, ".")
	all := whole + fraction
	digits := strings.TrimLeft(all, "0")
	if digits == "" {
		return number{digits: "0", exponent: "0"}
	}
	point := len(whole) - (len(all) - len(digits))
	return number{negative, strings.TrimRight(digits, "0"), addExponent(exponent, int64(point))}
}

// addExponent adds delta, which is far below 10^18, to an exponent of any length. Where the exponent does not fit an
// int64 it has more digits than delta, so the sum has its sign and one carry runs through its digits.
func addExponent(exponent string, delta int64) string {
	exponent = strings.TrimPrefix(exponent, "+")
	magnitude, negative := strings.CutPrefix(exponent, "-")
	magnitude = strings.TrimLeft(magnitude, "0")
	sign := ""
	if negative {
		sign, delta = "-", -delta
	}
	if len(magnitude) <= 18 {
		small, _ := strconv.ParseInt("0"+magnitude, 10, 64)
		if negative {
			return strconv.FormatInt(-(small + delta), 10)
		}
		return strconv.FormatInt(small+delta, 10)
	}
	digits := append([]byte{'0'}, magnitude...)
	for i := len(digits) - 1; delta != 0; i-- {
		sum := int64(digits[i]-'0') + delta
		digit := (sum%10 + 10) % 10
		digits[i] = byte('0' + digit)
		delta = (sum - digit) / 10
	}
	return sign + strings.TrimLeft(string(digits), "0")
}
