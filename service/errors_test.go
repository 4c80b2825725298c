package service_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/status"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// promise is what the contract says of a reason, in the comment of its enum value.
type promise struct {
	code     string
	metadata []string
}

var (
	commentOf = regexp.MustCompile(`((?:\s*//[^\n]*\n)+)\s*ERROR_REASON_(\w+) = \d+;`)
	codeOf    = regexp.MustCompile(`ERROR_REASON_\w+: ([A-Z_]+)\.`)
	quoted    = regexp.MustCompile(`"([a-z_]+)"`)
)

func promises(t *testing.T) map[string]promise {
	t.Helper()
	text := string(must(os.ReadFile("../proto/threadsvc/v1/error_reason.proto"))(t))
	text = text[strings.Index(text, "enum ErrorReason {"):]
	all := map[string]promise{}
	for _, m := range commentOf.FindAllStringSubmatch(text, -1) {
		if m[2] == "UNSPECIFIED" {
			continue
		}
		code := codeOf.FindStringSubmatch(m[1])
		if code == nil {
			t.Fatalf("the comment of %s names no status code", m[2])
		}
		p := promise{code: code[1]}
		for _, name := range quoted.FindAllStringSubmatch(m[1], -1) {
			p.metadata = append(p.metadata, name[1])
		}
		all[m[2]] = p
	}
	return all
}

