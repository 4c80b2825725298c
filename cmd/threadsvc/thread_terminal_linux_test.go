package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// newTerminal makes a terminal: what is written to one end is read from the other.
func newTerminal(t *testing.T) (keyboard, terminal *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo-terminals: ", err)
	}
	must(t, unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	must(t, err)
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	t.Cleanup(func() { _, _ = keyboard.Close(), terminal.Close() })
	return keyboard, terminal
}

// Colour is for terminals, unless NO_COLOR is set.
func TestColourOnATerminal(t *testing.T) {
	keyboard, terminal := newTerminal(t)
	reader := bufio.NewReader(keyboard)
	for noColour, want := range map[string]string{"": "\x1b[1m\\x1b[31mx\x1b[0m\r\n", "1": "\\x1b[31mx\r\n"} {
		t.Setenv("NO_COLOR", noColour)
		t.Setenv("TERM", "xterm")
		s := newScreen(terminal)
		s.line(cell{bold, "\x1b[31mx"})
		if got, err := reader.ReadString('\n'); err != nil || got != want || !s.terminal {
			t.Errorf("NO_COLOR=%q: %q, %v", noColour, got, err)
		}
	}
	if null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0); err != nil || newScreen(null).terminal {
		t.Errorf("%s is taken for a terminal (%v)", os.DevNull, err)
	}
}

// On a terminal export refuses, and delete asks.
func TestThreadOnATerminal(t *testing.T) {
	t.Parallel()
	s := newThreadServer(t)
	s.converse()
	keyboard, terminal := newTerminal(t)
	_, err := term.MakeRaw(int(terminal.Fd())) // no echo
	must(t, err)
	on := func(answer string, args ...string) error {
		root := newRoot()
		root.SetArgs(slices.Concat([]string{"thread"}, args, []string{"--tenant", demoTenant, "--server", strings.TrimPrefix(s.env[0], "THREADSVC_SERVER=")}))
		root.SetIn(terminal)
		root.SetOut(terminal)
		root.SetErr(terminal)
		_, err := keyboard.WriteString(answer)
		must(t, err)
		return root.ExecuteContext(t.Context())
	}
	if err := on("", "export", demoThread); err == nil || !strings.Contains(err.Error(), "no text for a terminal") {
		t.Errorf("export: %v", err)
	}
	if err := on("another\n", "delete", demoThread); err == nil || !strings.Contains(err.Error(), "nothing was deleted") {
		t.Errorf("delete with another answer: %v", err)
	}
	must(t, on("", "show", demoThread))
	must(t, on(demoThread+"\n", "delete", demoThread))
	if err := on("", "show", demoThread); err == nil || !strings.Contains(err.Error(), "THREAD_NOT_FOUND: ") {
		t.Errorf("the thread is still there: %v", err)
	}
}
