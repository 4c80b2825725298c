package jsondoc

import (
	"math"
	"strconv"
	"strings"
)

// Pointer is a JSON pointer (RFC 6901 section 3) whose syntax has been checked. The zero value is the whole document.
// Pointers are comparable: every token has one spelling only.
type Pointer struct{ text string }

// ParsePointer checks s against ^(/([^/~]|~[01])*)*$; the error is a *MalformedError. Whether the tokens name
// anything shows when the pointer meets a document. Keys in s are UTF-8 or, for lone surrogates, WTF-8 as of Unquote.
func ParsePointer(s string) (Pointer, error) {
	if s != "" && s[0] != '/' {
		return Pointer{}, &MalformedError{Reason: "JSON pointer does not start with a slash"}
	}
	for rest := s; ; {
		i := strings.IndexByte(rest, '~')
		if i < 0 {
			return Pointer{text: s}, nil
		}
		if i+1 == len(rest) || rest[i+1] != '0' && rest[i+1] != '1' {
			return Pointer{}, &MalformedError{Reason: "JSON pointer holds a tilde that is not followed by 0 or 1"}
		}
		rest = rest[i+2:]
	}
}

// String returns the pointer as it was parsed.
func (p Pointer) String() string { return p.text }

// depth is the number of tokens, which is the number of containers around the value pointed at.
func (p Pointer) depth() int { return strings.Count(p.text, "/") }

// contains reports whether q points into the value at p, and not at that value itself.
func (p Pointer) contains(q Pointer) bool {
	return len(q.text) > len(p.text) && strings.HasPrefix(q.text, p.text) && q.text[len(p.text)] == '/'
}

// next cuts off the first token, unescaped. The pointer must not be empty.
func (p Pointer) next() (token string, rest Pointer) {
	text := p.text[1:]
	if i := strings.IndexByte(text, '/'); i >= 0 {
		return decodeToken(text[:i]), Pointer{text: text[i:]}
	}
	return decodeToken(text), Pointer{}
}

// last cuts off the last token, unescaped. The pointer must not be empty.
func (p Pointer) last() (parent Pointer, token string) {
	i := strings.LastIndexByte(p.text, '/')
	return Pointer{text: p.text[:i]}, decodeToken(p.text[i+1:])
}

var tokenDecoder = strings.NewReplacer("~0", "~", "~1", "/")

func decodeToken(s string) string {
	if strings.IndexByte(s, '~') < 0 {
		return s
	}
	return tokenDecoder.Replace(s)
}

// parseIndex reads an array index: "0", or digits without a leading zero (RFC 6901 section 4). An index too large for
// an int is valid, and larger than any array.
func parseIndex(token string) (int, bool) {
	if token == "" || token[0] == '0' && token != "0" {
		return 0, false
	}
	for _, c := range []byte(token) {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	i, err := strconv.Atoi(token)
	if err != nil {
		return math.MaxInt, true
	}
	return i, true
}