// provocations produce every reason there is.
var provocations = map[string]func(c *conversation) error{
	"INVALID_REQUEST": func(c *conversation) error {
		_, _, err := c.tryStart("")
		return err
	},
	"INVALID_INPUT": func(c *conversation) error {
		_, _, err := c.tryStart("r1", withMessages(`{"id":"hunter2","role":"user"}`))
		return err
	},
	"PROTOCOL_VIOLATION": func(c *conversation) error {
		c.open("r1")
		_, err := c.tryAppend(textDelta("m", secret))
		return err
	},
	"LIMIT_EXCEEDED": func(c *conversation) error {
		c.open("r1")
		_, err := c.tryAppend(textStart("m"), textDelta("m", strings.Repeat(secret, 20_000)))
		return err
	},
	"VERSION_NOT_FOUND": func(c *conversation) error {
		c.record("r1")
		_, _, err := contextAt(c, versionMoment(99))
		return err
	},
	"THREAD_NOT_FOUND": func(c *conversation) error {
		_, _, err := getContext(c.t.Context(), c.client, "nobody")
		return err
	},
	"THREAD_EXISTS": func(c *conversation) error {
		c.record("r1")
		_, err := c.client.CreateThread(c.t.Context(), &threadsvcv1.CreateThreadRequest{Thread: threadName("t1")})
		return err
	},
	"RUN_NOT_FOUND": func(c *conversation) error {
		c.record("r1")
		_, err := appendBatch(c.t.Context(), c.client, handle("t1", "r2", 1), 0, textStart("m"))
		return err
	},
	"RUN_EXISTS": func(c *conversation) error {
		c.record("r1")
		_, _, err := c.tryStart("r1", withMessages(userMessage("u1", secret)))
		return err
	},
	"RUN_ACTIVE": func(c *conversation) error {
		c.open("r1")
		_, _, err := c.tryStart("r2")
		return err
	},
	"RUN_CLOSED": func(c *conversation) error {
		c.open("r1")
		old := c.run
		c.start("r2", withPolicy(takeOver))
		_, err := appendBatch(c.t.Context(), c.client, old, 1, textStart("m"))
		return err
	},
	"LEASE_LOST": func(c *conversation) error {
		c.open("r1")
		_, err := appendBatch(c.t.Context(), c.client, handle("t1", "r1", 99), 1, textStart("m"))
		return err
	},
	"OFFSET_GAP": func(c *conversation) error {
		c.open("r1")
		_, err := appendBatch(c.t.Context(), c.client, c.run, 5, textStart("m"))
		return err
	},
	"OFFSET_MISMATCH": func(c *conversation) error {
		c.open("r1")
		_, err := appendBatch(c.t.Context(), c.client, c.run, 0, textStart("m"))
		return err
	},
	"VERSION_MISMATCH": func(c *conversation) error {
		c.record("r1")
		_, _, err := c.tryStart("r2", func(r *threadsvcv1.StartRunRequest) { r.ExpectedVersion = new(uint64) })
		return err
	},
	"INTERRUPTS_OPEN": func(c *conversation) error {
		c.open("r1", interrupted("t1", "r1", "i1"))
		_, _, err := c.tryStart("r2")
		return err
	},
	"INTERRUPTS_EXPIRED": func(c *conversation) error {
		c.open("r1", runFinished("t1", "r1", "outcome", `{"type":"interrupt","interrupts":[{"id":"i1","reason":"x","expiresAt":"2001-01-01T00:00:00Z"}]}`))
		_, _, err := c.tryStart("r2", withResume(`[{"interruptId":"i1","status":"resolved"}]`))
		return err
	},
	"INTERRUPTS_UNKNOWN": func(c *conversation) error {
		_, _, err := c.tryStart("r2", withResume(`[{"interruptId":"i1","status":"resolved","payload":"hunter2"}]`))
		return err
	},
	"TOOL_CALLS_UNANSWERED": func(c *conversation) error {
		c.open("r1", callStart("c1"), callEnd("c1"), runFinished("t1", "r1"))
		_, _, err := c.tryStart("r2")
		return err
	},
	"CONTENTION": func(c *conversation) error {
		contended := startNode(c.t, contendedStore{openStore(c.t, storetest.Database(c.t))}, service.Config{})
		_, _, err := startRun(c.t.Context(), dial(c.t, contended.address), c.request("r1"))
		return err
	},
	"DATABASE_UNAVAILABLE": func(c *conversation) error {
		url := storetest.Database(c.t)
		client := serveDatabase(c.t, url, service.Config{})
		takeAway(c.t.(*testing.T), url)
		_, _, err := startRun(c.t.Context(), client, c.request("r1"))
		return err
	},
	"SHUTTING_DOWN": func(c *conversation) error {
		server := startNode(c.t, openStore(c.t, storetest.Database(c.t)), service.Config{})
		server.service.Drain()
		_, err := appendBatch(c.t.Context(), dial(c.t, server.address), handle("t1", "r1", 0), 0, runStarted("t1", "r1"))
		return err
	},
	"WAIT_QUEUE_FULL": func(c *conversation) error {
		c.client = newServer(c.t, service.Config{Waiters: -1})
		c.open("r1")
		_, _, err := startRun(c.t.Context(), c.client, c.request("r2", withPolicy(wait)))
		return err
	},
	"DEADLINE_EXCEEDED": func(c *conversation) error {
		c.open("r1")
		ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Second)
		defer cancel()
		_, _, err := startRun(ctx, c.client, c.request("r2", withPolicy(wait)))
		return err
	},
	"CANCELLED": func(c *conversation) error {
		left := startNode(c.t, leftStore{openStore(c.t, storetest.Database(c.t))}, service.Config{})
		_, _, err := startRun(c.t.Context(), dial(c.t, left.address), c.request("r1"))
		return err
	},
	"READER_TOO_SLOW": func(c *conversation) error {
		node := startNode(c.t, openStore(c.t, storetest.Database(c.t)), service.Config{ReaderTimeout: 100 * time.Millisecond})
		other := converse(c.t, dial(c.t, node.address), "t1")
		other.open("r1", textStart("m"))
		_, err := slowReader(other, node)
		return err
	},
	"THREAD_DELETED": func(c *conversation) error {
		gone := converse(c.t, c.client, "gone")
		gone.record("r1")
		must(c.client.DeleteThread(c.t.Context(), &threadsvcv1.DeleteThreadRequest{Thread: threadName("gone")}))(c.t)
		_, _, err := gone.tryStart("r2")
		return err
	},
	"VERSION_PRUNED": func(c *conversation) error {
		h := newHistorian(c.t, service.Config{})
		h.record("r1")
		h.record("r2")
		h.prune(h.runEnd("r1"))
		_, _, err := readLog(c.t.Context(), h.client, h.thread, 1)
		return err
	},
	"INTERNAL": func(c *conversation) error {
		other, db := ownDatabase(c.t, service.Config{})
		other.record("r1", stateSnapshot(`"hunter2"`))
		execSQL(c.t, db, `UPDATE states SET codec = 4`)
		_, _, err := getContext(c.t.Context(), other.client, "t1")
		return err
	},
}

