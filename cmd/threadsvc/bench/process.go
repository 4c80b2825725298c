package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// The figures of processes come from /proc, as proc(5) describes it. Where there is none, or a process belongs to
// somebody else's machine, they are missing, which is no error.

// tick is the unit of times in /proc: USER_HZ, 100 per second on every architecture that Go runs on.
const tick = 10 * time.Millisecond

// stat is the part of /proc/<pid>/stat that is used.
type stat struct {
	name   string
	parent int
	// own is the processor time of the process, with reaped that of its children that have ended.
	own, reaped time.Duration
}

// readStat reads a process' figures; false if there are none.
func readStat(pid int) (s stat, ok bool) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return s, false
	}
	open, end := strings.IndexByte(string(text), '('), strings.LastIndexByte(string(text), ')')
	if open < 0 || end < open {
		return s, false
	}
	s.name = string(text[open+1 : end])
	fields := strings.Fields(string(text[end+1:]))
	const first = 3 // the number, in proc(5), of the first field after the name
	if len(fields) <= 17-first {
		return s, false
	}
	var n [18]int64
	for _, i := range []int{4, 14, 15, 16, 17} {
		if n[i], err = strconv.ParseInt(fields[i-first], 10, 64); err != nil {
			return s, false
		}
	}
	s.parent = int(n[4])
	s.own, s.reaped = time.Duration(n[14]+n[15])*tick, time.Duration(n[16]+n[17])*tick
	return s, true
}

// cpuOf is the processor time of processes; false if it is not known of one.
func cpuOf(pids ...int) (total time.Duration, ok bool) {
	for _, pid := range pids {
		s, ok := readStat(pid)
		if !ok {
			return 0, false
		}
		total += s.own
	}
	return total, len(pids) > 0
}

// cpuOfTree is the processor time of a process and its children, those included that have ended.
func cpuOfTree(pid int) (time.Duration, bool) {
	root, ok := readStat(pid)
	if !ok {
		return 0, false
	}
	total := root.own + root.reaped
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, false
	}
	for _, entry := range entries {
		child, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if s, ok := readStat(child); ok && s.parent == pid {
			total += s.own + s.reaped
		}
	}
	return total, true
}

// postmasterOf is the parent of a backend of Postgres, 0 if the process is no such thing.
func postmasterOf(backend int) int {
	s, ok := readStat(backend)
	if !ok || backend == 0 || s.name != "postgres" {
		return 0
	}
	return s.parent
}

// memoryOf is the resident memory of a process, now and at its highest, in bytes.
func memoryOf(pid int) (now, peak int64, ok bool) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, 0, false
	}
	for _, line := range strings.Split(string(text), "\n") {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			now = kib << 10
		} else if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			peak = kib << 10
		}
	}
	return now, peak, now > 0 && peak > 0
}
