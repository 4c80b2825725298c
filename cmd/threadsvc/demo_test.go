package main

import (
	"errors"
	"os"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

func TestDemo(t *testing.T) {
	t.Parallel()
	eachAccount(t, func(t *testing.T, a account) {
		dir := a.ownDir(t)
		// What would set a server's flags must not reach the demo's.
		p := a.start(t, dir, []string{"THREADSVC_LISTEN=nowhere", "THREADSVC_MAX_EVENT_BYTES=1"}, "demo")
		if code := p.wait(); code != 0 {
			t.Fatalf("exit code %d\n%s%s", code, &p.stdout, &p.stderr)
		}
		got := p.stdout.String()
		wantOutput(t, got, "PATCH_NOT_APPLIED event", "TEST_FAILED", "INTERRUPTS_OPEN FailedPrecondition", "interrupt_ids = approve-payment",
			"SIGKILL to process", "the last ack says 24", "the stream ends with Unavailable", "Boa viagem!",
			`"offers": [{"flight": "TP 535", "price": 448.50, "stops": 0}],`, "README.md")
		for _, claim := range []string{"log", "crash", "messages", "state", "history", "diff", "verify"} {
			if !regexp.MustCompile(`(?m)^  ok +` + claim).MatchString(got) {
				t.Errorf("%s is not checked in\n%s", claim, got)
			}
		}
		wantLayout(t, got)
		if p.stderr.String() != "" {
			t.Errorf("standard error has %q", &p.stderr)
		}
		wantNothingLeft(t, dir)
	})
}

func wantLayout(t *testing.T, got string) {
	t.Helper()
	if strings.Contains(got, "\x1b") {
		t.Error("there is colour, but no terminal")
	}
	all := strings.Split(got, "\n")
	if len(all) > 146 {
		t.Errorf("%d lines", len(all))
	}
	for _, line := range all {
		if len([]rune(line)) > lineWidth {
			t.Errorf("a line of %d characters: %s", len([]rune(line)), line)
		}
	}
}

func wantNothingLeft(t *testing.T, dir string) {
	t.Helper()
	if runtime.GOOS == "linux" {
		eventually(t, func() bool { return len(leftover(t, dir)) == 0 }) // backends that have no parent any more
	}
	files, err := os.ReadDir(dir)
	must(t, err)
	if len(files) != 0 {
		t.Errorf("files are left: %v", files)
	}
}

func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			dir := account{}.ownDir(t)
			p := account{}.start(t, dir, nil, "demo")
			p.await(&p.stdout, "Run 1")
			must(t, p.cmd.Process.Signal(sig))
			if code := p.wait(); code != exitInterrupted || p.stderr.String() != "threadsvc: interrupted\n" {
				t.Errorf("exit code %d, %s", code, &p.stderr)
			}
			wantNothingLeft(t, dir)
		})
	}
}

// A demo that is killed cannot clean up, but its processes end with it.
func TestDemoKilled(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends children with their parent")
	}
	dir := account{}.ownDir(t)
	p := account{}.start(t, dir, nil, "demo")
	p.await(&p.stdout, "Run 1")
	must(t, p.cmd.Process.Kill())
	p.wait()
	eventually(t, func() bool { return len(leftover(t, dir)) == 0 })
}

