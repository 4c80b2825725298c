package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func TestVersionAndHelp(t *testing.T) {
	t.Parallel()
	code, stdout, _ := execute(t, nil, "version")
	if code != 0 || !strings.HasPrefix(stdout, "threadsvc ") || strings.Count(stdout, "\n") != 1 {
		t.Errorf("version: exit code %d, %q", code, stdout)
	}
	code, stdout, _ = execute(t, nil)
	if code != 0 {
		t.Errorf("no command: exit code %d", code)
	}
	wantOutput(t, stdout, "serve", "migrate", "demo", "version")
	code, _, stderr := execute(t, nil, "bogus")
	if code != exitUsage {
		t.Errorf("unknown command: exit code %d", code)
	}
	wantOutput(t, stderr, "See 'threadsvc --help'.")
}

// Every flag says what it is for, and with which default.
func TestFlagsAreDocumented(t *testing.T) {
	t.Parallel()
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		if c.Short == "" {
			t.Errorf("%s has no help", c.CommandPath())
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			hasDefault := f.DefValue != "" || strings.Contains(f.Usage, "(default ") || strings.Contains(f.Usage, "(required")
			if f.Usage == "" || !hasDefault {
				t.Errorf("%s --%s: %q", c.CommandPath(), f.Name, f.Usage)
			}
		})
		for _, child := range c.Commands() {
			visit(child)
		}
	}
	visit(newRoot())
}

func TestByteSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		n     byteSize
		shown string
	}{
		"1": {1, "1B"}, "65536": {65536, "64KiB"}, "4MiB": {4 << 20, "4MiB"}, "3B": {3, "3B"}, "1024KiB": {1 << 20, "1MiB"},
		"9223372036854775807": {1<<63 - 1, "9223372036854775807B"}, "8589934591GiB": {8589934591 << 30, "8589934591GiB"},
	} {
		var got byteSize
		must(t, got.Set(text))
		if got != want.n || got.String() != want.shown {
			t.Errorf("%s is %d, shown as %s", text, int64(got), &got)
		}
	}
	for _, bad := range []string{"", "0", "-1", "1.5MiB", "MiB", "4mb", "4 MiB", "9223372036854775808", "8589934592GiB", "+1"} {
		got := byteSize(7)
		if err := got.Set(bad); err == nil || got != 7 {
			t.Errorf("%q is taken for %d", bad, int64(got))
		}
	}
}

func TestDescribeURL(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"postgres://u:secret@db:5432/threads?password=secret":       "db:5432/threads",
		"postgresql://a,b/threads":                                  "a,b/threads",
		"postgres://postgres@/threadsvc?host=%2Frun%2Fpg&port=5432": "/run/pg/threadsvc",
		"host=db password=secret":                                   "of --database-url",
		"postgres://u:secret@h:port/d":                              "of --database-url",
		"http://u:secret@h/d":                                       "of --database-url",
	} {
		if got := describeURL(url); got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
}

func TestDatabaseErrorIsOneLine(t *testing.T) {
	t.Parallel()
	err := &databaseError{"db/x", fmt.Errorf("cannot connect:\n\ta: refused\n\ta: refused\n\tb: refused")}
	if got := err.Error(); got != "database db/x: cannot connect: a: refused b: refused" {
		t.Errorf("got %q", got)
	}
}

func TestDataDir(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	want := func(name, asked, want string) {
		t.Helper()
		if got, err := dataDir(asked); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	working, err := os.Getwd()
	must(t, err)
	want("relative", "here", filepath.Join(working, "here"))
	if os.Geteuid() == 0 {
		want("root", "", rootDataDir)
		return
	}
	t.Setenv("XDG_DATA_HOME", "relative")
	want("home", "", filepath.Join(home, ".local/share/threadsvc"))
	t.Setenv("XDG_DATA_HOME", "/data")
	want("XDG", "", "/data/threadsvc")
	t.Setenv("XDG_DATA_HOME", "")
	t.Setenv("HOME", "")
	if _, err := dataDir(""); err == nil {
		t.Error("a data directory without a home")
	}
}
