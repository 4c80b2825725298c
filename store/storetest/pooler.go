package storetest

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Pooler returns the URL by which a database of Database is reached through a PgBouncer of the test's own in transaction
// mode. The test is skipped where that program is not installed.
func Pooler(t testing.TB, direct string) string {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		t.Skip("skipped: pgbouncer is not installed")
	}
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	socket := u.Query().Get("host")
	var owner syscall.Stat_t
	if err := syscall.Stat(socket, &owner); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	_ = listener.Close()
	dir, err := os.MkdirTemp("", "pgbouncer-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ini := fmt.Sprintf("[databases]\n* = host=%s port=%s user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\n"+
		"auth_type = any\npool_mode = transaction\ndefault_pool_size = 10\nmax_client_conn = 500\nlog_connections = 0\nlog_disconnections = 0\n", socket, u.Query().Get("port"), port)
	path := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(path, []byte(ini), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-q", path)
	cmd.Dir = dir
	if os.Geteuid() == 0 { // it refuses root, and the socket is its owner's
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	address := fmt.Sprintf("127.0.0.1:%d", port)
	for range 1000 {
		if conn, err := net.Dial("tcp", address); err == nil {
			_ = conn.Close()
			through := url.URL{Scheme: u.Scheme, User: u.User, Host: address, Path: u.Path, RawQuery: "sslmode=disable&default_query_exec_mode=exec"}
			return through.String()
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("pgbouncer does not listen")
	return ""
}
