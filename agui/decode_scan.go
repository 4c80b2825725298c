package agui

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf8"
)

// checkJSON refuses a text that is not exactly one JSON value (RFC 8259) in valid UTF-8, or that nests deeper than
// maxDepth; a container at the root has depth 1. Repeated names and lone surrogate escapes are legal here.
func checkJSON(text []byte, maxDepth int) *Violation {
	if !utf8.Valid(text) {
		return &Violation{Code: JSONMalformed, Detail: fmt.Sprintf("invalid UTF-8 at byte %d", invalidUTF8(text))}
	}
	g := grammar{text: text, pos: skipSpace(text, 0), maxDepth: maxDepth}
	ok := g.value(1)
	if g.tooDeep {
		return &Violation{Code: JSONTooDeep, Detail: fmt.Sprintf("deeper than %d levels at byte %d", maxDepth, g.pos)}
	}
	if ok {
		g.pos = skipSpace(text, g.pos)
	}
	if !ok || g.pos < len(text) {
		return &Violation{Code: JSONMalformed, Detail: fmt.Sprintf("not JSON at byte %d", g.pos)}
	}
	return nil
}

func invalidUTF8(text []byte) int {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n <= 1 {
			return i
		}
		i += n
	}
	return len(text)
}

// grammar checks JSON text. Its methods move pos over one production, or report false with pos at the offending byte.
type grammar struct {
	text     []byte
	pos      int
	maxDepth int
	tooDeep  bool
}

// at returns the byte at pos, or 0 at the end of the text, which no production accepts.
func (g *grammar) at() byte {
	if g.pos < len(g.text) {
		return g.text[g.pos]
	}
	return 0
}

func (g *grammar) eat(c byte) bool {
	if g.at() != c {
		return false
	}
	g.pos++
	return true
}

func (g *grammar) value(depth int) bool {
	switch g.at() {
	case '{':
		return g.container(depth, '}', g.member)
	case '[':
		return g.container(depth, ']', g.value)
	case '"':
		return g.string()
	case 't':
		return g.literal("true")
	case 'f':
		return g.literal("false")
	case 'n':
		return g.literal("null")
	default:
		return g.number()
	}
}

func (g *grammar) container(depth int, closer byte, element func(int) bool) bool {
	if depth > g.maxDepth {
		g.tooDeep = true
		return false
	}
	g.pos = skipSpace(g.text, g.pos+1)
	if g.eat(closer) {
		return true
	}
	for {
		if !element(depth + 1) {
			return false
		}
		g.pos = skipSpace(g.text, g.pos)
		if g.eat(closer) {
			return true
		}
		if !g.eat(',') {
			return false
		}
		g.pos = skipSpace(g.text, g.pos)
	}
}

func (g *grammar) member(depth int) bool {
	if g.at() != '"' || !g.string() {
		return false
	}
	g.pos = skipSpace(g.text, g.pos)
	if !g.eat(':') {
		return false
	}
	g.pos = skipSpace(g.text, g.pos)
	return g.value(depth)
}

func (g *grammar) string() bool {
	for g.pos = plainUntil(g.text, g.pos+1); g.pos < len(g.text); g.pos = plainUntil(g.text, g.pos+1) {
		switch c := g.text[g.pos]; {
		case c == '"':
			g.pos++
			return true
		case c == '\\':
			if !g.escape() {
				return false
			}
		case c < ' ':
			return false
		}
	}
	return false
}

// plainUntil skips, eight at a time, bytes from i on that a string may hold as they are: neither a quotation mark nor a backslash
// nor a control character. The byte it returns may be one too.
func plainUntil(text []byte, i int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(text); i += 8 {
		word := binary.LittleEndian.Uint64(text[i:])
		quote, backslash := word^'"'*ones, word^'\\'*ones
		// The high bit of a byte is set if it is below 0x20, or is zero in one of the other two; with bytes above the first such
		// one it may be wrong.
		special := ((word - ' '*ones) &^ word) | ((quote - ones) &^ quote) | ((backslash - ones) &^ backslash)
		if special &= highs; special != 0 {
			return i + bits.TrailingZeros64(special)/8
		}
	}
	return i
}

// escape leaves pos on the last byte of the escape sequence.
func (g *grammar) escape() bool {
	g.pos++
	switch g.at() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return true
	case 'u':
		for range 4 {
			g.pos++
			if _, ok := hexDigit(g.at()); !ok {
				return false
			}
		}
		return true
	}
	return false
}

func (g *grammar) literal(word string) bool {
	for i := range len(word) {
		if !g.eat(word[i]) {
			return false
		}
	}
	return true
}

func (g *grammar) number() bool {
	g.eat('-')
	if !g.eat('0') && !g.digits() {
		return false
	}
	if g.eat('.') && !g.digits() {
		return false
	}
	if !g.eat('e') && !g.eat('E') {
		return true
	}
	if !g.eat('-') {
		g.eat('+')
	}
	return g.digits()
}

func (g *grammar) digits() bool {
	start := g.pos
	for c := g.at(); '0' <= c && c <= '9'; c = g.at() {
		g.pos++
	}
	return g.pos > start
}

func skipSpace(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r') {
		i++
	}
	return i
}

func hexDigit(c byte) (rune, bool) {
	switch {
	case '0' <= c && c <= '9':
		return rune(c - '0'), true
	case 'a' <= c && c <= 'f':
		return rune(c-'a') + 10, true
	case 'A' <= c && c <= 'F':
		return rune(c-'A') + 10, true
	}
	return 0, false
}

// The functions below walk text that checkJSON has accepted, so they cannot run past its end.

// skipValue returns the offset after the value at i.
func skipValue(text []byte, i int) int {
	switch text[i] {
	case '"':
		return skipString(text, i)
	case '{', '[':
		return skipContainer(text, i)
	}
	for i < len(text) && !delimiter[text[i]] {
		i++
	}
	return i
}

var delimiter = [256]bool{',': true, ']': true, '}': true, ' ': true, '\n': true, '\t': true, '\r': true}

func skipString(text []byte, i int) int {
	for i++; ; i++ {
		i += bytes.IndexByte(text[i:], '"')
		escapes := 0
		for text[i-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return i + 1
		}
	}
}

func skipContainer(text []byte, i int) int {
	for depth := 0; ; i++ {
		switch text[i] {
		case '"':
			i = skipString(text, i) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
}

// memberAt reads the member at i: its decoded name, and the offset of its value.
func memberAt(text []byte, i int) (name []byte, value int) {
	end := skipString(text, i)
	return unquoted(text[i:end]), skipSpace(text, skipSpace(text, end)+1)
}

// findMember looks for a name among the members from offset i on, where i is at a member or at the object's closer. It
// returns the offsets of the value and of the member after it; value is -1 when there is none.
func findMember(text []byte, i int, name string) (value, next int) {
	for text[i] == '"' {
		found, value := memberAt(text, i)
		i = skipSpace(text, skipValue(text, value))
		if text[i] == ',' {
			i = skipSpace(text, i+1)
		}
		if string(found) == name {
			return value, i
		}
	}
	return -1, i
}
