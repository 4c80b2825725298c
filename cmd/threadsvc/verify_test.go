package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// exported gathers what ExportThread sends.
type exported struct {
	grpc.ServerStream
	ctx  context.Context
	file bytes.Buffer
}

func (e *exported) Context() context.Context { return e.ctx }

func (e *exported) Send(resp *threadsvcv1.ExportThreadResponse) error {
	_, err := e.file.Write(resp.GetChunk())
	return err
}

// threads makes a database with threads, and exports the first of them to a file.
func threads(t *testing.T, count int) (url, file string) {
	t.Helper()
	url = storetest.Database(t)
	db, err := store.Open(t.Context(), store.Options{URL: url})
	must(t, err)
	defer db.Close()
	svc := service.New(db, service.Config{})
	defer svc.Close()
	for i := range count {
		name := &threadsvcv1.ThreadName{Tenant: "acme", ThreadId: fmt.Sprint("t", i)}
		_, err := svc.CreateThread(t.Context(), &threadsvcv1.CreateThreadRequest{Thread: name, State: []byte(`{"n":1}`)})
		must(t, err)
	}
	stream := &exported{ctx: t.Context()}
	must(t, svc.ExportThread(&threadsvcv1.ExportThreadRequest{Thread: &threadsvcv1.ThreadName{Tenant: "acme", ThreadId: "t0"}}, stream))
	file = filepath.Join(t.TempDir(), "t0.export")
	must(t, os.WriteFile(file, stream.file.Bytes(), 0o600))
	return url, file
}

func TestVerify(t *testing.T) {
	t.Parallel()
	url, file := threads(t, 40)
	env := []string{"THREADSVC_DATABASE_URL=" + url}
	code, stdout, stderr := execute(t, env, "verify", "--parallel", "3")
	if code != 0 || stdout != "40 threads with 40 log entries verified; 0 findings in 0 threads\n" || stderr != "" {
		t.Errorf("nothing altered: exit code %d, %q %q", code, stdout, stderr)
	}
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), `UPDATE states SET doc = '{"n":2}' WHERE thread_key = (SELECT thread_key FROM threads WHERE thread_id = 't7')`)
	must(t, err)
	code, stdout, stderr = execute(t, env, "verify")
	if code != exitFailed || strings.Contains(stdout, "t8") {
		t.Errorf("altered: exit code %d, %q", code, stdout)
	}
	wantOutput(t, stdout, `thread "t7" of tenant "acme", version 1: STATE: `, "findings in 1 threads")
	wantOutput(t, stderr, "not everything agrees")
	code, stdout, _ = execute(t, env, "verify", "--tenant", "acme", "--thread", "t8")
	if code != 0 || !strings.HasPrefix(stdout, "1 threads") {
		t.Errorf("another thread: exit code %d, %q", code, stdout)
	}
	code, stdout, _ = execute(t, nil, "verify", "--file", file)
	if code != 0 {
		t.Errorf("a file: exit code %d", code)
	}
	wantOutput(t, stdout, `agrees: thread "t0" of tenant "acme", version 1, log `)
	text, err := os.ReadFile(file)
	must(t, err)
	text[len(text)/2] ^= 1
	must(t, os.WriteFile(file, text, 0o600))
	code, _, stderr = execute(t, nil, "verify", "--file", file)
	if code != exitFailed || !strings.Contains(stderr, "archive: invalid") {
		t.Errorf("an altered file: exit code %d, %q", code, stderr)
	}
}

func TestVerifyErrors(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"verify"}, exitUsage, "give --database-url or --file"},
		{[]string{"verify", "--file", "x", "--thread", "t"}, exitUsage, "--thread and --tenant are for databases"},
		{[]string{"verify", "--database-url", url, "--tenant", "a"}, exitUsage, "only together with --thread"},
		{[]string{"verify", "--database-url", url, "--parallel", "0"}, exitUsage, "--parallel is 0"},
		{[]string{"verify", "--database-url", url, "--thread", "nobody"}, exitFailed, `there is no thread "nobody"`},
		{[]string{"verify", "--file", "/nowhere"}, exitFailed, "/nowhere"},
		{[]string{"verify", "--database-url", "postgres://u:secret@127.0.0.1:1/d"}, exitFailed, "database 127.0.0.1:1/d"},
	} {
		code, stdout, stderr := execute(t, nil, c.args...)
		if code != c.code || stdout != "" || strings.Contains(stderr, "secret") {
			t.Errorf("%v: exit code %d, want %d; %q", c.args, code, c.code, stdout)
		}
		wantOutput(t, stderr, c.want)
	}
}

func TestVerifyBar(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	b := &verifyBar{out: &out}
	b.show(store.Key{0x80}, 7, 99)
	b.show(store.Key{0x90}, 8, 100) // too soon
	b.end()
	wantOutput(t, out.String(), "[###############...............] 50%  7 threads, 99 entries")
	if strings.Contains(out.String(), "100 entries") || newVerifyBar(&out).out != nil {
		t.Errorf("shown: %q", out.String())
	}
}
