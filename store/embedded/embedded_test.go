package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

const (
	helperEnv = "EMBEDDED_TEST_SERVE"  // a directory: run a server there until killed
	childEnv  = "EMBEDDED_TEST_NOBODY" // this is the run without root
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperEnv); dir != "" {
		serveUntilKilled(dir)
	}
	goleak.VerifyTestMain(m)
}

func serveUntilKilled(dir string) {
	s, err := Start(context.Background(), Options{Dir: dir})
	if err == nil {
		err = s.CreateDatabase(context.Background(), "kept")
	}
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Println("pid", s.PID())
	select {}
}

// publicDir is a new directory that every account may pass through, which
// those of t.TempDir are not.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "embedded-test-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	must(t, os.Chmod(dir, 0o755))
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// limit bounds a test that would otherwise wait for a server for ever.
func limit(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// start runs a server for the length of the test. It logs to nowhere and does
// not sync.
func start(t *testing.T, dir string) *Server {
	t.Helper()
	began := time.Now()
	s, err := Start(limit(t), Options{Dir: dir, NoSync: true})
	must(t, err)
	t.Logf("start took %v", time.Since(began).Round(time.Millisecond))
	t.Cleanup(func() { must(t, s.Stop(context.Background())) })
	return s
}

func query(t *testing.T, s *Server, database, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(limit(t), s.URL(database))
	must(t, err)
	defer conn.Close(context.Background())
	rows, err := conn.Query(limit(t), sql)
	must(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	return strings.Join(lines, "\n")
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func wantErr(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("got error %v, want %v", err, target)
	}
}

func TestStopKeepsData(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(publicDir(t), "new", "db")
	s := start(t, dir)
	must(t, s.CreateDatabase(limit(t), "things"))
	query(t, s, "things", `CREATE TABLE t AS SELECT 'kept' AS v`)
	done := s.Done()
	pid := s.PID()
	must(t, s.Stop(limit(t)))
	must(t, s.Stop(limit(t)))
	<-done
	if s.PID() != 0 || s.Running() || isPostmaster(pid, s.data()) {
		t.Error("still running after Stop")
	}
	wantErr(t, s.Restart(limit(t)), ErrStopped)
	wantErr(t, s.CreateDatabase(limit(t), "late"), ErrStopped)

	again := start(t, dir)
	want(t, "row", query(t, again, "things", "SELECT v FROM t"), "kept")
}

func TestServerIsPrivateAndConfigured(t *testing.T) {
	t.Parallel()
	s, err := Start(limit(t), Options{Settings: map[string]string{"work_mem": "5MB", "app.note": "it's = fine"}})
	must(t, err)
	t.Cleanup(func() { must(t, s.Stop(context.Background())) })
	for name, value := range map[string]string{
		"listen_addresses": "", "data_checksums": "on", "server_encoding": "UTF8", "lc_collate": "C",
		"TimeZone": "UTC", "fsync": "on", "full_page_writes": "on", "synchronous_commit": "on",
		"wal_level": "replica", "jit": "off", "work_mem": "5MB", "app.note": "it's = fine",
	} {
		want(t, name, query(t, s, "postgres", `SELECT coalesce((SELECT datcollate FROM pg_database WHERE datname = 'postgres'
			AND '`+name+`' = 'lc_collate'), CASE '`+name+`' WHEN 'lc_collate' THEN '' ELSE current_setting('`+name+`') END)`), value)
	}
	info, err := os.Stat(s.socket)
	must(t, err)
	want(t, "socket directory", info.Mode().Perm().String(), "-rwx------")
	dir := s.home.dir
	must(t, s.Stop(limit(t)))
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("temporary directory after Stop: %v", err)
	}
}

func TestOddPaths(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(publicDir(t), `it's, a "quoted" place`, strings.Repeat("long", 30))
	s := start(t, dir)
	want(t, "answer", query(t, s, "postgres", "SELECT 'yes'"), "yes")
	short := s.socketHome.dir
	must(t, s.Stop(limit(t)))
	if _, err := os.Stat(short); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("socket directory after Stop: %v", err)
	}
}

func TestOneOwner(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(publicDir(t), "db")
	h, err := openHome(dir, "", slog.New(slog.DiscardHandler))
	must(t, err)
	_, err = Start(limit(t), Options{Dir: dir})
	wantErr(t, err, ErrInUse)
	must(t, h.close())
}

func TestWithoutRoot(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 || os.Getenv(childEnv) != "" {
		t.Skip("needs root to give it up; without root every other test shows this")
	}
	nobody, err := user.Lookup("nobody")
	must(t, err)
	uid, err := strconv.Atoi(nobody.Uid)
	must(t, err)
	gid, err := strconv.Atoi(nobody.Gid)
	must(t, err)
	dir := publicDir(t)
	binary := filepath.Join(dir, "embedded.test")
	self, err := os.Open(os.Args[0])
	must(t, err)
	defer self.Close()
	writeProgram(t, binary, self)

	cmd := exec.CommandContext(limit(t), binary, "-test.v", "-test.run=^(TestStopKeepsData|TestKilledOwner)$")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), childEnv+"=1", "GOCOVERDIR=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(out), "--- PASS") != 2 {
		t.Fatalf("as nobody: %v\n%s", err, out)
	}
}

