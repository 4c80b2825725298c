package service_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A process cannot have its wall clock set alone, and the system's is everybody's. So these servers are the real program,
// built by go build -overlay with a package time whose wall clock is moved on demand, and whose monotonic clock is not:
// what setting the clock does to every process.
const (
	nowCalls  = "sec, nsec, mono := runtimeNow()\n"
	nowMoved  = nowCalls + "\tsec += wallMoved.Load()\n"
	timeMoved = `package time

import "sync/atomic"

var wallMoved atomic.Int64

// MoveWall sets by how many seconds the wall clock is ahead of the system's.
func MoveWall(seconds int64) { wallMoved.Store(seconds) }
`
	mainMoved = `package main

import (
	"fmt"
	"time"
)

// It moves the clock by each number of seconds that it reads, and prints what time it is then.
func init() {
	go func() {
		for {
			var seconds int64
			if _, err := fmt.Scan(&seconds); err != nil {
				return
			}
			time.MoveWall(seconds)
			fmt.Println(time.Now().Unix())
		}
	}()
}
`
)

// buildMovable builds the program with a clock that can be moved. The first time takes a minute, since everything depends
// on package time.
func buildMovable(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root := strings.TrimSpace(string(must(exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output())(t)))
	standard := filepath.Join(root, "src", "time", "time.go")
	text := string(must(os.ReadFile(standard))(t))
	if strings.Count(text, nowCalls) != 1 {
		t.Fatal("package time has changed: where does Now read the clock?")
	}
	replace := map[string]string{}
	overlay := func(path, name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[path] = filepath.Join(dir, name)
	}
	overlay(standard, "time.go.txt", strings.Replace(text, nowCalls, nowMoved, 1))
	overlay(filepath.Join(root, "src", "time", "moved.go"), "moved.go.txt", timeMoved)
	program := must(filepath.Abs("../cmd/threadsvc"))(t)
	overlay(filepath.Join(program, "moved.go"), "main.go.txt", mainMoved)
	text = string(must(json.Marshal(map[string]any{"Replace": replace}))(t))
	overlay("", "overlay.json", text)
	built := filepath.Join(dir, "threadsvc")
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", built, program)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return built
}

// startMovable starts the program on the process's database and address, and reports whether it serves.
func (p *process) startMovable() bool {
	p.t.Helper()
	p.cmd = exec.Command(p.movable, "serve", "--listen", p.address, "--database-url", p.url, "--migrate=false", "--max-conns=8")
	out := must(p.cmd.StdoutPipe())(p.t)
	p.clock = must(p.cmd.StdinPipe())(p.t)
	logged, log := io.Pipe() // Wait closes neither end
	p.cmd.Stderr = log
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.told = bufio.NewReader(out)
	served := make(chan bool, 1)
	go func() {
		lines := bufio.NewScanner(logged)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "msg=serving ") {
				served <- true
				break
			}
		}
		_, _ = io.Copy(io.Discard, logged)
	}()
	p.logged = log
	select {
	case <-served:
		return true
	case <-time.After(20 * time.Second):
		p.kill()
		return false
	}
}

// moveClock sets by how much the wall clock of the process is ahead, and makes sure that it is.
func (p *process) moveClock(ahead time.Duration) error {
	if _, err := fmt.Fprintln(p.clock, int64(ahead/time.Second)); err != nil {
		return err
	}
	var now int64
	if _, err := fmt.Fscanln(p.told, &now); err != nil {
		return err
	}
	if off := time.Until(time.Unix(now, 0)) - ahead; off.Abs() > time.Minute {
		return fmt.Errorf("the clock is %v off", off)
	}
	return nil
}
