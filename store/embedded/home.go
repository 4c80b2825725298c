package embedded

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	lockName   = "threadsvc.lock"
	tempPrefix = "threadsvc-pg-"
	// sweepAge keeps sweep away from a directory that was made but not locked
	// yet.
	sweepAge = time.Minute
)

// home is a directory that this process holds by a lock on a file in it. The
// kernel releases the lock when the process dies. The directory stays its
// creator's, also under root: only directories inside go to the account.
type home struct {
	dir       string
	lock      *os.File
	temporary bool
}

// openHome makes dir if needed and takes it; an empty dir asks for a temporary
// one that close removes.
func openHome(dir, tempParent string, log *slog.Logger) (*home, error) {
	if dir == "" {
		sweep(tempParent, log)
		return tempHome(tempParent)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	mode := os.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o755 // the account must be able to pass
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return nil, fmt.Errorf("embedded: make directory: %w", err)
	}
	return takeHome(dir, false)
}

func tempHome(parent string) (*home, error) {
	dir, err := os.MkdirTemp(parent, tempPrefix)
	if err != nil {
		return nil, fmt.Errorf("embedded: make temporary directory: %w", err)
	}
	h, err := takeHome(dir, true)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return h, nil
}

func takeHome(dir string, temporary bool) (*home, error) {
	if err := checkOurs(dir); err != nil {
		return nil, err
	}
	lock, err := acquire(filepath.Join(dir, lockName))
	if err != nil {
		return nil, err
	}
	h := &home{dir, lock, temporary}
	if err := h.openUp(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return h, nil
}

// checkOurs accepts a directory that is empty, as a new volume is, or that has
// been used by this package.
func checkOurs(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("embedded: %w", err)
	}
	foreign := ""
	for _, entry := range entries {
		switch entry.Name() {
		case lockName:
			return nil
		case "lost+found":
		default:
			foreign = entry.Name()
		}
	}
	if foreign != "" {
		return fmt.Errorf("%w: %s holds %q; give a directory of its own", ErrForeignDir, dir, foreign)
	}
	return nil
}

// openUp lets root's unprivileged account pass through the directory.
func (h *home) openUp() error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(h.dir)
	if err == nil && info.Mode().Perm()&0o011 != 0o011 {
		err = os.Chmod(h.dir, info.Mode().Perm()|0o011)
	}
	if err != nil {
		return fmt.Errorf("embedded: %w", err)
	}
	return nil
}

func (h *home) path(name string) string { return filepath.Join(h.dir, name) }

// close gives the directory up. It removes a temporary one while it is still
// locked.
func (h *home) close() error {
	var err error
	if h.temporary {
		err = os.RemoveAll(h.dir)
	}
	return errors.Join(err, h.lock.Close())
}

// acquire locks the file at path and writes our process number into it.
func acquire(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("embedded: lock: %w", err)
	}
	if err := flock(file); err != nil {
		holder, _ := io.ReadAll(io.LimitReader(file, 20))
		_ = file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s is held by process %s", ErrInUse,
				filepath.Dir(path), strings.TrimSpace(string(holder)))
		}
		return nil, fmt.Errorf("embedded: lock %s: %w", path, err)
	}
	_ = file.Truncate(0)
	_, _ = fmt.Fprintf(file, "%d\n", os.Getpid()) // informs people, decides nothing
	return file, nil
}

func flock(file *os.File) error {
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// sweep removes temporary directories whose process was killed. What it cannot
// remove it leaves for another time.
func sweep(parent string, log *slog.Logger) {
	dirs, _ := filepath.Glob(filepath.Join(parent, tempPrefix+"*"))
	for _, dir := range dirs {
		if err := sweepOne(dir); err == nil {
			log.Info("removed a temporary database left by a killed process", "dir", dir)
		}
	}
}

// MemoryDir is a directory kept in memory with at least free bytes left, for
// Options.TempParent; empty when the system has none.
func MemoryDir(free uint64) string {
	const dir = "/dev/shm"
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil || uint64(stat.Bavail)*uint64(stat.Bsize) < free {
		return ""
	}
	return dir
}

func sweepOne(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(owner.Uid) != os.Geteuid() || time.Since(info.ModTime()) < sweepAge {
		return os.ErrPermission
	}
	path := filepath.Join(dir, lockName)
	if _, err := os.Lstat(path); err != nil {
		return err
	}
	lock, err := acquire(path)
	if err != nil {
		return err
	}
	defer lock.Close()
	data := filepath.Join(dir, dataName)
	if file, err := readPidFile(data); err == nil && isPostmaster(file.pid, data) {
		return ErrInUse
	}
	return os.RemoveAll(dir)
}
