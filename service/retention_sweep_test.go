package service_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// What was said before the cut, and is in the context no more, is in no column of any table; of what is kept by content
// exactly what is referred to is left.
func TestPrunedContentIsNowhere(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{PruneInterval: -1, CheckpointBytes: 1 << 40})
	quiet := storetest.Noise(1, 20_000)
	h.open("run"+canary, textStart("m"+canary), textDelta("m"+canary, canary), textEnd("m"+canary),
		event("FROM_THE_FUTURE", "value", `"`+canary+`"`), callStart("c"+canary),
		event("TOOL_CALL_ARGS", "toolCallId", `"c`+canary+`"`, "delta", `"{\"a\":\"`+canary+`\"}"`), callEnd("c"+canary),
		callResult("res"+canary, "c"+canary, canary), stateSnapshot(`{"a":"`+canary+`","kept":"`+quiet+`","n":1}`))
	h.append(runFinished(h.thread, "run"+canary, "result", `"`+canary+`"`))
	if found := traces(t, h.db, canary); len(found) < 5 {
		t.Fatalf("the canary is in %v only", found)
	}
	h.record("large", stateSnapshot(`{"a":"gone","secret":"`+storetest.Noise(2, 20_000)+`","kept":"`+quiet+`","n":1}`), messagesSnapshot(userMessage("u", "hi")))
	h.record("removes", stateDelta(`[{"op":"remove","path":"/secret"},{"op":"replace","path":"/n","value":2}]`))
	first := h.runEnd("removes")
	h.record("r1", stateSnapshot(`{"kept":"`+quiet+`","n":3}`))
	h.record("r2", stateDelta(`[{"op":"replace","path":"/n","value":4}]`))
	chunks := h.number(`SELECT count(*) FROM contents`)
	if resp := h.prune(first); resp.GetFirstVersion() != first {
		t.Fatalf("%v, want %d", resp, first)
	}
	h.checkGarbage(first)
	if found := traces(t, h.db, canary); len(found) > 0 {
		t.Errorf("the canary is still in %v", found)
	}
	names := func(thread string) []string {
		rows := must(h.db.Query(t.Context(), `SELECT encode(hash, 'hex') FROM contents WHERE thread_key = $1 ORDER BY 1`, keyOf(thread)))(t)
		return must(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
	}
	left := names(h.thread)
	if len(left) == 0 || len(left) >= chunks {
		t.Errorf("%d of %d chunks are left", len(left), chunks)
	}
	file := export(t, h.history, threadName(h.thread))
	must(h.client.DeleteThread(t.Context(), &threadsvcv1.DeleteThreadRequest{Thread: threadName(h.thread)}))(t)
	execSQL(t, h.db, `DELETE FROM tombstones`)
	must(importFile(t.Context(), h.history, threadName(h.thread), file))(t)
	if needed := names(h.thread); !slices.Equal(left, needed) {
		t.Errorf("%d chunks were left, %d are needed", len(left), len(needed))
	}
}

// A document that patches took something out of since is stored anew: what it had is not left in the state's base.
func TestPrunedStateIsNotInItsBase(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{PruneInterval: -1})
	pad := storetest.Noise(1, 3000)
	h.record("r1", stateSnapshot(`{"pad":"`+pad+`","a":"`+canary+`"}`))
	h.record("r2", stateDelta(`[{"op":"remove","path":"/a"}]`))
	h.record("r3", stateDelta(`[{"op":"add","path":"/n","value":3}]`))
	base := func() (version int) {
		return h.number(`SELECT version FROM states WHERE thread_key = $1`, keyOf(h.thread))
	}
	if first := h.runEnd("r2"); uint64(base()) >= first || h.prune(first).GetFirstVersion() != first || uint64(base()) < first {
		t.Errorf("the base is of version %d, the cut of %d", base(), first)
	}
	h.wantState(`{"pad":"` + pad + `","n":3}`)
	h.record("r4", stateDelta(`[{"op":"add","path":"/n","value":4}]`))
	h.wantState(`{"pad":"` + pad + `","n":4}`)
	db := openStore(t, h.url)
	t.Cleanup(db.Close)
	if findings := verify(t, db, store.KeyOf("test", h.thread)); len(findings) > 0 {
		t.Error(findings)
	}
}

var errKilled = errors.New("killed")

