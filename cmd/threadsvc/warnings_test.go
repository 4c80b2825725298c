package main

import (
	"fmt"
	"strings"
	"testing"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// warn makes a thread of an agent, on which a run sends patches that do not apply, and an event that nobody knows.
func (s *threadServer) warn(id, agent string, patches int) {
	s.t.Helper()
	name := &threadsvcv1.ThreadName{Tenant: demoTenant, ThreadId: id}
	_, err := s.client.CreateThread(s.t.Context(), &threadsvcv1.CreateThreadRequest{Thread: name, Metadata: fmt.Appendf(nil, `{"agent":%q}`, agent)})
	must(s.t, err)
	events := [][]byte{fmt.Appendf(nil, `{"type":"RUN_STARTED","threadId":%q,"runId":"r"}`, id), []byte(`{"type":"OF_THE_FUTURE"}`)}
	for range patches {
		events = append(events, []byte(`{"type":"STATE_DELTA","delta":[{"op":"remove","path":"/none"}]}`))
	}
	events = append(events, fmt.Appendf(nil, `{"type":"RUN_FINISHED","threadId":%q,"runId":"r"}`, id))
	_, err = s.client.AppendBatch(s.t.Context(), &threadsvcv1.AppendBatchRequest{
		Run: &threadsvcv1.RunHandle{Thread: name, RunId: "r"}, Batch: &threadsvcv1.EventBatch{Events: events},
	})
	must(s.t, err)
}

// warnings runs the command, which must succeed, and returns its lines and what it says on standard error.
func (s *threadServer) warnings(args ...string) (lines []string, stderr string) {
	s.t.Helper()
	code, stdout, stderr := execute(s.t, s.env, append([]string{"warnings"}, args...)...)
	if code != 0 {
		s.t.Fatalf("%v: exit code %d\n%s", args, code, stderr)
	}
	return strings.Split(strings.TrimSuffix(stdout, "\n"), "\n"), stderr
}

// Warnings are listed and counted, for people in columns and for programs as JSON; a thread shows that a snapshot is due.
func TestWarningsCommand(t *testing.T) {
	t.Parallel()
	s := newThreadServer(t)
	s.warn("one", "planner", 2)
	s.warn("two", "writer", 1)

	lines, stderr := s.warnings()
	if len(lines) != 6 || stderr != "" || !strings.HasPrefix(lines[0], "TIME ") || !strings.Contains(lines[1], "two") {
		t.Errorf("%q\n%s", lines, stderr)
	}
	for _, line := range lines[1:] {
		if strings.Index(line, " r ") != strings.Index(lines[0], " RUN ") || !strings.Contains(line, "PATCH_NOT_APPLIED") && !strings.Contains(line, "EVENT_UNKNOWN") {
			t.Errorf("the columns are not aligned: %q under %q", line, lines[0])
		}
	}
	lines, stderr = s.warnings("--code", "PATCH_NOT_APPLIED", "--metadata", "agent=planner", "--from", "1h", "--to", "now", "--limit", "1")
	if len(lines) != 2 || !strings.Contains(lines[1], "one ") {
		t.Errorf("%q", lines)
	}
	wantOutput(t, stderr, "There is more after these 1 line")
	views := readLines[warningView](t, s.command("warnings", "--json", "--limit", "0"))
	if len(views) != 5 || views[4].Thread != "one" || views[4].Version == 0 || views[4].Time.IsZero() || string(views[4].Removed) == "" {
		t.Errorf("%+v", views)
	}

	lines, _ = s.warnings("--summary", "--by", "agent")
	if len(lines) != 5 || !strings.HasPrefix(lines[1], "2 ") {
		t.Errorf("%q", lines)
	}
	wantOutput(t, lines[0], "COUNT", "THREADS", "CODE", "LAST", "FIRST", "agent")
	wantOutput(t, lines[1], "PATCH_NOT_APPLIED", "ago", "planner")
	groups := readLines[warningGroupView](t, s.command("warnings", "--summary", "--json"))
	if len(groups) != 2 || groups[0].Code != "PATCH_NOT_APPLIED" || groups[0].Count != 3 || groups[0].Threads != 2 || groups[1].Count != 2 {
		t.Errorf("%+v", groups)
	}
	wantOutput(t, s.thread("show", "one"), "is due: the state lacks 2 changes, lost since version")
	wantOutput(t, s.thread("show", "one", "--json"), `"state_resync_due":{"since_version":`)
}

// command runs any command, which must succeed.
func (s *threadServer) command(args ...string) string {
	s.t.Helper()
	code, stdout, stderr := execute(s.t, s.env, args...)
	if code != 0 {
		s.t.Fatalf("%v: exit code %d\n%s", args, code, stderr)
	}
	return stdout
}

func TestWarningsCommandErrors(t *testing.T) {
	t.Parallel()
	s := newThreadServer(t)
	for _, c := range []struct {
		line string
		code int
		want string
	}{
		{"--from 12", exitUsage, "--from and --to are times"},
		{"--to run:r", exitUsage, "--from and --to are times"},
		{"--from yesterday", exitUsage, "is no moment"},
		{"--limit -1", exitUsage, "--limit is negative"},
		{"--by agent", exitUsage, "--by goes with --summary"},
		{"--server 127.0.0.1:1", exitFailed, "no server answers"},
		{"--code " + strings.Repeat("x", 99), exitFailed, "INVALID_REQUEST"},
		{"more", exitUsage, "See 'threadsvc warnings --help'."},
	} {
		code, stdout, stderr := execute(t, s.env, append([]string{"warnings"}, strings.Fields(c.line)...)...)
		if code != c.code || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: exit code %d, %q, %q", c.line, code, stdout, stderr)
		}
	}
}
