package service_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// countingStore counts whole loads, and the bytes of log read to catch up.
type countingStore struct {
	store.Store
	loads, bytes atomic.Int64
}

func (s *countingStore) Load(ctx context.Context, key store.Key) (*store.Loaded, error) {
	s.loads.Add(1)
	return s.Store.Load(ctx, key)
}

func (s *countingStore) Since(ctx context.Context, key store.Key, version uint64, maxBytes int) (*store.Loaded, error) {
	news, err := s.Store.Since(ctx, key, version, maxBytes)
	if err == nil {
		for _, segment := range news.Tail {
			s.bytes.Add(int64(len(segment.Entries)))
		}
	}
	return news, err
}

// alternating are two servers on a thread with a large context, of which each has seen all.
func alternating(t *testing.T, url string, cfg service.Config) ([2]*conversation, [2]*countingStore) {
	t.Helper()
	var sides [2]*conversation
	var stores [2]*countingStore
	for i := range sides {
		stores[i] = &countingStore{Store: openStore(t, url)}
		sides[i] = converse(t, dial(t, startNode(t, stores[i], cfg).address), "t1")
	}
	large := strings.Repeat("x", 100_000)
	sides[0].record("large", append(text("m", large), stateSnapshot(`{"n":0,"large":"`+large+`"}`))...)
	sides[1].record("larger", text("m2", large)...)
	return sides, stores
}

// Servers that write a thread in turn read what the other wrote, and not the whole thread.
func TestServersThatAlternateReadWhatTheyMiss(t *testing.T) {
	t.Parallel()
	sides, stores := alternating(t, storetest.Database(t), service.Config{})
	sides[0].record("small")
	before := [2]int64{stores[0].loads.Load(), stores[1].loads.Load()}
	seen := [2]int64{stores[0].bytes.Load(), stores[1].bytes.Load()}
	const turns = 20
	for i := range turns { // a run each
		c := sides[i%2]
		run := fmt.Sprint("r", i)
		c.start(run, withMessages(userMessage("u"+run, "hello")), withStatePatch(operations(replace("/n", fmt.Sprint(i)))))
		c.append(append([]string{runStarted("t1", run)}, text("a"+run, "hi")...)...)
		c.append(runFinished("t1", run))
	}
	sides[0].open("shared", textStart("together"))
	for i := range turns { // and one run of both, by offsets
		sides[1-i%2].run, sides[1-i%2].offset = sides[0].run, uint64(i)+2
		sides[1-i%2].append(textDelta("together", "x"))
	}
	for i, s := range stores {
		loads, bytes := s.loads.Load()-before[i], s.bytes.Load()-seen[i]
		t.Logf("server %d: %d whole loads, %d bytes of log", i, loads, bytes)
		if loads > 3 || bytes == 0 || bytes > 50_000 {
			t.Errorf("server %d: %d whole loads and %d bytes of log in %d turns", i, loads, bytes, turns)
		}
	}
}

// What a server knows by catching up is what one knows that loads the thread, through folds, marks and runs of all kinds.
func TestCaughtUpThreadIsTheLoadedOne(t *testing.T) {
	t.Parallel()
	for name, foldBytes := range map[string]int{"folds at the ends": 0, "folds all the time": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := storetest.Database(t)
			sides, stores := alternating(t, url, service.Config{FoldBytes: foldBytes})
			steps := []func(c *conversation){
				func(c *conversation) {
					c.open("r1", stateDelta(operations(add("/list", "[]"))), callStart("c1"), callEnd("c1"))
				},
				func(c *conversation) {
					c.append(stateDelta(operations(add("/list/-", "1"))), callResult("x", "c1", "done"))
				},
				func(c *conversation) { c.append(runFinished("t1", "r1")) },
				func(c *conversation) {
					c.start("r2")
					c.append(runStarted("t1", "r2"), stateDelta(operations(add("/list/-", "2"))))
				},
				func(c *conversation) { c.end("r2", "") },
				func(c *conversation) { c.start("r3", fromLastCompleted) },
				func(c *conversation) { c.append(runStarted("t1", "r3"), messagesSnapshot(userMessage("u9", "only"))) },
				func(c *conversation) { c.append(interrupted("t1", "r3", "i1:c1")) },
				func(c *conversation) { c.end("r3", "") },
				func(c *conversation) {
					c.run, c.offset = handle("t1", "r4", 0), 0
					c.append(runStarted("t1", "r4"), stateDelta(operations(add("/list/-", "4"))))
				},
				func(c *conversation) { c.append(runFinished("t1", "r4"), runStarted("t1", "r5")) },
				func(c *conversation) {
					c.append(textStart("m5"), textDelta("m5", "end"), textEnd("m5"), runFinished("t1", "r5"))
				},
			}
			before := stores[0].loads.Load() + stores[1].loads.Load()
			for i, step := range steps {
				c, other := sides[i%2], sides[1-i%2]
				c.run, c.offset = other.run, other.offset
				if i == 0 {
					c.run = nil
				}
				step(c)
			}
			t.Logf("%d whole loads in %d steps", stores[0].loads.Load()+stores[1].loads.Load()-before, len(steps))
			sides[0].record("last", text("last", "x")...)
			third := converse(t, serveDatabase(t, url, service.Config{}), "t1")
			for _, side := range sides {
				info, input := side.info()
				wantInfo, want := third.info()
				if string(input.text) != string(want.text) || string(info.GetLogHash()) != string(wantInfo.GetLogHash()) {
					t.Errorf("%.300s and %.300s", input.text[len(input.text)-300:], want.text[len(want.text)-300:])
				}
			}
			wantFoldOfLog(t, third, url)
			sides[1].stillWorks()
			wantFoldOfLog(t, third, url)
		})
	}
}

// A thread that was erased and made anew is not what the other server remembers, whatever its versions are.
func TestThreadMadeAnewIsNotCaughtUpWith(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	sides, _ := alternating(t, url, service.Config{})
	sides[0].record("r1")
	must(sides[1].client.DeleteThread(t.Context(), &threadsvcv1.DeleteThreadRequest{Thread: threadName("t1")}))(t)
	sides[1].recreate()
	for i := range 10 {
		sides[1].record(fmt.Sprint("new", i), text(fmt.Sprint("m", i), "new")...)
	}
	sides[0].record("r2", text("m", "after")...)
	if got := sides[0].context().Messages; len(got) != 11 {
		t.Errorf("messages %q, want those of the new thread", outline(got))
	}
	wantFoldOfLog(t, sides[1], url)
}

// wantFoldOfLog fails unless what is stored of a thread, and what the service tells, is what its log amounts to.
func wantFoldOfLog(t *testing.T, c *conversation, url string) {
	t.Helper()
	db := openStore(t, url)
	defer db.Close()
	record, err := readRecord(t.Context(), c.client, db, c.thread)
	if err != nil {
		t.Fatal(err)
	}
	check := &checker{thread: &loadThread{id: c.thread}, record: record}
	check.checkVersions()
	check.checkFold(check.replay())
	for _, f := range check.findings {
		t.Errorf("%v", f)
	}
}