// contendedStore is a store where somebody else always comes first.
type contendedStore struct{ store.Store }

func (contendedStore) Commit(_ context.Context, commits []*store.Commit) []store.Result {
	results := make([]store.Result, len(commits))
	for i := range results {
		results[i].Err = fmt.Errorf("commit: %w", store.ErrConflict)
	}
	return results
}

// leftStore is a store whose caller is gone when it has loaded a thread.
type leftStore struct{ store.Store }

func (leftStore) Load(context.Context, store.Key) (*store.Loaded, error) {
	return nil, fmt.Errorf("load: %w", context.Canceled)
}

// Every reason of the contract is given, with the status code and the metadata that the contract promises, in few bytes
// and without content; and afterwards the thread takes a run to its end.
func TestEveryReasonIsAsTheContractSays(t *testing.T) {
	t.Parallel()
	contract := promises(t)
	for number, name := range threadsvcv1.ErrorReason_name {
		if name = strings.TrimPrefix(name, "ERROR_REASON_"); number != 0 && (contract[name].code == "" || provocations[name] == nil) {
			t.Errorf("%s: promised %v, provoked %v", name, contract[name], provocations[name] != nil)
		}
	}
	for reason, provoke := range provocations {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			c := converse(t, newServer(t, smallLimits()), "t1")
			err := provoke(c)
			got, meta := reasonOf(err)
			if got != reason {
				t.Fatalf("%v with %q, want %s", err, got, reason)
			}
			want := contract[reason]
			if code := status.Convert(err).Code().String(); !strings.EqualFold(code, strings.NewReplacer("_", "", "CANCELLED", "CANCELED").Replace(want.code)) {
				t.Errorf("status code %s, want %s", code, want.code)
			}
			for _, name := range want.metadata {
				if _, ok := meta[name]; !ok {
					t.Errorf("no %q in %v", name, meta)
				}
			}
			checkError(t, err)
			if run := c.run.GetRunId(); reason == "INTERRUPTS_OPEN" || reason == "INTERRUPTS_EXPIRED" {
				c.start("r2", withResume(`[{"interruptId":"i1","status":"cancelled"}]`))
			} else if run != "" {
				c.offset = 0
			}
			c.stillWorks()
		})
	}
}

// Metadata are cut before they are too long for a status, which travels in headers.
func TestErrorsStayShort(t *testing.T) {
	t.Parallel()
	c := newConversation(t)
	var interrupts []string
	for i := range 500 {
		interrupts = append(interrupts, strings.Repeat("é", 200)+fmt.Sprint(i))
	}
	c.open("r1", interrupted("t1", "r1", interrupts...))
	_, _, err := c.tryStart("r2")
	if reason, meta := reasonOf(err); reason != "INTERRUPTS_OPEN" || !strings.HasSuffix(meta["interrupt_ids"], "…") {
		t.Errorf("%v %.100v", err, meta)
	}
	checkError(t, err)
	c = converse(t, c.client, "t2")
	c.open("r1")
	for i, name := range []string{strings.Repeat("é", 5000), strings.Repeat(`\ud800`, 5000), strings.Repeat(`\u0000`, 5000), `\ud800`, `a/b~c`} {
		_, err := c.tryAppend(`{"type":"CUSTOM","` + name + `":1,"` + name + `":2}`)
		if reason, _ := reasonOf(err); reason != "PROTOCOL_VIOLATION" {
			t.Errorf("%.30s: %v", name, err)
		}
		checkError(t, err)
		c.start(fmt.Sprint("after ", i), withPolicy(takeOver))
		c.append(runStarted("t2", c.run.GetRunId()))
	}
}
