package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

func TestParseMoment(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 2, 15, 4, 5, 0, time.UTC)
	at := func(tm time.Time) *threadsvcv1.Moment {
		return &threadsvcv1.Moment{At: &threadsvcv1.Moment_Time{Time: timestamppb.New(tm)}}
	}
	for text, want := range map[string]*threadsvcv1.Moment{
		"now":                          nil,
		"0":                            {At: &threadsvcv1.Moment_Version{}},
		"18446744073709551615":         {At: &threadsvcv1.Moment_Version{Version: 1<<64 - 1}},
		"run:12":                       {At: &threadsvcv1.Moment_RunId{RunId: "12"}},
		"run:run:x":                    {At: &threadsvcv1.Moment_RunId{RunId: "run:x"}},
		"90s":                          at(now.Add(-90 * time.Second)),
		"2026-12-02T15:04:05.25+01:00": at(time.Date(2026, 12, 2, 14, 4, 5, 250e6, time.UTC)),
		"2026-12-01 10:00":             at(time.Date(2026, 12, 1, 10, 0, 0, 0, time.Local)),
		"2026-12-01":                   at(time.Date(2026, 12, 1, 0, 0, 0, 0, time.Local)),
	} {
		got, err := parseMoment(text, now)
		if err != nil || got.String() != want.String() {
			t.Errorf("%s is %v, %v; want %v", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "-1", "run:", "yesterday", "-5m", "18446744073709551616", "1.5", "2026-13-01"} {
		if got, err := parseMoment(bad, now); err == nil {
			t.Errorf("%q is taken for %v", bad, got)
		}
	}
}

// Whatever is written, the only hidden characters are the screen's own.
func TestScreenHidesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var b bytes.Buffer
		s := &screen{w: &b, width: plainWidth}
		text := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(raw []byte) string { return string(raw) })).Draw(t, "text")
		s.table([][]cell{{{red, text}, {"", short(text, uint64(len(text)), 20)}}, heading(text)})
		s.thread(&showView{threadView: threadView{Thread: text, Metadata: json.RawMessage(text)}, PendingToolCalls: []string{text}})
		s.entry(&entryView{Run: text, Type: text, CommitTime: new(time.Time), Payload: json.RawMessage(text)})
		if err := s.json(map[string]string{"k": text}); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsFunc(strings.ReplaceAll(b.String(), "\n", ""), hidden) || !utf8.Valid(b.Bytes()) {
			t.Fatalf("%q", b.String())
		}
	})
}

// JSON that is made visible means what it did.
func TestVisibleJSONKeepsItsMeaning(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.String().Draw(t, "text")
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got string
		if err := json.Unmarshal([]byte(visibleJSON(string(text))), &got); err != nil || got != want {
			t.Fatalf("%q became %q, %v", want, got, err)
		}
	})
}

func TestShort(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 100)
	for _, c := range []struct {
		text  string
		size  uint64
		width int
		want  string
	}{
		{"whole", 5, 5, "whole"},
		{"cut by the service", 3 << 20, 40, "cut by the service… (3.0 MiB)"},
		{long, 200, 20, strings.Repeat("é", 11) + "… (200 B)"},
		{long, 0, 20, strings.Repeat("é", 19) + "…"},
		{long, 200, -5, strings.Repeat("é", 8) + "… (200 B)"},
		{"a\x1bb", 3, 20, `a\x1bb`},
	} {
		if got := short(c.text, c.size, c.width); got != c.want {
			t.Errorf("%q in %d: %q, want %q", c.text, c.width, got, c.want)
		}
	}
	for n, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 5 << 30: "5.0 GiB"} {
		if got := bytesText(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}

func TestAgo(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 2, 15, 4, 5, 0, time.UTC)
	s := &screen{now: now}
	for d, want := range map[time.Duration]string{0: "0s ago", 59 * time.Second: "59s ago", 3 * time.Minute: "3m ago",
		25 * time.Hour: "1d ago", -90 * time.Second: "in 1m"} {
		if got := s.ago(now.Add(-d)); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

func TestCompareValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ before, after, want string }{
		{`{"a":1,"b":2}`, `{"b":2,"a":1}`, ""},
		{`1.0`, `1`, " 1.0>1"},
		{`{"a/~b":1}`, `{"c":null}`, "/c >null /a~1~0b 1>"},
		{`[1,2,3,4]`, `[1,9,2,3,4]`, "/1 >9"},
		{`[1,2,3,4]`, `[1,4]`, "/1 2> /2 3>"},
		{`{"a":[{"x":1},{"x":2}]}`, `{"a":[{"x":1},{"x":3}]}`, "/a/1/x 2>3"},
		{`{"a":{}}`, `{"a":[]}`, "/a {}>[]"},
		{`{"a":null}`, `{"a":0}`, "/a null>0"},
	} {
		var all []string
		for _, v := range compareValues("", json.RawMessage(c.before), json.RawMessage(c.after), nil) {
			all = append(all, v.path+" "+string(v.before)+">"+string(v.after))
		}
		if got := strings.Join(all, " "); got != c.want {
			t.Errorf("%s, %s: %q, want %q", c.before, c.after, got, c.want)
		}
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{"type":"X","runId":"r","messageId":"m","delta":"a b"}`:                            `messageId=m  delta="a b"`,
		`{"type":"STATE_DELTA","delta":[{"op":"add","path":"/a"},{"op":"test","path":""}]}`: `add /a, test `,
		`{"messages":[{"role":"user","content":"one"},{"role":"user","content":"two"}]}`:    `2 messages, the last: user: two`,
		`{"messages":[{"role":"user","content":[1]}]}`:                                      `{"role":"user","content":[1]}`,
		`[1]`: `[1]`, `{"a":`: ``, ``: ``,
	} {
		if got := summary([]byte(payload), 60); got != want {
			t.Errorf("%s: %q, want %q", payload, got, want)
		}
	}
}
