package service_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/codes"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
)

// The database's process ends itself before and after every kind of statement while a run goes on. Nothing of what was
// not acknowledged is half there, and sending it again brings the run to its end.
func TestDatabaseDiesWithinStatements(t *testing.T) {
	t.Parallel()
	c, db := ownDatabase(t, service.Config{FoldBytes: 1}) // every append writes every table
	execSQL(t, db, `CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$`)
	c.record("r0", append(text("m0", "hello"), stateSnapshot(`{"a":1}`))...)
	stages := c.stages()
	killed := 0
	for _, table := range []string{"threads", "runs", "log_segments", "folds", "message_blocks", "states", "state_patches", "warnings"} {
		for _, when := range []string{"BEFORE INSERT", "AFTER INSERT", "BEFORE UPDATE", "AFTER UPDATE", "BEFORE DELETE", "AFTER DELETE"} {
			run := strings.ToLower(table + "_" + strings.ReplaceAll(when, " ", "_"))
			for i, stage := range stages {
				before := c.contents(db)
				execSQL(t, db, fmt.Sprintf(`CREATE TRIGGER die %s ON %s EXECUTE FUNCTION die()`, when, table))
				err := stage(run)
				execSQL(t, db, fmt.Sprintf(`DROP TRIGGER die ON %s`, table))
				if err == nil {
					continue
				}
				killed++
				wantReason(t, err, codes.Unavailable, "DATABASE_UNAVAILABLE")
				if after := c.contents(db); after != before {
					t.Fatalf("%s %s, stage %d: something was written:\n%s\nbefore:\n%s", when, table, i, after, before)
				}
				if err := stage(run); err != nil {
					t.Fatalf("%s %s, stage %d: sent again: %v %s", when, table, i, err, detailsOf(err))
				}
			}
			if got := len(c.events(run)); got != 7 {
				t.Fatalf("the run has %d events in the log, want 7", got)
			}
		}
	}
	if killed < 24 {
		t.Errorf("killed %d times only", killed)
	}
	if marks := slices.Compact(c.marks()); !slices.Equal(marks, []string{"EVENT_OMITTED EVENT_UNKNOWN"}) {
		t.Errorf("marks %q", marks)
	}
	c.stillWorks()
}

// contents is what readers see of the only thread, as one text.
func (c *conversation) contents(db *pgx.Conn) string {
	c.t.Helper()
	info, input := c.info()
	var logged int
	if err := db.QueryRow(c.t.Context(), `SELECT sum(last_version - first_version + 1) FROM log_segments`).Scan(&logged); err != nil {
		c.t.Fatal(err)
	}
	runs := must(c.client.ListRuns(c.t.Context(), &threadsvcv1.ListRunsRequest{Thread: threadName(c.thread), PageSize: 3}))(c.t)
	warnings := must(c.client.ListWarnings(c.t.Context(), &threadsvcv1.ListWarningsRequest{Thread: threadName(c.thread)}))(c.t)
	return fmt.Sprintf("%d %x %d\n%s\n%v\n%d", info.GetVersion(), info.GetLogHash(), logged, input.text, runs.GetRuns(), len(warnings.GetWarnings()))
}

// stages are what brings a run from its start to its end.
func (c *conversation) stages() []func(run string) error {
	return []func(run string) error{
		func(run string) error {
			_, _, err := c.tryStart(run, withMessages(userMessage("u-"+run, "go on")))
			return err
		},
		func(run string) error { _, err := c.tryAppend(runStarted("t1", run)); return err },
		func(run string) error {
			_, err := c.tryAppend(append(text("m-"+run, "well"), stateDelta(operations(add("/"+run, "2"))), event("FROM_THE_FUTURE"))...)
			return err
		},
		func(run string) error {
			_, err := c.tryAppend(messagesSnapshot(userMessage("u-"+run, "go on"), assistantMessage("m-"+run, "better")), runFinished("t1", run))
			return err
		},
	}
}
