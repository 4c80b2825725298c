package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// prune cuts the demo's thread at the end of its second run, and returns the first version that can still be read.
func (s *threadServer) prune() uint64 {
	s.t.Helper()
	shown := readLines[showView](s.t, s.thread("show", demoThread, "--json"))[0]
	if shown.FirstVersion != 0 {
		s.t.Fatalf("a thread that was not pruned has the first version %d", shown.FirstVersion)
	}
	end := shown.LastRuns[2].LastVersion
	resp, err := threadsvcv1.NewRetentionServiceClient(s.conn).PruneThread(s.t.Context(), &threadsvcv1.PruneThreadRequest{
		Thread: &threadsvcv1.ThreadName{Tenant: demoTenant, ThreadId: demoThread}, BeforeVersion: end})
	must(s.t, err)
	if resp.GetFirstVersion() != end || resp.GetPrunedRuns() != 2 {
		s.t.Fatalf("pruned %v, want 2 runs up to version %d", resp, end)
	}
	return end
}

// What is shown of a pruned thread says where it was cut, in every form, and never passes for the whole.
func TestThreadCommandsOnPrunedThreads(t *testing.T) {
	t.Parallel()
	s := newThreadServer(t)
	s.converse()
	first := s.prune()
	for _, c := range []struct{ golden, line string }{
		{"pruned-show", "show trip-to-lisbon"},
		{"pruned-blame", "blame trip-to-lisbon"},
		{"pruned-blame-json", "blame trip-to-lisbon /hold/minutes --json"},
		{"pruned-changes", "changes trip-to-lisbon /status"},
		{"pruned-changes-json", "changes trip-to-lisbon /status --json"},
		{"pruned-changes-none", "changes trip-to-lisbon /trip/from"},
		{"pruned-changes-from", fmt.Sprintf("changes trip-to-lisbon /status --from %d", first)},
		{"pruned-log", "log trip-to-lisbon --limit 3"},
	} {
		got := s.stable("$ threadsvc thread " + c.line + "\n" + s.thread(strings.Fields(c.line)...))
		checkGolden(t, filepath.Join("testdata", "thread", c.golden+".txt"), got)
	}
	checkPrunedJSON(t, s, first)
	checkPrunedLog(t, s, first)
}

// checkPrunedJSON reads as scripts do: each leaf has a source after the cut or the cut, and the list of changes ends with it.
func checkPrunedJSON(t *testing.T, s *threadServer, first uint64) {
	t.Helper()
	if shown := readLines[showView](t, s.thread("show", demoThread, "--json"))[0]; shown.FirstVersion != first {
		t.Errorf("the first version is %d, want %d", shown.FirstVersion, first)
	}
	known := 0
	for _, leaf := range readLines[leafView](t, s.thread("blame", demoThread, "--json")) {
		switch {
		case leaf.Source == nil && leaf.PrunedVersion == first:
		case leaf.Source != nil && leaf.Source.Version > first && leaf.PrunedVersion == 0:
			known++
		default:
			t.Errorf("leaf %+v", leaf)
		}
	}
	if known != 2 {
		t.Errorf("%d leaves have a source, want the 2 that the last run gave", known)
	}
	for _, limit := range []string{"0", "2"} {
		changes := readLines[changeView](t, s.thread("changes", demoThread, "/status", "--json", "--limit", limit))
		if len(changes) != 2 || changes[0].Source == nil || changes[0].PrunedVersion != 0 || changes[1] != (changeView{PrunedVersion: first}) {
			t.Errorf("with the limit %s the changes are %+v", limit, changes)
		}
	}
	if changes := readLines[changeView](t, s.thread("changes", demoThread, "/status", "--json", "--from", fmt.Sprint(first))); len(changes) != 1 {
		t.Errorf("the changes of a range that is whole are %+v", changes)
	}
}

// checkPrunedLog reads the log from where it begins unless told otherwise, and finds the way from what is gone to what is left.
func checkPrunedLog(t *testing.T, s *threadServer, first uint64) {
	t.Helper()
	for _, form := range [][]string{nil, {"--from", "0"}, {"--follow", "--limit", "3"}} {
		code, stdout, stderr := execute(t, s.env, append([]string{"thread", "log", demoThread, "--json"}, form...)...)
		if code != 0 || stderr != fmt.Sprintf("The log up to version %d was pruned: it begins with version %d.\n", first, first+1) {
			t.Fatalf("%v: exit code %d, %q", form, code, stderr)
		}
		for i, e := range readLines[entryView](t, stdout) {
			if e.Version != first+1+uint64(i) {
				t.Fatalf("%v: entry %d is version %d", form, i, e.Version)
			}
		}
	}
	if code, stdout, stderr := execute(t, s.env, "thread", "log", demoThread, "--limit", "1", "--from", fmt.Sprint(first+1)); code != 0 || stdout == "" || stderr != "" {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
	advice := fmt.Sprintf("version %d is the first moment that can be read, %d the first entry of the log.\n", first, first+1)
	for _, line := range []string{"log T --from 1", fmt.Sprint("log T --from ", first), "blame T --at 1", "changes T /status --from 1", "diff T 0"} {
		code, stdout, stderr := execute(t, s.env, append([]string{"thread"}, strings.Fields(strings.Replace(line, "T", demoThread, 1))...)...)
		if code != exitFailed || stdout != "" {
			t.Errorf("%s: exit code %d, %q", line, code, stdout)
		}
		wantOutput(t, stderr, "VERSION_PRUNED: ", advice)
	}
	s.thread("context", demoThread, "--at", fmt.Sprint(first))
}
