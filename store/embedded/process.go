package embedded

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// quitGrace is how long an immediate shutdown may take before SIGKILL.
// Postgres itself kills its children after 5 s of it.
const quitGrace = 10 * time.Second

// process is a running child. One goroutine starts it and waits for it.
type process struct {
	cmd      *exec.Cmd
	stopping atomic.Bool   // its end is wanted
	done     chan struct{} // closed when it has been reaped
	err      error         // its exit status; read only after done
}

// spawn starts cmd from a goroutine that stays on its OS thread until the
// child is gone: Linux sends the parent-death signal when that thread ends.
func spawn(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		defer close(p.done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		<-p.done
		return nil, err
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// wait returns the exit status. When ctx ends first it kills the process and
// returns the cause.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		p.kill()
		return context.Cause(ctx)
	}
}

// kill ends the process with its group, as initdb has children, and waits for
// it.
func (p *process) kill() {
	if p.alive() {
		_ = syscall.Kill(-p.pid(), syscall.SIGKILL) // an error means that it is gone
	}
	<-p.done
}

// stop asks a postmaster to end with sig and waits. When ctx ends first it
// insists: an immediate shutdown, then SIGKILL; the process is gone when stop
// returns, and the error tells that it was not asked nicely.
func (p *process) stop(ctx context.Context, sig syscall.Signal) error {
	if !p.alive() {
		return nil
	}
	p.stopping.Store(true)
	_ = p.cmd.Process.Signal(sig) // an error means that it is gone
	select {
	case <-p.done:
		return p.exitError(sig)
	case <-ctx.Done():
	}
	p.quit()
	return fmt.Errorf("embedded: postgres was shut down at once, it will recover at the next start: %w", context.Cause(ctx))
}

func (p *process) exitError(sig syscall.Signal) error {
	if sig == syscall.SIGINT && p.err != nil {
		return fmt.Errorf("embedded: postgres shut down: %w", p.err)
	}
	return nil
}

func (p *process) quit() {
	_ = p.cmd.Process.Signal(syscall.SIGQUIT)
	timer := time.NewTimer(quitGrace)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.kill()
	}
}

// pause waits for d or the end of ctx, whose cause it returns.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
