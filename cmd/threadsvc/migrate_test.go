package main

import (
	"fmt"
	"testing"

	"github.com/threadsvc/threadsvc/migrations"
	"github.com/threadsvc/threadsvc/store/storetest"
)

func TestMigrate(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	latest := migrations.Latest()
	env := []string{"THREADSVC_DATABASE_URL=" + url, "THREADSVC_STEPS=1"}
	for _, step := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"migrate", "status"}, 0, fmt.Sprintf("schema revision %d of %d: up to date\n", latest, latest)},
		{[]string{"migrate", "up"}, 0, "up to date"},
		{[]string{"migrate", "down"}, exitUsage, "say how many with --steps"},
		{[]string{"migrate", "down", "--steps", "1000"}, exitFailed, "cannot take back 1000 revisions"},
		{[]string{"migrate", "down", "--steps", fmt.Sprint(latest)}, 0, fmt.Sprintf("schema revision 0 of %d: empty", latest)},
		{[]string{"migrate", "status"}, 0, "run 'threadsvc migrate up'"},
		{[]string{"serve", "--migrate=false", "--listen", "127.0.0.1:0"}, exitFailed, "run 'threadsvc migrate up' or start with --migrate"},
		{[]string{"migrate", "up"}, 0, "up to date"},
	} {
		code, stdout, stderr := execute(t, env, step.args...)
		if code != step.code {
			t.Errorf("%v: exit code %d, want %d", step.args, code, step.code)
		}
		wantOutput(t, stdout+stderr, step.want)
	}
}

func TestMigrateErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"migrate", "up"}, exitUsage, "give --database-url or set THREADSVC_DATABASE_URL"},
		{[]string{"migrate", "sideways"}, exitUsage, "unknown command"},
		{[]string{"migrate", "status", "--database-url", "nonsense"}, exitFailed, "database of --database-url"},
		{[]string{"migrate", "up", "--database-url", "postgres://u:secret@127.0.0.1:1/d"}, exitFailed, "database 127.0.0.1:1/d"},
	} {
		code, stdout, stderr := execute(t, nil, c.args...)
		if code != c.code || stdout != "" {
			t.Errorf("%v: exit code %d, want %d; %q", c.args, code, c.code, stdout)
		}
		wantOutput(t, stderr, c.want)
	}
}

func TestStanding(t *testing.T) {
	t.Parallel()
	latest := migrations.Latest()
	for _, c := range []struct {
		revision uint
		dirty    bool
		want     string
	}{
		{latest, false, "up to date"},
		{latest + 1, false, "newer than this program, which can use it"},
		{latest, true, "a migration was left half done; repair the schema by hand and set schema_migrations"},
		{0, false, "empty; run 'threadsvc migrate up'"},
	} {
		if got := standing(c.revision, c.dirty); got != c.want {
			t.Errorf("%d, %v: %q", c.revision, c.dirty, got)
		}
	}
}