func TestDemoWithoutPostgres(t *testing.T) {
	t.Parallel()
	code, _, stderr := execute(t, []string{"THREADSVC_PG_BIN=" + t.TempDir()}, "demo")
	if code != exitFailed || strings.Count(stderr, "\n") != 1 {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	wantOutput(t, stderr, "threadsvc: embedded: no PostgreSQL server programs", "install them")
}

func TestCheckLogFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	runs := []scriptedRun{{id: "a", events: []string{"{}", "{}", "{}"}}}
	entry := func(version, offset uint64) *threadsvcv1.LogEntry {
		return &threadsvcv1.LogEntry{Version: version, Offset: offset, RunId: "a", Kind: threadsvcv1.EntryKind_ENTRY_KIND_EVENT}
	}
	input := &threadsvcv1.LogEntry{Version: 1, RunId: "a", Kind: threadsvcv1.EntryKind_ENTRY_KIND_INPUT}
	for name, c := range map[string]struct {
		entries []*threadsvcv1.LogEntry
		bad     bool
	}{
		"whole":            {[]*threadsvcv1.LogEntry{input, entry(2, 0), entry(3, 1), entry(4, 1), entry(5, 2)}, false},
		"a version short":  {[]*threadsvcv1.LogEntry{input, entry(2, 0), entry(4, 1), entry(5, 2)}, true},
		"an event short":   {[]*threadsvcv1.LogEntry{input, entry(2, 0), entry(3, 2)}, true},
		"cut off":          {[]*threadsvcv1.LogEntry{input, entry(2, 0), entry(3, 1)}, true},
		"out of order":     {[]*threadsvcv1.LogEntry{input, entry(2, 1), entry(3, 0), entry(4, 2)}, true},
		"an earlier event": {[]*threadsvcv1.LogEntry{input, entry(2, 0), entry(3, 1), entry(4, 0), entry(5, 2)}, true},
	} {
		if err := checkLog(runs, c.entries); errors.Is(err, errClaim) != c.bad {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestChecksFindWhatIsWrong(t *testing.T) {
	t.Parallel()
	var whole []shownMessage
	for id := range strings.FieldsSeq(finalMessages) {
		m := shownMessage{ID: id, Content: []byte(`"x"`)}
		if id == chosenID {
			m.Content = []byte(quoted(choseText))
		}
		whole = append(whole, m)
	}
	must(t, checkMessages(whole))
	torn := append([]shownMessage(nil), whole...)
	torn[7].Content = []byte(quoted(choseText[1:]))
	for name, err := range map[string]error{
		"torn text":       checkMessages(torn),
		"message missing": checkMessages(whole[1:]),
		"number changed":  checkState([]byte(`{"state":` + strings.Replace(finalState, "448.50", "448.5", 1) + `}`)),
		"ack lost":        (&crash{acked: 24, durable: 23, sent: 39, total: 57}).check(),
		"invented":        (&crash{acked: 24, durable: 40, sent: 39, total: 57}).check(),
		"a finding":       checkVerified(&threadsvcv1.VerifyResult{Version: 1, Findings: 1}),
		"no result":       checkVerified(nil),
		"no duplicates":   (&crash{acked: 24, durable: 24, sent: 39, total: 57}).check(),
	} {
		if !errors.Is(err, errClaim) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, checkState([]byte(`{"state":`+finalState+`}`)))
	must(t, (&crash{acked: 24, durable: 36, sent: 39, total: 57}).check())
}

func TestLayoutJSON(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{`{"b":1.10,"a":[9007199254740993,1e400,null,true]}`, `{"b": 1.10, "a": [9007199254740993, 1e400, null, true]}`},
		{`{"long":["aaaaaaaaaaaaaaaaaaaaaaaa","bbbbbbbbbbbbbbbbbbbbbbbbb","<&>"],"e":{},"f":[]}`,
			"{\n  \"long\": [\n    \"aaaaaaaaaaaaaaaaaaaaaaaa\",\n    \"bbbbbbbbbbbbbbbbbbbbbbbbb\",\n    \"<&>\"\n  ],\n  \"e\": {},\n  \"f\": []\n}"},
		{`[{"a":"aaaaaaaaaaaaaaaaaaaaaaaa","b":"bbbbbbbbbbbbbbbbbbbbbbbbb","c":0}]`,
			"[{\n  \"a\": \"aaaaaaaaaaaaaaaaaaaaaaaa\",\n  \"b\": \"bbbbbbbbbbbbbbbbbbbbbbbbb\",\n  \"c\": 0\n}]"},
		{quoted(strings.Repeat("é", 41)), quoted(strings.Repeat("é", 39) + "…")},
	} {
		got, err := layoutJSON([]byte(c.text), 60)
		must(t, err)
		if joined := strings.Join(got, "\n"); joined != c.want {
			t.Errorf("%s is\n%s\nwant\n%s", c.text, joined, c.want)
		}
	}
	for _, bad := range []string{"", "{", `{"a"}`, "]"} {
		if _, err := layoutJSON([]byte(bad), 60); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestColourOnlyWhenAsked(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	p := &printer{w: &b, colour: true}
	p.title("a", "b")
	if got := b.String(); got != "\x1b[1ma\x1b[0m: b\n\n" {
		t.Errorf("got %q", got)
	}
	file, err := os.Open(os.Args[0])
	must(t, err)
	defer file.Close()
	if isTerminal(file) {
		t.Error("a file is taken for a terminal")
	}
}