// dyingStore is a store whose process is killed after a number of steps of pruning, each of which does little.
type dyingStore struct {
	store.Store
	steps atomic.Int64
}

func (d *dyingStore) alive() error {
	if d.steps.Add(-1) < 0 {
		return errKilled
	}
	return nil
}

func (d *dyingStore) PutCut(ctx context.Context, key store.Key, c store.Checkpoint) error {
	return errors.Join(d.Store.PutCut(ctx, key, c), d.alive())
}

func (d *dyingStore) Cut(ctx context.Context, key store.Key, cut store.CutPlace, hash [32]byte) error {
	if err := d.alive(); err != nil {
		return err
	}
	return d.Store.Cut(ctx, key, cut, hash)
}

func (d *dyingStore) Sweep(ctx context.Context, key store.Key, _ int) (bool, error) {
	if err := d.alive(); err != nil {
		return false, err
	}
	return d.Store.Sweep(ctx, key, 3)
}

// Wherever pruning is stopped the thread is whole: what it was before, or what it is to be, with garbage that another server
// removes.
func TestPruningGoesOnAfterAKill(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{CheckpointBytes: 2 << 10, PruneInterval: -1})
	h.converseAtLength()
	h.restate(rand.New(rand.NewPCG(1, 1)))
	db := openStore(t, h.url)
	t.Cleanup(db.Close)
	dying := &dyingStore{Store: openStore(t, h.url)}
	conn := connection(t, startNode(t, dying, service.Config{PruneInterval: -1}).address)
	keeper := threadsvcv1.NewRetentionServiceClient(conn)
	ends, done := h.runs(), false
	for steps := int64(0); !done; steps++ {
		dying.steps.Store(steps)
		before := ends[min(int(steps), len(ends)-3)].GetLastVersion()
		_, err := keeper.PruneThread(t.Context(), &threadsvcv1.PruneThreadRequest{Thread: threadName(h.thread), BeforeVersion: before})
		if (err != nil) != (steps < 2) {
			t.Fatalf("killed after %d steps: %v", steps, err)
		}
		thread := must(h.client.GetThread(t.Context(), &threadsvcv1.GetThreadRequest{Thread: threadName(h.thread)}))(t).GetThread()
		h.forgetBefore(thread.GetFirstVersion())
		h.checkPast(fmt.Sprintf("killed after %d steps", steps))
		if findings := verify(t, db, store.KeyOf("test", h.thread)); len(findings) > 0 {
			t.Fatalf("killed after %d steps: %v", steps, findings)
		}
		file := export(t, h.history, threadName(h.thread))
		if again := export(t, h.history, threadName(h.thread)); !bytes.Equal(file, again) {
			t.Error("two exports differ")
		}
		done = before == ends[len(ends)-3].GetLastVersion()
		if steps == 3 && h.number(`SELECT count(*) FROM prunings`) == 0 {
			t.Fatalf("after %d steps there is no garbage", steps)
		}
	}
	startNode(t, openStore(t, h.url), eager())
	h.waitFor("another server to go on", `SELECT NOT EXISTS (SELECT 1 FROM prunings)`)
	first := h.number(`SELECT first_version FROM threads WHERE thread_key = $1`, keyOf(h.thread))
	h.checkGarbage(uint64(first))
	h.checkPast("in the end")
	h.stillWorks()
}

// Many prune one thread on several servers while runs that restate what was pruned are recorded: each cut is one that
// somebody asked for, what is kept is whole, and nobody is refused for any other reason than that a run is active, or that
// others were faster.
func TestManyPrunersAtOnce(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{CheckpointBytes: 2 << 10, PruneInterval: -1})
	db := openStore(t, h.url)
	t.Cleanup(db.Close)
	keepers := []threadsvcv1.RetentionServiceClient{h.keeper}
	conn := connection(t, startNode(t, openStore(t, h.url), eager()).address)
	keepers = append(keepers, threadsvcv1.NewRetentionServiceClient(conn))
	record := func(i int) {
		h.record(fmt.Sprint("r", i), stateSnapshot(fmt.Sprintf(`{"i":%d,"big":"%s"}`, i, storetest.Noise(i%3, 20_000))),
			messagesSnapshot(userMessage("u", storetest.Noise(i%2, 9000))))
	}
	for i := range 4 {
		record(i)
	}
	stop := h.keepPruning(db, keepers)
	for i := range 40 {
		record(i + 4)
		if findings := verify(t, db, store.KeyOf("test", h.thread)); len(findings) > 0 {
			t.Errorf("after run %d: %v", i, findings)
			break
		}
	}
	stop()
	h.wantState(fmt.Sprintf(`{"i":43,"big":"%s"}`, storetest.Noise(43%3, 20_000)))
	record(44)
	record(45)
	h.prune(h.runEnd("r44"))
	h.waitFor("the sweep", `SELECT NOT EXISTS (SELECT 1 FROM prunings)`)
	h.checkGarbage(h.runs()[0].GetFirstVersion() - 1)
	if findings := verify(t, db, store.KeyOf("test", h.thread)); len(findings) > 0 {
		t.Error(findings)
	}
	h.stillWorks()
}

