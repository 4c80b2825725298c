package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store/storetest"
)

var updateGolden = flag.Bool("update", false, "write the golden files of testdata anew")

// threadServer is a server with the conversation of the demo, and how commands reach it.
type threadServer struct {
	t      *testing.T
	client threadsvcv1.ThreadServiceClient
	conn   *grpc.ClientConn
	env    []string
	dir    string
}

func newThreadServer(t *testing.T) *threadServer {
	t.Helper()
	p := account{}.start(t, os.TempDir(), nil,
		"serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--database-url", storetest.Database(t))
	address := p.serving()
	client, conn := clientOf(t, address)
	return &threadServer{t, client, conn, []string{"THREADSVC_SERVER=" + address, "THREADSVC_TENANT=" + demoTenant, "TZ=UTC"}, t.TempDir()}
}

// converse plays the demo's conversation, without its crash.
func (s *threadServer) converse() {
	s.t.Helper()
	d := &demo{out: &printer{w: io.Discard}, client: s.client, thread: &threadsvcv1.ThreadName{Tenant: demoTenant, ThreadId: demoThread}}
	for _, run := range conversation() {
		run.crash = false
		must(s.t, d.playRun(s.t.Context(), &run))
	}
}

// thread runs a command, which must succeed.
func (s *threadServer) thread(args ...string) string {
	s.t.Helper()
	code, stdout, stderr := execute(s.t, s.env, append([]string{"thread"}, args...)...)
	if code != 0 {
		s.t.Fatalf("%v: exit code %d\n%s", args, code, stderr)
	}
	return stdout
}

var unstable = []struct {
	what *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}`), "2026-01-02 03:04:05.678"},
	{regexp.MustCompile(`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*Z"`), `"2026-01-02T03:04:05.678Z"`},
	{regexp.MustCompile(`\d+\.\ds +`), "0.0s  "}, // as wide as its heading, however long a run took
	{regexp.MustCompile(`TOOK +`), "TOOK  "},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), strings.Repeat("0", 64)},
	{regexp.MustCompile(`log [0-9a-f]{16}`), "log 0123456789abcdef"},
	{regexp.MustCompile(`export, [\d.]+ (B|KiB)`), "export, N bytes"},
	{regexp.MustCompile(`rows? of `), "rows of "},
	{regexp.MustCompile(`\d+ rows of `), "N rows of "},
}

var agoText = regexp.MustCompile(`\d+[sm] ago *`)

// stable replaces what differs from one run of the tests to the next by something as long.
func (s *threadServer) stable(text string) string {
	text = strings.ReplaceAll(text, s.dir, "DIR")
	for _, u := range unstable {
		text = u.what.ReplaceAllString(text, u.with)
	}
	return agoText.ReplaceAllStringFunc(text, func(ago string) string {
		if strings.HasSuffix(ago, " ") {
			return "0s ago" + strings.Repeat(" ", max(0, len(ago)-6))
		}
		return "0s ago"
	})
}

// Every command writes what its golden file has; the commands are there too.
func TestThreadCommands(t *testing.T) {
	t.Parallel()
	s := newThreadServer(t)
	s.converse()
	file := filepath.Join(s.dir, "trip.export")
	for _, c := range []struct{ golden, line string }{
		{"list", "list"},
		{"list-json", "list --json"},
		{"show", "show trip-to-lisbon"},
		{"show-json", "show trip-to-lisbon --json --runs 2"},
		{"log", "log trip-to-lisbon"},
		{"log-json", "log trip-to-lisbon --from 50 --limit 3 --json"},
		{"diff", "diff trip-to-lisbon run:run-1 run:run-2"},
		{"diff-back", "diff trip-to-lisbon run:run-2 run:run-1"},
		{"diff-none", "diff trip-to-lisbon now"},
		{"diff-json", "diff trip-to-lisbon run:run-3 now --json"},
		{"blame", "blame trip-to-lisbon"},
		{"blame-json", "blame trip-to-lisbon /hold --at run:run-2 --json"},
		{"changes", "changes trip-to-lisbon /status"},
		{"changes-json", "changes trip-to-lisbon /status --limit 1 --json"},
		{"context", "context trip-to-lisbon --at run:run-1 --state /offers"},
		{"fork", "fork trip-to-lisbon other-trip --at run:run-2"},
		{"fork-show", "show other-trip"},
		{"fork-json", "fork trip-to-lisbon third-trip --json"},
		{"rewind", "rewind third-trip 0"},
		{"rewind-show", "show third-trip"},
		{"rewind-json", "rewind third-trip 1 --json"},
		{"export", "export trip-to-lisbon " + file},
		{"import", "import trip-to-lisbon --tenant elsewhere " + file},
		{"import-list", "list --tenant elsewhere"},
		{"import-delete", "delete trip-to-lisbon --tenant elsewhere --yes"},
		{"import-again", "import trip-to-lisbon --tenant elsewhere --replace-deleted " + file},
		{"delete", "delete third-trip --yes"},
		{"delete-json", "delete other-trip --yes --json"},
	} {
		got := s.stable("$ threadsvc thread " + c.line + "\n" + s.thread(strings.Fields(c.line)...))
		checkGolden(t, filepath.Join("testdata", "thread", c.golden+".txt"), got)
	}
}

func checkGolden(t *testing.T, path, got string) {
	t.Helper()
	if *updateGolden {
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", path, got, want)
	}
}

