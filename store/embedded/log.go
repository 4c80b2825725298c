package embedded

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
)

const (
	logName   = "postgres.log"
	logLimit  = 16 << 20
	tailBytes = 4 << 10
	tailLines = 12
)

// openLog begins a new log and keeps the one before it as postgres.log.old.
// It is opened for appending, so that trimming never leaves a hole.
func (s *Server) openLog() (*os.File, error) {
	path := s.home.path(logName)
	_ = os.Rename(path, path+".old") // there may be none
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("embedded: open log: %w", err)
	}
	return file, nil
}

// logTail is the end of the current log: at most 12 lines and 4 KiB.
func (s *Server) logTail() string {
	file, err := os.Open(s.home.path(logName))
	if err != nil {
		return ""
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > tailBytes {
		_, _ = file.Seek(-tailBytes, io.SeekEnd)
	}
	text, _ := io.ReadAll(io.LimitReader(file, tailBytes))
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}

// watch bounds the log while p runs, and reports an end that nobody asked for.
func (s *Server) watch(p *process, log *os.File) {
	defer log.Close()
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			trim(log)
		case <-p.done:
			if !p.stopping.Load() {
				s.log.Error("embedded Postgres ended", "status", p.err, "log", s.logTail())
			}
			return
		}
	}
}

func trim(log *os.File) {
	if info, err := log.Stat(); err == nil && info.Size() > logLimit {
		_ = log.Truncate(0)
	}
}
