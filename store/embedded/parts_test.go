package embedded

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// fakeBinaries makes a directory of shell scripts that claim a version.
func fakeBinaries(t *testing.T, version, initdb string) string {
	t.Helper()
	dir := publicDir(t)
	for name, script := range map[string]string{
		"postgres": "echo 'postgres (PostgreSQL) " + version + "'", "initdb": initdb,
	} {
		writeProgram(t, filepath.Join(dir, name), strings.NewReader("#!/bin/sh\n"+script+"\n"))
	}
	return dir
}

func TestFindBinaries(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, version string
		major, found  int
	}{
		{"new", "15.18 (Debian 15.18-0)", 0, 15},
		{"newest", "19devel", 0, 19},
		{"old", "13.4", 0, 0},
		{"ancient", "9.6.24", 0, 0},
		{"the one asked for", "16.1", 16, 16},
		{"not the one asked for", "16.1", 15, 0},
		{"nonsense", "many", 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := fakeBinaries(t, test.version, "true")
			found, err := findBinaries(limit(t), dir, test.major)
			if test.found == 0 {
				wantErr(t, err, ErrNoBinaries)
				return
			}
			must(t, err)
			if found.major != test.found || found.dir != dir {
				t.Errorf("found %+v", found)
			}
		})
	}
}

func TestFoundBinariesStartAServer(t *testing.T) {
	t.Parallel()
	dir, err := FindBinaries()
	must(t, err)
	for _, program := range []string{"initdb", "postgres"} {
		if _, err := os.Stat(filepath.Join(dir, program)); err != nil {
			t.Error(err)
		}
	}
}

// Not parallel: it changes the environment.
func TestNoBinaries(t *testing.T) {
	empty := t.TempDir()
	t.Setenv(BinEnv, empty)
	t.Setenv("PATH", empty)
	_, err := Start(limit(t), Options{})
	wantErr(t, err, ErrNoBinaries)
	if text := err.Error(); strings.Contains(text, "\n") || !strings.Contains(text, "install") {
		t.Errorf("not a line that helps: %q", text)
	}
	_, err = FindBinaries()
	wantErr(t, err, ErrNoBinaries)
}

// Not parallel: it changes the environment.
func TestInstallHint(t *testing.T) {
	for _, manager := range []string{"apt-get", "apk", "dnf", "brew"} {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, manager), []byte("#!/bin/sh\n"), 0o755))
		t.Setenv("PATH", dir)
		if hint := installHint(); !strings.Contains(hint, manager+" ") {
			t.Errorf("%s: %q", manager, hint)
		}
	}
}

func TestNewestFirst(t *testing.T) {
	t.Parallel()
	root := publicDir(t)
	for _, name := range []string{"lib/9.6/bin", "lib/14/bin", "opt/postgresql@17/bin", "opt/postgresql/bin"} {
		must(t, os.MkdirAll(filepath.Join(root, name), 0o755))
	}
	must(t, os.Rename(filepath.Join(root, "lib"), filepath.Join(root, "l")))
	var got []int
	for _, dir := range newestFirst([]string{root + "/l/*/bin", root + "/opt/postgresql*/bin"}) {
		got = append(got, folderVersion(strings.TrimPrefix(dir, root)))
	}
	if len(got) != 4 || !slices.Contains(got, 17) {
		t.Errorf("found %v", got)
	}
	for dir, version := range map[string]int{
		"/usr/lib/postgresql/15/bin": 15, "/usr/libexec/postgresql17": 17, "/usr/pgsql-16/bin": 16,
		"/opt/homebrew/opt/postgresql@18/bin": 18, "/opt/homebrew/opt/postgresql/bin": 0, "/x/99999999999999999999": 0,
	} {
		if got := folderVersion(dir); got != version {
			t.Errorf("%s: %d", dir, got)
		}
	}
}

