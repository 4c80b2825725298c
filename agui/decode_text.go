package agui

import (
	"bytes"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/threadsvc/threadsvc/agui/jsondoc"
)

// pathStep is one token of the path to the value being walked: a member's name, or an element's index when name is "".
// Members named "" never become steps of a closed object, as the protocol has no such field.
type pathStep struct {
	name  string
	index int
}

func (d *decoder) push(name string) { d.path = append(d.path, pathStep{name: name}) }
func (d *decoder) pop()             { d.path = d.path[:len(d.path)-1] }

// pointer renders the path as a JSON pointer (RFC 6901).
func (d *decoder) pointer() string {
	var b strings.Builder
	for _, s := range d.path {
		b.WriteByte('/')
		if s.name == "" {
			b.WriteString(strconv.Itoa(s.index))
		} else {
			b.WriteString(pointerEscaper.Replace(s.name))
		}
	}
	return b.String()
}

var pointerEscaper = strings.NewReplacer("~", "~0", "/", "~1")

// maxShownName is the length in bytes to which an unknown property's name is cut in a pointer. Longer names end in "…",
// so a producer cannot make warnings and errors grow without bound.
const maxShownName = 256

// unknownPointer is the pointer of a property that has no field, of the object the path leads to. What cannot be
// stored or sent as text (NUL, lone surrogates) shows as U+FFFD.
func (d *decoder) unknownPointer(name []byte) string {
	shown := strings.ToValidUTF8(shorten(string(name), maxShownName), "\uFFFD")
	shown = strings.ReplaceAll(shown, "\x00", "\uFFFD")
	return d.pointer() + "/" + pointerEscaper.Replace(shown)
}

// maxShownTag is the length in bytes to which an unknown type or role is cut in the detail of a warning.
const maxShownTag = 64

// printable makes an unknown type or role fit for a warning's detail.
func printable(tag string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(shorten(tag, maxShownTag), "\uFFFD"))
}

// shorten cuts s to at most limit bytes, on a character boundary, and shows that it did.
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	n := limit - len("…")
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// wrongType says what a value is and what it must be. It never shows the value.
func wrongType(first byte, want string) string {
	got := "a number"
	switch first {
	case '{':
		got = "an object"
	case '[':
		got = "an array"
	case '"':
		got = "a string"
	case 't', 'f':
		got = "a boolean"
	case 'n':
		got = "null"
	}
	return "must be " + want + ", is " + got
}

// unquoted returns what a valid JSON string literal stands for, in WTF-8: a part of the literal if it has no escapes, else
// a copy.
func unquoted(literal []byte) []byte {
	if bytes.IndexByte(literal, '\\') < 0 {
		return literal[1 : len(literal)-1]
	}
	s, _ := jsondoc.Unquote(literal) // cannot fail: checkJSON has accepted the literal
	return []byte(s)
}

// maxSafeInteger is 2^53-1, the largest integer that every JSON implementation keeps exactly.
const maxSafeInteger = 1<<53 - 1

// safeInteger reads a number whose value is an integer, however it is written (1, 1.0, 10e-1), of magnitude up to
// maxSafeInteger. It costs no more for 1e999999999 than for 1.
func safeInteger(number []byte) (int64, bool) {
	if n, ok := plainInteger(number); ok {
		return n, true
	}
	if n, err := strconv.ParseInt(string(number), 10, 64); err == nil {
		return n, -maxSafeInteger <= n && n <= maxSafeInteger
	}
	digits, negative := bytes.CutPrefix(number, []byte("-"))
	mantissa, exponent := digits, 0
	if e := bytes.IndexAny(digits, "eE"); e >= 0 {
		var err error
		if exponent, err = strconv.Atoi(string(digits[e+1:])); err != nil {
			exponent = len(number) // out of any range: decided by whether the mantissa is zero
		}
		mantissa = digits[:e]
	}
	whole, fraction, _ := bytes.Cut(mantissa, []byte("."))
	exponent -= len(fraction)
	significant := bytes.TrimLeft(append(append([]byte{}, whole...), fraction...), "0")
	trimmed := bytes.TrimRight(significant, "0")
	exponent += len(significant) - len(trimmed)
	if len(trimmed) == 0 {
		return 0, true
	}
	if exponent < 0 || exponent > 16 || len(trimmed)+exponent > 16 {
		return 0, false
	}
	n, err := strconv.ParseInt(string(trimmed)+strings.Repeat("0", exponent), 10, 64)
	if negative {
		n = -n
	}
	return n, err == nil && -maxSafeInteger <= n && n <= maxSafeInteger
}

// plainInteger reads what most integers are: up to 15 digits, which stay below maxSafeInteger.
func plainInteger(number []byte) (n int64, ok bool) {
	for _, c := range number {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, len(number) <= 15
}
