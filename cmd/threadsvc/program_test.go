package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/threadsvc/threadsvc/store/storetest"
)

// programEnv makes the test binary the program itself.
const programEnv = "TEST_BINARY_IS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" {
		os.Exit(run(os.Args[1:]))
	}
	storetest.Main(m)
}

// patience is how long a test waits for what must happen, on a machine however slow.
const patience = 3 * time.Minute

// account is who runs the program: ourselves, or nobody.
type account struct {
	name       string
	credential *syscall.Credential
}

// eachAccount runs a test as the user it is run by and, for root, as an ordinary user.
func eachAccount(t *testing.T, test func(*testing.T, account)) {
	t.Helper()
	accounts := []account{{name: "self"}}
	if os.Geteuid() == 0 {
		accounts = append(accounts, nobody(t))
	}
	for _, a := range accounts {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			test(t, a)
		})
	}
}

func nobody(t *testing.T) account {
	t.Helper()
	entry, err := user.Lookup("nobody")
	must(t, err)
	uid, err := strconv.ParseUint(entry.Uid, 10, 32)
	must(t, err)
	gid, err := strconv.ParseUint(entry.Gid, 10, 32)
	must(t, err)
	return account{"nobody", &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ownDir is a new directory of the account's that every account may pass through, which those of t.TempDir are not.
func (a account) ownDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cmd-test-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	must(t, os.Chmod(dir, 0o755))
	if a.credential != nil {
		must(t, os.Chown(dir, int(a.credential.Uid), int(a.credential.Gid)))
	}
	return dir
}

// binaryFor is the test binary, or a copy of it that every account may run.
func binaryFor(t *testing.T, a account) string {
	t.Helper()
	if a.credential == nil {
		return os.Args[0]
	}
	path := filepath.Join(account{}.ownDir(t), "threadsvc")
	in, err := os.Open(os.Args[0])
	must(t, err)
	defer in.Close()
	// No fork may happen meanwhile: its child would hold the file open for writing, and then it cannot be run.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	must(t, err)
	_, err = io.Copy(out, in)
	must(t, errors.Join(err, out.Close()))
	return path
}

// program is one execution of the program.
type program struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr output
	done           chan struct{}
}

// output collects what a process writes, and can be read meanwhile.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// start starts the program with a temporary directory and further environment of its own.
func (a account) start(t *testing.T, tempDir string, env []string, args ...string) *program {
	t.Helper()
	p := &program{t: t, done: make(chan struct{})}
	p.cmd = exec.Command(binaryFor(t, a), args...)
	p.cmd.Dir = "/"
	p.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, envPrefix) })
	p.cmd.Env = append(p.cmd.Env, programEnv+"=1", "GOCOVERDIR=", "TMPDIR="+tempDir)
	p.cmd.Env = append(p.cmd.Env, env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.credential}
	must(t, p.cmd.Start())
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the exit code is read from the state
	}()
	t.Cleanup(p.end)
	return p
}

// end makes sure that a process a failed test has left is gone.
func (p *program) end() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(30 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// wait waits for the end and returns the exit code.
func (p *program) wait() int {
	p.t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		p.t.Fatalf("still running\n%s%s", &p.stdout, &p.stderr)
		return 0
	}
}

// await waits until the program has written text, and fails if it ends before.
func (p *program) await(o *output, text string) {
	p.t.Helper()
	eventually(p.t, func() bool {
		if strings.Contains(o.String(), text) {
			return true
		}
		select {
		case <-p.done:
			if !strings.Contains(o.String(), text) {
				p.t.Fatalf("ended without %q\n%s%s", text, &p.stdout, &p.stderr)
			}
		default:
		}
		return false
	})
}

// eventually waits for a condition.
func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !ok() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("waited in vain")
		}
	}
}

// execute runs the program to its end.
func execute(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	p := account{}.start(t, os.TempDir(), env, args...)
	code = p.wait()
	return code, p.stdout.String(), p.stderr.String()
}

// wantOutput fails the test unless got has all the texts.
func wantOutput(t *testing.T, got string, want ...string) {
	t.Helper()
	for _, text := range want {
		if !strings.Contains(got, text) {
			t.Errorf("no %q in\n%s", text, got)
		}
	}
}

// leftover names the processes that work below a directory or were started with it as their temporary one.
func leftover(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	processes, err := filepath.Glob("/proc/[0-9]*")
	must(t, err)
	for _, proc := range processes {
		cwd, _ := os.Readlink(filepath.Join(proc, "cwd")) // a process that is gone by now has none
		environ, _ := os.ReadFile(filepath.Join(proc, "environ"))
		if strings.HasPrefix(cwd, dir+"/") || strings.Contains("\x00"+string(environ), "\x00TMPDIR="+dir+"\x00") {
			command, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
			found = append(found, filepath.Base(proc)+" "+strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return found
}