func TestStartHonoursItsContext(t *testing.T) {
	t.Parallel()
	slow := fakeBinaries(t, "15.1", "sleep 1000 & wait")
	dir := filepath.Join(publicDir(t), "db")
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, err := Start(ctx, Options{Dir: dir, BinDir: slow})
	wantErr(t, err, context.DeadlineExceeded)
	if left, _ := filepath.Glob(filepath.Join(dir, ".init-*")); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	_, err = Start(ctx, Options{Dir: dir, BinDir: slow}) // over before it begins
	if err == nil {
		t.Error("started without time")
	}
}

func TestFailingInitdb(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(publicDir(t), "db")
	broken := fakeBinaries(t, "15.1", "seq 1000; echo no room >&2; exit 3")
	_, err := Start(limit(t), Options{Dir: dir, BinDir: broken})
	failed, ok := errors.AsType[*StartError](err)
	if !ok || failed.Program != "initdb" || !strings.HasSuffix(failed.Log, "1000\nno room") || len(failed.Log) > tailBytes {
		t.Fatalf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, dataName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("data directory: %v", err)
	}
}

func TestReadPidFile(t *testing.T) {
	t.Parallel()
	full := "4711\n/d\n1\n5432\n/d/s\n\n  5432001         5\nready   \n"
	for text, want := range map[string]pidFile{
		full: {4711, "ready"}, "4711\n": {pid: 4711}, "-12\n/d\n": {pid: 12},
		"": {}, "\n": {}, "x\n": {}, "0\n": {}, "99999999999999999999\n": {},
	} {
		dir := publicDir(t)
		must(t, os.WriteFile(pidPath(dir), []byte(text), 0o600))
		got, err := readPidFile(dir)
		if got != want || (err == nil) != (want != pidFile{}) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func TestSweep(t *testing.T) {
	t.Parallel()
	old := time.Now().Add(-2 * sweepAge)
	for _, test := range []struct {
		name               string
		locked, held, aged bool
		removed            bool
	}{
		{"left behind", true, false, true, true},
		{"in use", true, true, true, false},
		{"just made", true, false, false, false},
		{"not ours", false, false, true, false},
	} {
		dir := filepath.Join(publicDir(t), tempPrefix+"x")
		must(t, os.Mkdir(dir, 0o700))
		if test.locked {
			lock, err := acquire(filepath.Join(dir, lockName))
			must(t, err)
			if test.held {
				defer lock.Close()
			} else {
				must(t, lock.Close())
			}
		}
		if test.aged {
			must(t, os.Chtimes(dir, old, old))
		}
		_ = sweepOne(dir)
		_, err := os.Stat(dir)
		if errors.Is(err, os.ErrNotExist) != test.removed {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// A link in place of the lock must not make root write elsewhere.
func TestLockIsNoLink(t *testing.T) {
	t.Parallel()
	dir := publicDir(t)
	victim := filepath.Join(publicDir(t), "victim")
	must(t, os.WriteFile(victim, []byte("content"), 0o600))
	must(t, os.Symlink(victim, filepath.Join(dir, lockName)))
	if _, err := openHome(dir, "", slog.New(slog.DiscardHandler)); err == nil {
		t.Error("took a link for a lock")
	}
	text, err := os.ReadFile(victim)
	must(t, err)
	want(t, "victim", string(text), "content")
}

func TestTrim(t *testing.T) {
	t.Parallel()
	s := &Server{home: &home{dir: publicDir(t)}}
	log, err := s.openLog()
	must(t, err)
	defer log.Close()
	_, err = log.WriteString("short\n")
	must(t, err)
	trim(log)
	want(t, "tail", s.logTail(), "short")
	_, err = log.Write(make([]byte, logLimit))
	must(t, err)
	trim(log)
	_, err = log.WriteString("anew\n")
	must(t, err)
	want(t, "tail", s.logTail(), "anew")
}

func TestEnvironmentKeepsSecrets(t *testing.T) {
	t.Setenv("PGHOST", "elsewhere")
	t.Setenv("SECRET_TOKEN", "s3cret")
	env := strings.Join(environment(), "\n")
	if strings.Contains(env, "elsewhere") || strings.Contains(env, "s3cret") || !strings.Contains(env, "LC_ALL=C") {
		t.Errorf("environment %q", env)
	}
}
