package service_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// clockReaders are the functions that ask for the time, each with what it does with it. All of them measure how long
// something takes, within one process and by the monotonic reading that time.Now has, which setting the clock does not
// move. What decides anything about a thread (leases, interrupts, the order of versions) goes by the database's clock.
var clockReaders = map[string]string{
	"service/append.go:delay":         "how long events may be gathered",
	"service/committer.go:next":       "how long a transaction takes",
	"service/committer.go:mayBegin":   "how long a transaction takes",
	"service/committer.go:commit":     "how long a transaction takes, for the log",
	"service/committer.go:offer":      "how long events may be gathered",
	"service/tail_follow.go:follow":   "how long a message is being sent",
	"service/tail_follow.go:await":    "how long a message is being sent",
	"service/tail_follow.go:put":      "how long a message is being sent",
	"service/tail_poll.go:pollAll":    "how long a poll takes",
	"service/wait.go:beforeDeadline":  "how long the context of a call lasts",
	"store/migrate.go:openMigrations": "how long the context of a migration lasts",
}

// TestNobodyReadsTheClockToDecide finds every use of the server's own clock. A new one belongs into the list above, if it
// belongs into the service at all.
func TestNobodyReadsTheClockToDecide(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for _, dir := range []string{"agui", "agui/jsondoc", "service", "store"} {
		files := must(filepath.Glob("../" + dir + "/*.go"))(t)
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				readersOfClock(t, file, found)
			}
		}
	}
	for place := range found {
		if clockReaders[place] == "" {
			t.Errorf("%s reads the clock, and nothing says what for", place)
		}
	}
	for place := range clockReaders {
		if !found[place] {
			t.Errorf("%s does not read the clock any more", place)
		}
	}
}

// readersOfClock adds the functions of a file that use time.Now and what is made of it, and fails the test where the wall
// clock's part of a time would be used.
func readersOfClock(t *testing.T, file string, found map[string]bool) {
	t.Helper()
	parsed := must(parser.ParseFile(token.NewFileSet(), file, must(os.ReadFile(file))(t), 0))(t)
	for _, decl := range parsed.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			selector, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			name := selector.Sel.Name
			if from, ok := selector.X.(*ast.Ident); ok && from.Name == "time" && (name == "Now" || name == "Since" || name == "Until") {
				found[strings.TrimPrefix(filepath.ToSlash(file), "../")+":"+f.Name.Name] = true
			}
			if call, ok := selector.X.(*ast.CallExpr); ok && isNow(call) && name != "Add" && name != "Sub" {
				t.Errorf("%s: %s uses time.Now().%s, which may be the wall clock's", file, f.Name.Name, name)
			}
			return true
		})
	}
}

func isNow(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || f.Sel.Name != "Now" {
		return false
	}
	from, ok := f.X.(*ast.Ident)
	return ok && from.Name == "time"
}

// clockStore is a store whose database has a clock of its own.
type clockStore struct {
	store.Store
	ahead time.Duration
}

func (s clockStore) Now(ctx context.Context) (time.Time, error) {
	now, err := s.Store.Now(ctx)
	return now.Add(s.ahead), err
}

// TestInterruptsExpireByTheClockOfTheDatabase opens an interrupt that expires in an hour, and answers it when it is two
// hours later by the database, and then when it is not.
func TestInterruptsExpireByTheClockOfTheDatabase(t *testing.T) {
	t.Parallel()
	db := storetest.NewMemory()
	c := converse(t, dial(t, startNode(t, db, service.Config{}).address), "t1")
	expires := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	c.open("r1", runFinished("t1", "r1", "outcome", `{"type":"interrupt","interrupts":[{"id":"i1","reason":"x","expiresAt":"`+expires+`"}]}`))
	answer := withResume(`[{"interruptId":"i1","status":"resolved"}]`)
	late := converse(t, dial(t, startNode(t, clockStore{db, 2 * time.Hour}, service.Config{}).address), "t1")
	_, _, err := late.tryStart("r2", answer)
	wantReason(t, err, codes.FailedPrecondition, "INTERRUPTS_EXPIRED")
	c.start("r2", answer)
}

// TestTimesOfEventsOrderNothing (field case C4): producers' timestamps that are equal, or go backwards, hide no conflict and
// make nothing older the latest.
func TestTimesOfEventsOrderNothing(t *testing.T) {
	t.Parallel()
	sides := twoServers(t)
	at := func(time, state string) string {
		return `{"type":"STATE_SNAPSHOT","timestamp":` + time + `,"snapshot":` + state + `}`
	}
	sides[0].record("r1", at("2000", `{"n":1}`))
	sides[1].record("r2", at("2000", `{"n":2}`))
	sides[0].record("r3", at("1500", `{"n":3}`))
	for _, side := range sides {
		side.wantState(`{"n":3}`)
	}
	info, _ := sides[0].info()
	version := info.GetVersion()
	expecting := func(r *threadsvcv1.StartRunRequest) { r.ExpectedVersion = &version }
	sides[0].start("r4", expecting)
	sides[0].append(runStarted("t1", "r4"), at("1500", `{"n":4}`), runFinished("t1", "r4"))
	_, _, err := sides[1].tryStart("r5", expecting)
	wantReason(t, err, codes.Aborted, "VERSION_MISMATCH")
	sides[1].wantState(`{"n":4}`)
}
