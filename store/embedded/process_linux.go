package embedded

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// dieWithParent makes the child begin a fast shutdown when the service dies,
// however it dies.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGINT }

// isPostmaster tells whether pid is a live server of the data directory: a
// postgres program whose working directory it is. A zombie is not.
func isPostmaster(pid int, data string) bool {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	exe, err := os.Readlink(filepath.Join(proc, "exe"))
	if err != nil {
		return false
	}
	// A program that was upgraded under the server reads "postgres (deleted)".
	name := strings.TrimSuffix(filepath.Base(exe), " (deleted)")
	if name != "postgres" && name != "postmaster" {
		return false
	}
	cwd, err := os.Stat(filepath.Join(proc, "cwd"))
	if err != nil {
		return false
	}
	want, err := os.Stat(data)
	return err == nil && os.SameFile(cwd, want)
}
