//go:build unix && !linux

package embedded

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// dieWithParent does nothing where the system has no parent-death signal: a
// server left behind is taken over by the next Start.
func dieWithParent(*syscall.SysProcAttr) {}

// isPostmaster tells whether pid is a live server of the data directory: a
// postgres command whose arguments name it.
func isPostmaster(pid int, data string) bool {
	out, err := exec.Command("ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return false
	}
	command := string(out)
	return strings.Contains(command, "postgres") && strings.Contains(command, "-D "+data+" ")
}