// writeProgram makes an executable file. No fork may happen meanwhile: its child
// would hold the file open for writing, and then it cannot be run.
func writeProgram(t *testing.T, path string, content io.Reader) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	must(t, err)
	_, err = io.Copy(out, content)
	must(t, errors.Join(err, out.Close()))
}

func TestUnreachableDir(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root changes the account")
	}
	dir := publicDir(t)
	must(t, os.Chmod(dir, 0o700))
	_, err := Start(limit(t), Options{Dir: filepath.Join(dir, "db")})
	wantErr(t, err, ErrUnreachableDir)
}

func TestForeignDir(t *testing.T) {
	t.Parallel()
	dir := publicDir(t)
	must(t, os.WriteFile(filepath.Join(dir, "letter"), nil, 0o600))
	_, err := Start(limit(t), Options{Dir: dir})
	wantErr(t, err, ErrForeignDir)
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("the directory was touched: %v", entries)
	}
}

func TestBadSettings(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"listen_addresses": "*", "port": "1", "unix_socket_directories": "/tmp", "data_directory": "/", "hba_file": "x",
		"": "x", "a b": "x", "A": "x", "a=b": "x", "-c": "x", "work_mem": "1\x00",
	} {
		_, err := Start(limit(t), Options{Settings: map[string]string{name: value}})
		wantErr(t, err, ErrBadSetting)
	}
}

func TestDatabases(t *testing.T) {
	t.Parallel()
	ctx := limit(t)
	s := start(t, "")
	must(t, s.CreateDatabase(ctx, "model"))
	must(t, s.CreateDatabase(ctx, "model"))
	query(t, s, "model", "CREATE TABLE t AS SELECT 'copied' AS v")
	for _, name := range []string{"c1", `Odd "name"; DROP`, "c/d?e#f%20", strings.Repeat("n", 63)} {
		began := time.Now()
		must(t, s.CloneDatabase(ctx, "model", name))
		t.Logf("clone took %v", time.Since(began).Round(time.Millisecond))
		want(t, name, query(t, s, name, "SELECT v FROM t"), "copied")
	}
	if err := s.CloneDatabase(ctx, "model", "c1"); err == nil {
		t.Error("clone over an existing database")
	}
	if err := s.CloneDatabase(ctx, "missing", "c2"); err == nil {
		t.Error("clone of a missing database")
	}
	conn, err := pgx.Connect(ctx, s.URL("c1"))
	must(t, err)
	defer conn.Close(context.Background())
	must(t, s.DropDatabase(ctx, "c1"))
	must(t, s.DropDatabase(ctx, "c1"))
	want(t, "left", query(t, s, "postgres", "SELECT count(*)::text FROM pg_database WHERE datname = 'c1'"), "0")
	for _, name := range []string{"", "a\x00b", strings.Repeat("n", 64)} {
		wantErr(t, s.CreateDatabase(ctx, name), ErrBadName)
		wantErr(t, s.CloneDatabase(ctx, name, "x"), ErrBadName)
	}
	must(t, s.Crash(ctx))
	must(t, s.Restart(ctx))
	must(t, s.CreateDatabase(ctx, "after"))
}

func TestStartErrorHasTheLog(t *testing.T) {
	t.Parallel()
	_, err := Start(limit(t), Options{NoSync: true, Settings: map[string]string{"work_mem": "plenty"}})
	failed, ok := errors.AsType[*StartError](err)
	if !ok || failed.Program != "postgres" || !strings.Contains(err.Error(), "work_mem") {
		t.Fatalf("got %v", err)
	}
}

// A shutdown that is given no time still ends the server, and says so.
func TestStopInsists(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(publicDir(t), "db")
	s := start(t, dir)
	pid := s.PID()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Stop(ctx); err != nil { // nil when it was quicker than the look at ctx
		wantErr(t, err, context.Canceled)
	}
	if isPostmaster(pid, s.data()) {
		t.Error("still running")
	}
	start(t, dir)
}

func TestTemporaryDirInMemory(t *testing.T) {
	t.Parallel()
	if MemoryDir(1<<62) != "" {
		t.Error("found more memory than there is")
	}
	parent := MemoryDir(1 << 30)
	if parent == "" {
		parent = publicDir(t)
	}
	s, err := Start(limit(t), Options{TempParent: parent, NoSync: true})
	must(t, err)
	t.Cleanup(func() { must(t, s.Stop(context.Background())) })
	if dir := s.home.dir; filepath.Dir(dir) != parent {
		t.Errorf("temporary directory %s, want one in %s", dir, parent)
	}
	want(t, "answer", query(t, s, "postgres", "SELECT 'yes'"), "yes")
}
