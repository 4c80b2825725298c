package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	// readyTimeout bounds how long a server process may take until it serves.
	readyTimeout = time.Minute
	// exitTimeout bounds how long it may take to end after SIGTERM.
	exitTimeout = 10 * time.Second
)

// serverProcess is 'threadsvc serve' in a process of its own, which can be killed.
type serverProcess struct {
	cmd     *exec.Cmd
	address string        // host:port it listens on
	took    time.Duration // from its start until it served
	done    chan struct{} // closed when it has been reaped
	err     error         // its exit status; read only after done
}

// startServer runs this program's serve on a database, on a free port, and returns when it serves. ctx bounds the start.
func startServer(ctx context.Context, databaseURL string) (*serverProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(self, "serve", "--listen", "127.0.0.1:0", "--database-url", databaseURL, "--log-format", "json")
	cmd.Env = ownEnvironment()
	// A process group of its own: Ctrl-C reaches the demo first, which ends the server in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	output, err := cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	p := &serverProcess{cmd: cmd, done: make(chan struct{})}
	log := &serverLog{serving: make(chan string, 1)}
	began := time.Now()
	if err := p.spawn(func() { log.read(output) }); err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	if err := p.awaitReady(ctx, log); err != nil {
		return nil, err
	}
	p.took = time.Since(began)
	return p, nil
}

// ownEnvironment is the environment without what would set the server's flags.
func ownEnvironment() []string {
	var env []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, envPrefix) {
			env = append(env, variable)
		}
	}
	return env
}

// spawn starts the process from a goroutine that keeps its thread until the process is gone: the kernel ends the child
// with that thread. drain reads what the process writes until it ends.
func (p *serverProcess) spawn(drain func()) error {
	started := make(chan error, 1)
	go func() {
		defer close(p.done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			drain()
			p.err = p.cmd.Wait()
		}
	}()
	return <-started
}

func (p *serverProcess) awaitReady(ctx context.Context, log *serverLog) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	select {
	case p.address = <-log.serving:
		return nil
	case <-p.done:
		return fmt.Errorf("the server process ended: %w: %s", p.err, log.last)
	case <-ctx.Done():
		p.kill()
		return fmt.Errorf("wait for the server process: %w", ctx.Err())
	}
}

func (p *serverProcess) pid() int { return p.cmd.Process.Pid }

// kill ends the process with SIGKILL, as a crash does, and waits until it is gone.
func (p *serverProcess) kill() {
	_ = p.cmd.Process.Kill() // an error means that it is gone
	<-p.done
}

// stop ends the process with SIGTERM and reports whether it ended in order. It is gone when stop returns.
func (p *serverProcess) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // an error means that it is gone
	select {
	case <-p.done:
	case <-time.After(exitTimeout):
		p.kill()
	}
	if p.err != nil {
		return fmt.Errorf("the server did not stop in order: %w", p.err)
	}
	return nil
}

// serverLog reads the log of a server process.
type serverLog struct {
	serving chan string // gets the address when the server serves
	last    string      // the last line; read only after the process has ended
}

func (l *serverLog) read(output io.Reader) {
	lines := bufio.NewReader(output)
	for {
		line, err := lines.ReadString('\n')
		if text := strings.TrimSpace(line); text != "" {
			l.take(text)
		}
		if err != nil {
			return
		}
	}
}

func (l *serverLog) take(line string) {
	l.last = line
	var record struct{ Msg, Address string }
	if err := json.Unmarshal([]byte(line), &record); err != nil || record.Msg != msgServing {
		return
	}
	select {
	case l.serving <- record.Address:
	default:
	}
}

// errServerGone reports that the server process ended although nobody had asked it to.
var errServerGone = errors.New("the server process ended unexpectedly")

// alive is errServerGone unless the process is running.
func (p *serverProcess) alive() error {
	select {
	case <-p.done:
		return fmt.Errorf("%w: %w", errServerGone, p.err)
	default:
		return nil
	}
}
