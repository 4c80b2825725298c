package jsondoc

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Unquote returns the string that a JSON string literal, quotes included, stands for. The result is WTF-8: UTF-8 in
// which an escaped surrogate without its partner appears as the three bytes of its code point; a pair of escapes is
// the four bytes of the character. Errors are *MalformedError. A literal without a backslash costs one copy.
func Unquote(literal []byte) (string, error) {
	if n := len(literal); n < 2 || literal[0] != '"' || literal[n-1] != '"' {
		return "", &MalformedError{Reason: "not a JSON string"}
	}
	inner := literal[1 : len(literal)-1]
	if !utf8.Valid(inner) {
		return "", &MalformedError{Reason: "string is not valid UTF-8"}
	}
	for _, c := range inner {
		if c < ' ' || c == '"' || c == '\\' {
			return unescape(string(inner))
		}
	}
	return string(inner), nil
}

// unquote is Unquote for a literal that a JSON decoder has accepted; it shares memory with literal where it can.
func unquote(literal string) string {
	inner := literal[1 : len(literal)-1]
	if strings.IndexByte(inner, '\\') < 0 {
		return inner
	}
	s, _ := unescape(inner)
	return s
}

// unescape resolves the escapes of the inside of a string literal.
func unescape(s string) (string, error) {
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '"' || c < ' ':
			return "", &MalformedError{Reason: "string holds a character that must be escaped"}
		case c != '\\':
			out = append(out, c)
			i++
		default:
			r, n := escape(s[i:])
			if n == 0 {
				return "", &MalformedError{Reason: "string holds an invalid escape"}
			}
			out = appendWTF8(out, r)
			i += n
		}
	}
	return string(out), nil
}

// escape reads the escape that s starts with, or the pair of escapes of one character, and returns the code point and
// its length in s; 0 means invalid.
func escape(s string) (rune, int) {
	if len(s) < 2 {
		return 0, 0
	}
	if s[1] != 'u' {
		if i := strings.IndexByte(`"\/bfnrt`, s[1]); i >= 0 {
			return rune("\"\\/\b\f\n\r\t"[i]), 2
		}
		return 0, 0
	}
	high, ok := hex4(s)
	if !ok {
		return 0, 0
	}
	if low, ok := hex4(s[6:]); ok {
		if r := utf16.DecodeRune(high, low); r != utf8.RuneError {
			return r, 12
		}
	}
	return high, 6
}

// hex4 reads \uXXXX at the start of s.
func hex4(s string) (rune, bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range []byte(s[2:6]) {
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// appendWTF8 is utf8.AppendRune that keeps surrogates.
func appendWTF8(dst []byte, r rune) []byte {
	if utf16.IsSurrogate(r) {
		return append(dst, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
	}
	return utf8.AppendRune(dst, r)
}

// surrogate reads a surrogate in its three-byte form at the start of s.
func surrogate(s string) (rune, bool) {
	if len(s) < 3 || s[0] != 0xED || s[1]&0xE0 != 0xA0 || s[2]&0xC0 != 0x80 {
		return 0, false
	}
	return 0xD000 | rune(s[1]&0x3F)<<6 | rune(s[2]&0x3F), true
}

// AppendQuote appends s as a JSON string literal and is the reverse of Unquote: it escapes only the quote, the
// backslash, control characters (\b \f \n \r \t, else \u00xx) and lone surrogates (\udxxx). A high and a low surrogate
// in a row become the character they mean; bytes that are not WTF-8 become U+FFFD.
func AppendQuote(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0 // of the bytes not yet copied
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			if c < ' ' || c == '"' || c == '\\' {
				dst = appendEscape(append(dst, s[start:i]...), c)
				start = i + 1
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			dst = append(dst, s[start:i]...)
			dst, n = appendBroken(dst, s[i:])
			start = i + n
		}
		i += n
	}
	return append(append(dst, s[start:]...), '"')
}

const hexDigits = "0123456789abcdef"

// appendEscape appends the escape of an ASCII character.
func appendEscape(dst []byte, c byte) []byte {
	if i := strings.IndexByte("\"\\\b\f\n\r\t", c); i >= 0 {
		return append(dst, '\\', `"\bfnrt`[i])
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}

// appendBroken appends what stands at the start of s and is not UTF-8, and returns how many bytes that was.
func appendBroken(dst []byte, s string) ([]byte, int) {
	high, ok := surrogate(s)
	if !ok {
		return utf8.AppendRune(dst, utf8.RuneError), 1
	}
	if low, ok := surrogate(s[3:]); ok {
		if r := utf16.DecodeRune(high, low); r != utf8.RuneError {
			return utf8.AppendRune(dst, r), 6
		}
	}
	return strconv.AppendInt(append(dst, '\\', 'u'), int64(high), 16), 3
}