// keepPruning prunes from several places at once until it is told to stop.
func (h *historian) keepPruning(db store.Store, keepers []threadsvcv1.RetentionServiceClient) (stop func()) {
	ctx, cancel := context.WithCancel(h.t.Context())
	var pruners sync.WaitGroup
	for i := range 4 {
		pruners.Go(func() {
			for ctx.Err() == nil {
				head, err := db.Head(h.t.Context(), store.KeyOf("test", h.thread))
				if err != nil {
					h.t.Error(err)
					return
				}
				req := &threadsvcv1.PruneThreadRequest{Thread: threadName(h.thread), BeforeVersion: max(1, head.Version-rand.Uint64N(8))}
				_, err = keepers[i%2].PruneThread(h.t.Context(), req)
				if reason, _ := reasonOf(err); err != nil && reason != "RUN_ACTIVE" && reason != "CONTENTION" && reason != "VERSION_PRUNED" {
					h.t.Errorf("%v %s", err, reason)
				}
			}
		})
	}
	return func() {
		cancel()
		pruners.Wait()
	}
}

// A checkpoint that a log begins with cannot be made again: whatever bit of it is altered is found, and what needs it says
// that it cannot be had, while the present is as it was.
func TestAlteredCutsAreFound(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{PruneInterval: -1})
	for i := range 3 {
		h.record(fmt.Sprint("r", i), append(text(fmt.Sprint("m", i), "some words"), stateSnapshot(`{"big":"`+storetest.Noise(i, 300)+`"}`))...)
	}
	first := h.runEnd("r1")
	h.prune(first)
	db := openStore(t, h.url)
	t.Cleanup(db.Close)
	key := store.KeyOf("test", h.thread)
	for _, sql := range []string{
		`UPDATE checkpoints SET fold = set_byte(fold, 20, get_byte(fold, 20) # 1)`,
		`UPDATE checkpoints SET hash = set_byte(hash, 3, get_byte(hash, 3) # 4)`,
		`UPDATE checkpoints SET log_hash = set_byte(log_hash, 3, get_byte(log_hash, 3) # 4)`,
		`UPDATE threads SET first_hash = set_byte(first_hash, 3, get_byte(first_hash, 3) # 4)`,
		`UPDATE threads SET pruned_runs = 1`,
		`UPDATE threads SET first_version = first_version - 1`,
		`DELETE FROM checkpoints`,
	} {
		execSQL(t, h.db, `CREATE TEMP TABLE c AS SELECT * FROM checkpoints`)
		execSQL(t, h.db, `CREATE TEMP TABLE h AS SELECT first_version, first_hash, pruned_runs FROM threads`)
		execSQL(t, h.db, sql)
		if findings := verify(t, db, key); len(findings) == 0 {
			t.Errorf("%s: nothing is found", sql)
		}
		if _, _, err := contextAt(h.conversation, nil); err != nil {
			t.Errorf("%s: the present: %v", sql, err)
		}
		execSQL(t, h.db, `DELETE FROM checkpoints`)
		execSQL(t, h.db, `INSERT INTO checkpoints SELECT * FROM c`)
		execSQL(t, h.db, `UPDATE threads t SET first_version = h.first_version, first_hash = h.first_hash, pruned_runs = h.pruned_runs FROM h`)
		execSQL(t, h.db, `DROP TABLE c, h`)
	}
	if findings := verify(t, db, key); len(findings) > 0 {
		t.Errorf("restored: %v", findings)
	}
}
