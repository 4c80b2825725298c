package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	dataName   = "data"
	initPrefix = ".init-"
	// fastGrace is how long a server left behind may take for a fast shutdown.
	fastGrace = 30 * time.Second
	pollEvery = 10 * time.Millisecond
)

// dataMajor is the major version that made the data directory, 0 without one.
func dataMajor(data string) (int, error) {
	text, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("embedded: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("embedded: version of %s: %w", data, err)
	}
	return major, nil
}

// initialise makes the data directory under another name first: one that
// carries its name is complete, whenever the process was killed.
func (s *Server) initialise(ctx context.Context, fill func(ctx context.Context, dir string) error) error {
	left, _ := filepath.Glob(s.home.path(initPrefix + "*"))
	for _, dir := range left {
		if err := os.RemoveAll(dir); err != nil {
			s.log.Warn("half-made data directory stays", "dir", dir, "error", err)
		}
	}
	dir, err := os.MkdirTemp(s.home.dir, initPrefix)
	if err == nil {
		err = s.account.own(dir)
	}
	if err != nil {
		return fmt.Errorf("embedded: make data directory: %w", err)
	}
	if err := fill(ctx, dir); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	if err := os.Rename(dir, s.data()); err != nil {
		return fmt.Errorf("embedded: name data directory: %w", err)
	}
	return syncDir(s.home.dir)
}

func (s *Server) runInitdb(ctx context.Context, dir string) error {
	args := []string{
		"-D", dir, "--username=" + superuser, "--auth=trust", "--encoding=UTF8", "--no-locale",
		"--data-checksums", "--no-instructions",
	}
	if s.opts.NoSync {
		args = append(args, "--no-sync")
	}
	return s.runProgram(ctx, dir, "initdb", args...)
}

// runProgram runs one of Postgres' programs to its end.
func (s *Server) runProgram(ctx context.Context, dir, program string, args ...string) error {
	log, err := s.openLog()
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := s.account.command(dir, s.bin.path(program), args...)
	cmd.Stdout, cmd.Stderr = log, log
	run, err := spawn(cmd)
	if err == nil {
		err = run.wait(ctx)
	}
	if err != nil {
		return &StartError{Program: program, Log: s.logTail(), Err: err}
	}
	return nil
}

func syncDir(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("embedded: %w", err)
	}
	defer file.Close()
	if err := file.Sync(); err != nil {
		return fmt.Errorf("embedded: sync %s: %w", dir, err)
	}
	return nil
}

// probe finds out whether this build compresses with lz4, by asking it to
// accept the setting.
func (s *Server) probe(ctx context.Context) error {
	const name = "default_toast_compression"
	run, err := spawn(s.account.command(s.data(), s.bin.path("postgres"), "-D", s.data(), "-C", name, "-c", name+"=lz4"))
	if err == nil {
		err = run.wait(ctx)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("embedded: ask for lz4: %w", context.Cause(ctx))
	}
	s.compression = map[string]string{"wal_compression": "on"}
	if err == nil {
		s.compression[name] = "lz4"
		if s.bin.major >= 15 { // a plain switch before
			s.compression["wal_compression"] = "lz4"
		}
	}
	return nil
}

// pidFile is what postmaster.pid tells (PostgreSQL, miscadmin.h,
// LOCK_FILE_LINE_*): line 1 the process, line 8 its status.
type pidFile struct {
	pid    int
	status string
}

func pidPath(data string) string { return filepath.Join(data, "postmaster.pid") }

func readPidFile(data string) (pidFile, error) {
	text, err := os.ReadFile(pidPath(data))
	if err != nil {
		return pidFile{}, err
	}
	lines := strings.Split(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil || pid == 0 {
		return pidFile{}, fmt.Errorf("embedded: postmaster.pid: no process in %.40q", lines[0])
	}
	file := pidFile{pid: max(pid, -pid)} // negative for a single-user server
	if len(lines) > 7 {
		file.status = strings.TrimSpace(lines[7])
	}
	return file, nil
}

// takeOver ends a server that a killed service left on the directory, which
// nobody else can own while we hold its lock. It reports whether the last
// server ended without removing its pid file.
func (s *Server) takeOver(ctx context.Context) (bool, error) {
	file, err := s.settledPidFile(ctx)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case isPostmaster(file.pid, s.data()):
		s.log.Warn("stopping the Postgres that a killed process left", "pid", file.pid, "dir", s.home.dir)
		return true, s.endLeftover(ctx, file.pid)
	case syscall.Kill(file.pid, 0) == nil:
		return true, s.disown()
	}
	return true, nil
}

// settledPidFile gives a server that is just starting a second to fill its pid
// file in. One that stays empty is the remnant of a crash, and Postgres would
// refuse to start over it.
func (s *Server) settledPidFile(ctx context.Context) (pidFile, error) {
	for range 100 {
		file, err := readPidFile(s.data())
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
		if err := pause(ctx, pollEvery); err != nil {
			return file, fmt.Errorf("embedded: read postmaster.pid: %w", err)
		}
	}
	if err := os.Remove(pidPath(s.data())); err != nil {
		return pidFile{}, fmt.Errorf("embedded: remove empty pid file: %w", err)
	}
	return pidFile{}, fs.ErrNotExist
}

// endLeftover shuts a server that is not our child down: fast, then at once.
// SIGKILL would leave backends on the data.
func (s *Server) endLeftover(ctx context.Context, pid int) error {
	sig := syscall.SIGINT
	for end := time.Now().Add(fastGrace); isPostmaster(pid, s.data()); {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("embedded: stop leftover postgres %d: %w", pid, err)
		}
		if err := pause(ctx, 5*pollEvery); err != nil {
			return fmt.Errorf("embedded: wait for leftover postgres %d: %w", pid, err)
		}
		if time.Now().After(end) {
			sig = syscall.SIGQUIT
		}
	}
	return nil
}

// disown puts our number into a stale pid file whose own now belongs to
// another program, which Postgres would take for a live server. A file that
// names its parent it takes for stale, and still makes sure that no backend
// uses the shared memory named further down.
func (s *Server) disown() error {
	text, err := os.ReadFile(pidPath(s.data()))
	if err != nil {
		return fmt.Errorf("embedded: %w", err)
	}
	_, rest, _ := strings.Cut(string(text), "\n")
	file, err := os.OpenFile(pidPath(s.data()), os.O_WRONLY|os.O_TRUNC|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("embedded: %w", err)
	}
	_, err = fmt.Fprintf(file, "%d\n%s", os.Getpid(), rest)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("embedded: rewrite stale pid file: %w", err)
	}
	return nil
}
