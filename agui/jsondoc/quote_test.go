package jsondoc

import (
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestUnquote(t *testing.T) {
	t.Parallel()
	for literal, want := range map[string]string{
		`""`:                     "",
		`"plain"`:                "plain",
		`"é😀"`:                   "é😀",
		`"\u0041"`:               "A",
		`"\"\\\/\b\f\n\r\t"`:     "\"\\/\b\f\n\r\t",
		`"\u0000"`:               "\x00",
		`"\uD83D\uDE00"`:         "😀",
		`"\ud83d"`:               "\xed\xa0\xbd",
		`"\ude00"`:               "\xed\xb8\x80",
		`"\ud83dx\ude00"`:        "\xed\xa0\xbdx\xed\xb8\x80",
		`"\ude00\ud83d"`:         "\xed\xb8\x80\xed\xa0\xbd",
		`"\ud83d\ud83d\ude00"`:   "\xed\xa0\xbd😀",
		`"\ud83d\\ude00"`:        "\xed\xa0\xbd\\ude00",
		`"\\u0041"`:              `\u0041`,
		`"\ufffd"`:               "\ufffd",
		"\"\u2028<>&\x7f\"":      "\u2028<>&\x7f",
		`"\uffff\u0800\u07ff"`:   "\uffff\u0800\u07ff",
		`"tail backslash\\"`:     `tail backslash\`,
		`"\udbff\udfff\ud800\t"`: "\U0010ffff\xed\xa0\x80\t",
	} {
		got, err := Unquote([]byte(literal))
		if err != nil || got != want {
			t.Errorf("Unquote(%s) = %q, %v, want %q", literal, got, err, want)
		}
	}
}

func TestUnquoteMalformed(t *testing.T) {
	t.Parallel()
	for _, literal := range []string{
		``, `"`, `x`, `"a`, `a"`, `1`, `"\"`, `"\x"`, `"\u"`, `"\u12"`, `"\u12g4"`, `"a"b"`, "\"\n\"", "\"\xff\"",
		"\"\xed\xa0\x80\"", `"\U0041"`, `"\u 041"`, `"\ud83d\u"`, ` "a"`, "\"\x00\\n\"",
	} {
		_, err := Unquote([]byte(literal))
		if malformed := new(MalformedError); !errors.As(err, &malformed) {
			t.Errorf("Unquote(%q): %v, want a MalformedError", literal, err)
		}
	}
}

func TestAppendQuote(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"":                                    `""`,
		"a<b>&c/\u2028\x7f":                   "\"a<b>&c/\u2028\x7f\"",
		"\"\\\b\f\n\r\t":                      `"\"\\\b\f\n\r\t"`,
		"\x00\x1f\x0b":                        `"\u0000\u001f\u000b"`,
		"é😀":                                  `"é😀"`,
		"x\xed\xa0\xbdy":                      `"x\ud83dy"`,
		"\xed\xb8\x80\xed\xa0\xbd":            `"\ude00\ud83d"`,
		"\xed\xa0\xbd" + "\xed\xb8\x80" + "!": `"😀!"`,
		"a\xffb\xed":                          "\"a\ufffdb\ufffd\"",
		"\ufffd":                              "\"\ufffd\"",
	} {
		if got := string(AppendQuote([]byte("x"), s)); got != "x"+want {
			t.Errorf("AppendQuote(%q) = %s, want %s", s, got[1:], want)
		}
	}
}

// TestQuoteRoundTrip builds strings of any code points, surrogates included, and of fragments that look like escapes.
func TestQuoteRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var s []byte
		paired, last := false, rune(0)
		for range rapid.IntRange(0, 12).Draw(t, "n") {
			r := rapid.OneOf(rapid.Int32Range(0, 0x7f), rapid.Int32Range(0, 0x10ffff), rapid.Int32Range(0xd7f0, 0xe010)).Draw(t, "r")
			paired = paired || utf16.DecodeRune(last, r) != utf8.RuneError
			s, last = appendWTF8(s, r), r
		}
		literal := AppendQuote(nil, string(s))
		if !json.Valid(literal) {
			t.Fatalf("%q: not JSON: %s", s, literal)
		}
		got, err := Unquote(literal)
		if err != nil || !paired && got != string(s) {
			t.Fatalf("%q became %q, %v", s, got, err)
		}
		if again := AppendQuote(nil, got); string(again) != string(literal) {
			t.Fatalf("%s became %s", literal, again)
		}
	})
}
