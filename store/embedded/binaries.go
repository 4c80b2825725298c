package embedded

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// BinEnv names the environment variable that, when set, is the only place
// FindBinaries looks at.
const BinEnv = "THREADSVC_PG_BIN"

const minMajor = 14

// binaries is a directory with initdb and postgres of one major version.
type binaries struct {
	dir   string
	major int
}

func (b binaries) path(program string) string { return filepath.Join(b.dir, program) }

// folders are where distributions put the server programs, outside PATH.
var folders = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/libexec/postgresql*",
	"/usr/pgsql-*/bin",
	"/opt/homebrew/opt/postgresql*/bin",
	"/usr/local/opt/postgresql*/bin",
	"/usr/local/pgsql*/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}

// FindBinaries returns the directory of the first PostgreSQL 14 or newer found
// in $THREADSVC_PG_BIN (then nowhere else), PATH, pg_config's bindir, and the
// usual distribution folders, newest first. It fails with ErrNoBinaries.
func FindBinaries() (string, error) {
	found, err := findBinaries(context.Background(), os.Getenv(BinEnv), 0)
	return found.dir, err
}

// findBinaries looks only into fixed unless that is empty. A major other than
// 0 asks for exactly that version.
func findBinaries(ctx context.Context, fixed string, major int) (binaries, error) {
	places := candidates(ctx)
	if fixed != "" {
		places = slices.Values([]string{fixed})
	}
	var others []string
	for dir := range places {
		found, err := inspect(ctx, dir)
		switch {
		case err != nil:
		case found.major < minMajor, major != 0 && found.major != major:
			others = append(others, fmt.Sprintf("%d in %s", found.major, dir))
		default:
			return found, nil
		}
	}
	if err := ctx.Err(); err != nil {
		return binaries{}, fmt.Errorf("embedded: look for programs: %w", err)
	}
	return binaries{}, notFound(fixed, major, others)
}

func notFound(fixed string, major int, others []string) error {
	wanted := fmt.Sprintf("%d or newer", minMajor)
	if major != 0 {
		wanted = fmt.Sprintf("%d, which made the data directory,", major)
	}
	place := "on this system"
	if fixed != "" {
		place = "in " + fixed
	}
	if len(others) > 0 {
		place += " (only " + strings.Join(slices.Compact(others), ", ") + ")"
	}
	return fmt.Errorf("%w: %s not found %s; %s", ErrNoBinaries, wanted, place, installHint())
}

// installHint is the command of the first package manager this system has.
func installHint() string {
	for _, manager := range [][2]string{
		{"apt-get", "apt-get install --no-install-recommends postgresql"},
		{"apk", "apk add postgresql"},
		{"dnf", "dnf install postgresql-server"},
		{"brew", "brew install postgresql"},
	} {
		if _, err := exec.LookPath(manager[0]); err == nil {
			return "install them with: " + manager[1]
		}
	}
	return "install them from https://www.postgresql.org/download/"
}

func candidates(ctx context.Context) iter.Seq[string] {
	return func(yield func(string) bool) {
		if path, err := exec.LookPath("postgres"); err == nil {
			if real, err := filepath.EvalSymlinks(path); err == nil && !yield(filepath.Dir(real)) {
				return
			}
		}
		if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
			if !yield(strings.TrimSpace(string(out))) {
				return
			}
		}
		for _, dir := range newestFirst(folders) {
			if !yield(dir) {
				return
			}
		}
	}
}

func newestFirst(patterns []string) []string {
	var dirs []string
	for _, pattern := range patterns {
		hits, _ := filepath.Glob(pattern) // fails only for a malformed pattern
		dirs = append(dirs, hits...)
	}
	slices.SortStableFunc(dirs, func(a, b string) int { return folderVersion(b) - folderVersion(a) })
	return dirs
}

var (
	folderNumber  = regexp.MustCompile(`[0-9]+`)
	versionOutput = regexp.MustCompile(`PostgreSQL\) ([0-9]{1,4})`)
)

// folderVersion is the first number in a path: every folder that is searched
// has the major version there.
func folderVersion(dir string) int {
	number, err := strconv.Atoi(folderNumber.FindString(dir))
	if err != nil {
		return 0
	}
	return number
}

func inspect(ctx context.Context, dir string) (binaries, error) {
	found := binaries{dir: dir}
	if _, err := exec.LookPath(found.path("initdb")); err != nil {
		return found, err
	}
	out, err := exec.CommandContext(ctx, found.path("postgres"), "--version").Output()
	if err != nil {
		return found, err
	}
	match := versionOutput.FindSubmatch(out)
	if match == nil {
		return found, errors.New("embedded: unknown version output")
	}
	found.major, err = strconv.Atoi(string(match[1]))
	return found, err
}
