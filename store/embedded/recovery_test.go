package embedded

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

// One durable cluster, hurt in every way in turn: what was committed before is
// there each time, and one server owns the directory.
func TestRecovery(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(publicDir(t), "db")
	must(t, os.MkdirAll(filepath.Join(dir, ".init-half", "base"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, lockName), nil, 0o600))
	s, err := Start(limit(t), Options{Dir: dir})
	must(t, err)
	defer func() { must(t, s.Stop(context.Background())) }()
	if left, _ := filepath.Glob(filepath.Join(dir, ".init-*")); len(left) > 0 {
		t.Errorf("half-made data directory stays: %v", left)
	}
	query(t, s, "postgres", "CREATE TABLE t(v text)")

	committed := ""
	for _, hurt := range []struct {
		name string
		do   func(*testing.T, *Server) *Server
	}{
		{"crash", crash}, {"restart while busy", restartBusy}, {"killed postmaster", killPostmaster},
		{"killed owner without a death signal", inherit}, {"empty pid file", emptyPidFile},
		{"pid file of a stranger", strangersPidFile},
	} {
		query(t, s, "postgres", "INSERT INTO t VALUES ('"+hurt.name+"') RETURNING v")
		committed += hurt.name + ";"
		before := s.PID()
		s = hurt.do(t, s)
		want(t, "committed before "+hurt.name, query(t, s, "postgres", "SELECT string_agg(v, ';') || ';' FROM t"), committed)
		if isPostmaster(before, s.data()) || !isPostmaster(s.PID(), s.data()) {
			t.Errorf("%s: postmaster %d before, %d after", hurt.name, before, s.PID())
		}
	}
}

func crash(t *testing.T, s *Server) *Server {
	must(t, s.Crash(limit(t)))
	wantErr(t, s.CreateDatabase(limit(t), "late"), ErrStopped)
	must(t, s.Restart(limit(t)))
	return s
}

func restartBusy(t *testing.T, s *Server) *Server {
	busy, err := pgx.Connect(limit(t), s.URL("postgres"))
	must(t, err)
	defer busy.Close(context.Background())
	must(t, s.Restart(limit(t)))
	if err := busy.Ping(limit(t)); err == nil {
		t.Error("a connection outlived Restart")
	}
	return s
}

// A busy backend outlives its postmaster for a moment and holds the shared
// memory.
func killPostmaster(t *testing.T, s *Server) *Server {
	busy, err := pgx.Connect(limit(t), s.URL("postgres"))
	must(t, err)
	defer busy.Close(context.Background())
	ended := make(chan error)
	go func() {
		_, err := busy.Exec(limit(t), "SELECT count(*) FROM generate_series(1, 2000000)")
		ended <- err
	}()
	gone := s.Done()
	must(t, syscall.Kill(s.PID(), syscall.SIGKILL))
	<-gone
	must(t, s.Restart(limit(t)))
	<-ended // whether it got through depends on the moment
	return s
}

// inherit gives the lock up as a killed owner would, while the server runs on.
func inherit(t *testing.T, s *Server) *Server {
	must(t, s.home.lock.Close())
	var err error
	s.home.lock, err = os.Open(os.DevNull) // for Stop to close
	must(t, err)
	heir, err := Start(limit(t), Options{Dir: s.home.dir})
	must(t, err)
	<-s.Done()
	must(t, s.Stop(limit(t)))
	return heir
}

func emptyPidFile(t *testing.T, s *Server) *Server {
	must(t, s.Crash(limit(t)))
	leavePidFile(t, s, "")
	must(t, s.Restart(limit(t)))
	return s
}

func strangersPidFile(t *testing.T, s *Server) *Server {
	must(t, s.Crash(limit(t)))
	stranger, err := spawn(s.account.command("/", "sleep", "1000"))
	must(t, err)
	defer stranger.kill()
	leavePidFile(t, s, fmt.Sprintf("%d\n%s\n", stranger.pid(), s.data()))
	must(t, s.Restart(limit(t)))
	if !stranger.alive() {
		t.Error("a stranger was killed")
	}
	return s
}

func leavePidFile(t *testing.T, s *Server, text string) {
	t.Helper()
	must(t, os.WriteFile(pidPath(s.data()), []byte(text), 0o600))
	must(t, s.account.own(pidPath(s.data())))
}

func TestKilledOwner(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(publicDir(t), "db")
	owner, postmaster := serveInChild(t, dir)
	_, err := Start(limit(t), Options{Dir: dir})
	wantErr(t, err, ErrInUse)
	if !strings.Contains(err.Error(), strconv.Itoa(owner.Process.Pid)) {
		t.Errorf("the error does not name the owner: %v", err)
	}
	must(t, owner.Process.Kill())
	_ = owner.Wait()

	s := start(t, dir)
	want(t, "database", query(t, s, "kept", "SELECT 'there'"), "there")
	if s.PID() == postmaster || isPostmaster(postmaster, s.data()) {
		t.Errorf("postmaster %d of the killed owner runs", postmaster)
	}
}

func serveInChild(t *testing.T, dir string) (*exec.Cmd, int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "pid ")))
	if err != nil {
		t.Fatalf("child said %q", line)
	}
	return cmd, pid
}
