package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/threadsvc/threadsvc/client"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// What fails says why, with the service's reason, and what to do; what is used wrongly is told from it by the exit code.
func TestThreadErrors(t *testing.T) {
	t.Parallel()
	s := newThreadServer(t)
	name := &threadsvcv1.ThreadName{Tenant: demoTenant, ThreadId: "t"}
	for _, id := range []string{"t", "gone"} {
		_, err := s.client.CreateThread(t.Context(), &threadsvcv1.CreateThreadRequest{Thread: &threadsvcv1.ThreadName{Tenant: demoTenant, ThreadId: id}})
		must(t, err)
	}
	_, _, err := startRun(t.Context(), s.client, &threadsvcv1.StartRunRequest{Thread: name, RunId: "r", LeaseTtl: durationpb.New(30 * 60e9)})
	must(t, err)
	s.thread("delete", "gone", "--yes")
	letter := filepath.Join(s.dir, "letter")
	must(t, os.WriteFile(letter, []byte("no thread"), 0o600))
	for _, c := range []struct {
		line string
		code int
		want string
	}{
		{"show nobody", exitFailed, "THREAD_NOT_FOUND: "},
		{"show nobody", exitFailed, `asked for tenant "demo" (--tenant)`},
		{"log nobody -f", exitFailed, "THREAD_NOT_FOUND: "},
		{"diff t 99", exitFailed, "VERSION_NOT_FOUND: "},
		{"diff t 99", exitFailed, "The thread has the versions 0 to 2."},
		{"diff t run:nobody", exitFailed, "'threadsvc thread show' lists"},
		{"rewind t 1", exitFailed, "Run r is going on"},
		{"rewind t 1 --expected-version 7", exitFailed, "The thread is at version 2 now"},
		{"fork t t", exitFailed, "THREAD_EXISTS: "},
		{"fork t gone", exitFailed, "THREAD_DELETED: "},
		{"changes t nopointer", exitFailed, "INVALID_REQUEST: "},
		{"context t --state /none", exitFailed, `has no value at "/none"`},
		{"import t2 " + letter, exitFailed, "INVALID_"},
		{"import gone /nowhere/file", exitFailed, "no such file"},
		{"export nobody " + letter, exitFailed, "THREAD_NOT_FOUND: "},
		{"show t --server 127.0.0.1:1", exitFailed, "no server answers at 127.0.0.1:1"},
		{"log t -f --server 127.0.0.1:1", exitFailed, "Start one with 'threadsvc serve'"},
		{"show t --timeout 1ns", exitFailed, "Give it more time with --timeout."},
		{"show", exitUsage, "See 'threadsvc thread show --help'."},
		{"diff t yesterday", exitUsage, `"yesterday" is no moment: want a version, run:ID`},
		{"blame t --at run:", exitUsage, "is no moment"},
		{"rewind t now", exitUsage, "cannot be rewound to now"},
		{"list --limit -1", exitUsage, "--limit is negative"},
		{"show t --runs 0", exitUsage, "--runs is 0"},
		{"fork t u --metadata {", exitUsage, "--metadata is no JSON"},
		{"delete t", exitUsage, "give --yes"},
		{"show t --timeout -1s", exitUsage, "--timeout is negative"},
		{"show t --server=", exitUsage, "--server is empty"},
		{"bogus", exitUsage, "See 'threadsvc thread --help'."},
	} {
		code, stdout, stderr := execute(t, s.env, append([]string{"thread"}, strings.Fields(c.line)...)...)
		if code != c.code || stdout != "" || strings.Count(stderr, "\n") > 2 {
			t.Errorf("%s: exit code %d, want %d; %q, %q", c.line, code, c.code, stdout, stderr)
		}
		wantOutput(t, stderr, c.want)
	}
	if text, err := os.ReadFile(letter); err != nil || string(text) != "no thread" {
		t.Errorf("a failed export left %q, %v", text, err)
	}
	files, err := os.ReadDir(s.dir)
	must(t, err)
	if len(files) != 1 {
		t.Errorf("files are left: %v", files)
	}
}

// A cursor before the cut of a pruned thread is told where the thread begins.
func TestAdviceOnPrunedVersions(t *testing.T) {
	t.Parallel()
	call := &threadCall{}
	e := &client.Error{Reason: threadsvcv1.ErrorReason_ERROR_REASON_VERSION_PRUNED, Metadata: map[string]string{"first_version": "42", "version": "7"}}
	wantOutput(t, call.advice(e), "version 42 is the first moment", "43 the first entry of the log.")
	if advice := prunedAdvice("a later form"); strings.Contains(advice, "entry") {
		t.Errorf("the advice is %q", advice)
	}
}