// What --json writes can be read back, line by line, and says what the service does.
func TestThreadJSON(t *testing.T) {
	t.Parallel()
	s := newThreadServer(t)
	s.converse()
	entries := readLines[entryView](t, s.thread("log", demoThread, "--json"))
	for i, e := range entries {
		if e.Version != uint64(i)+1 || e.CommitTime == nil || len(e.Payload) == 0 {
			t.Fatalf("entry %d is %+v", i, e)
		}
	}
	shown := readLines[showView](t, s.thread("show", demoThread, "--json"))[0]
	if shown.Version != uint64(len(entries)) || shown.Messages != 12 || len(shown.LastRuns) != 4 {
		t.Errorf("version %d of %d, %d messages, %d runs", shown.Version, len(entries), shown.Messages, len(shown.LastRuns))
	}
	if state := strings.TrimSpace(s.thread("context", demoThread, "--state", "/")); state != finalState || int(shown.StateBytes) != len(state) {
		t.Errorf("the state is %s (%d bytes)", state, shown.StateBytes)
	}
	checkJSONPast(t, s)
}

func checkJSONPast(t *testing.T, s *threadServer) {
	t.Helper()
	var values []string
	for _, c := range readLines[changeView](t, s.thread("changes", demoThread, "/status", "--json")) {
		values = append(values, string(c.After.Value))
	}
	if got := strings.Join(values, " "); !strings.HasPrefix(got, `"booked" "held"`) {
		t.Errorf("the status was %s", got)
	}
	diff := readLines[diffView](t, s.thread("diff", demoThread, "0", "now", "--json"))[0]
	if diff.FromVersion != 0 || len(diff.Messages) != 12 || !json.Valid(diff.StatePatch) {
		t.Errorf("the difference has %d messages, from %d, and the patch %s", len(diff.Messages), diff.FromVersion, diff.StatePatch)
	}
	for _, leaf := range readLines[leafView](t, s.thread("blame", demoThread, "--json")) {
		if leaf.Source == nil || leaf.Source.Version == 0 || leaf.Value == nil {
			t.Errorf("leaf %+v", leaf)
		}
	}
}

func readLines[T any](t *testing.T, text string) (all []T) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	for decoder.More() {
		var item T
		must(t, decoder.Decode(&item))
		all = append(all, item)
	}
	if len(all) != strings.Count(text, "\n") {
		t.Fatalf("%d objects on %d lines", len(all), strings.Count(text, "\n"))
	}
	return all
}

// A log is followed until the reader leaves, and an exported thread goes through standard output and input.
func TestThreadFollowAndPipe(t *testing.T) {
	t.Parallel()
	s := newThreadServer(t)
	s.converse()
	p := account{}.start(t, os.TempDir(), s.env, "thread", "log", "-f", demoThread, "--from", "60")
	p.await(&p.stdout, `delta="viagem!"`)
	_, _, err := startRun(t.Context(), s.client, &threadsvcv1.StartRunRequest{
		Thread: &threadsvcv1.ThreadName{Tenant: demoTenant, ThreadId: demoThread}, RunId: "late", Messages: asBytes([]string{userMessage("late", "One more thing")})})
	must(t, err)
	p.await(&p.stdout, "One more thing")
	must(t, p.cmd.Process.Signal(os.Interrupt))
	if code := p.wait(); code != exitInterrupted {
		t.Errorf("exit code %d\n%s", code, &p.stderr)
	}
	exported := s.thread("export", demoThread)
	path := filepath.Join(s.dir, "whole")
	s.thread("export", demoThread, path)
	written, err := os.ReadFile(path)
	must(t, err)
	if !bytes.Equal(written, []byte(exported)) {
		t.Error("the file and standard output differ")
	}
	if code, stdout, stderr := execute(t, nil, "verify", "--file", path); code != 0 {
		t.Errorf("verify: %s%s", stdout, stderr)
	}
}

// Nothing that is stored reaches a terminal as a command to it.
func TestThreadEscapesWhatIsStored(t *testing.T) {
	t.Parallel()
	s := newThreadServer(t)
	evil := "a\x1b[31m\u009b2J\u202eb\x07"
	name := &threadsvcv1.ThreadName{Tenant: demoTenant, ThreadId: evil}
	value := "\x7f\u009b2J\u202e\U000e0001"
	_, err := s.client.CreateThread(t.Context(), &threadsvcv1.CreateThreadRequest{Thread: name, Metadata: fmt.Appendf(nil, `{"k":"%s"}`, value),
		State: fmt.Appendf(nil, `{"%s":"%s\u001b[2J"}`, value, value), Messages: asBytes([]string{`{"id":"m\u001b[31m","role":"user","content":"` + value + `\u001b]0;x\u0007"}`})})
	must(t, err)
	_, _, err = startRun(t.Context(), s.client, &threadsvcv1.StartRunRequest{Thread: name, RunId: evil})
	must(t, err)
	for _, line := range [][]string{{"list"}, {"show", evil}, {"log", evil}, {"diff", evil, "0"}, {"blame", evil}, {"changes", evil, ""},
		{"diff", evil, "0", "now"}, {"fork", evil, evil + "2", "--at", "1"}} {
		for _, form := range [][]string{nil, {"--json"}} {
			if line[0] == "fork" && form != nil {
				line[2] += "3"
			}
			if got := s.thread(append(line, form...)...); strings.ContainsFunc(strings.ReplaceAll(got, "\n", ""), hidden) {
				t.Errorf("%q has hidden characters: %q", append(line, form...), got)
			}
		}
	}
	code, _, stderr := execute(t, s.env, "thread", "rewind", evil, "0")
	if code != exitFailed || strings.ContainsFunc(strings.ReplaceAll(stderr, "\n", ""), hidden) {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}
