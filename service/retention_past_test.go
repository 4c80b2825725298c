package service_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/threadsvc/threadsvc/agui"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// restate has runs that restate large states and messages, of which most stays the same, and rewinds in between.
func (h *historian) restate(random *rand.Rand) {
	h.t.Helper()
	for i := range 5 + random.IntN(4) {
		run := fmt.Sprint("large", i)
		h.start(run, withUnanswered(allow))
		h.each(runStarted(h.thread, run))
		if random.IntN(3) > 0 {
			h.each(stateSnapshot(`{"big":"` + storetest.Noise(random.IntN(2), 20_000) + `","i":` + fmt.Sprint(i) + `}`))
		}
		if random.IntN(3) > 0 {
			h.each(messagesSnapshot(userMessage("u", storetest.Noise(random.IntN(3), 9000)), userMessage("v", fmt.Sprint(i))))
		}
		h.each(event("FROM_THE_FUTURE", "value", `1`), runFinished(h.thread, run))
		if random.IntN(3) == 0 {
			to := versionMoment(h.was[len(h.was)-1-random.IntN(4)].info.GetVersion())
			must(h.history.RewindThread(h.t.Context(), &threadsvcv1.RewindThreadRequest{Thread: threadName(h.thread), To: to}))(h.t)
			h.look()
		}
	}
}

// forgetBefore leaves out what was seen before a version, and checks that it cannot be read.
func (h *historian) forgetBefore(first uint64) {
	h.t.Helper()
	h.was = slices.DeleteFunc(h.was, func(was seen) bool {
		if was.info.GetVersion() >= first {
			return false
		}
		_, _, err := contextAt(h.conversation, versionMoment(was.info.GetVersion()))
		wantReason(h.t, err, codes.OutOfRange, "VERSION_PRUNED")
		return true
	})
}

// Whatever is pruned, wherever the cut is: the context, the log after the cut, and every version from it on are what they
// were, on a server that has the thread in memory as on one that does not; nothing is found by verifying; and what is left
// can be exported, imported, forked, rewound and gone on with.
func TestPrunedThreadsAreWhatTheyWere(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 5))
			h := newHistorian(t, service.Config{CheckpointBytes: 2 << 10, PruneInterval: -1})
			h.converseAtLength()
			h.restate(random)
			if seed%2 == 0 {
				h.settle()
			}
			db := openStore(t, h.url)
			t.Cleanup(db.Close)
			first := h.pruneAtRandom(random, db)
			h.checkGarbage(first)
			fresh := converse(t, dial(t, startNode(t, openStore(t, h.url), service.Config{PruneInterval: -1}).address), h.thread)
			here := h.conversation
			h.conversation = fresh
			h.checkPast("on another server")
			h.conversation = here
			h.checkCopies(db, first)
			h.stillWorks()
			if findings := verify(t, db, store.KeyOf("test", h.thread)); len(findings) > 0 {
				t.Errorf("afterwards: %v", findings)
			}
		})
	}
}

// pruneAtRandom prunes three times, checks after each what is left, and returns the first version.
func (h *historian) pruneAtRandom(random *rand.Rand, db store.Store) (first uint64) {
	h.t.Helper()
	log := h.log()
	for range 3 {
		before := first + random.Uint64N(uint64(len(log))-first) + 1
		if first = h.prune(before).GetFirstVersion(); first > before {
			h.t.Fatalf("pruned up to %d, asked for %d", first, before)
		}
		h.forgetBefore(first)
		h.checkPast(fmt.Sprint("pruned up to ", first))
		kept := must2(readLog(h.t.Context(), h.client, h.thread, first+1))(h.t)
		if got, want := fmt.Sprint(kept), fmt.Sprint(log[first:]); got != want {
			h.t.Errorf("the log after version %d is another one", first)
		}
		if findings := verify(h.t, db, store.KeyOf("test", h.thread)); len(findings) > 0 {
			h.t.Fatalf("pruned up to %d: %v", first, findings)
		}
	}
	if first == 0 {
		h.t.Error("nothing was pruned")
	}
	return first
}

// must2 is must for calls with two results, of which the second is left out.
func must2[A, B any](a A, _ B, err error) func(testing.TB) A { return must(a, err) }

// checkGarbage makes sure that nothing is left of what was pruned.
func (h *historian) checkGarbage(first uint64) {
	h.t.Helper()
	for what, sql := range map[string]string{
		"segments":    `SELECT count(*) FROM log_segments WHERE thread_key = $1 AND first_version <= $2`,
		"runs":        `SELECT count(*) FROM runs WHERE thread_key = $1 AND first_version <= $2`,
		"warnings":    `SELECT count(*) FROM warnings WHERE thread_key = $1 AND version <= $2`,
		"checkpoints": `SELECT count(*) FROM checkpoints WHERE thread_key = $1 AND version < $2`,
		"patches":     `SELECT count(*) FROM state_patches WHERE thread_key = $1 AND version <= $2`,
		"older parts": `SELECT count(*) FROM state_patches WHERE thread_key = $1
		                AND NOT EXISTS (SELECT 1 FROM states WHERE thread_key = $1 AND version > $2)`,
		"prunings": `SELECT count(*) FROM prunings WHERE thread_key = $1 AND $2::bigint IS NOT NULL`,
	} {
		if n := h.number(sql, keyOf(h.thread), int64(first)); n > 0 {
			h.t.Errorf("%d %s are left", n, what)
		}
	}
}

// checkCopies exports the thread, imports it elsewhere, and forks it at its first version.
func (h *historian) checkCopies(db store.Store, first uint64) {
	h.t.Helper()
	ctx := h.t.Context()
	file := export(h.t, h.history, threadName(h.thread))
	if head, err := service.VerifyArchive(bytes.NewReader(file), agui.DefaultLimits()); err != nil || head.FirstVersion != first {
		h.t.Errorf("the file: %v %v", head.FirstVersion, err)
	}
	elsewhere := &threadsvcv1.ThreadName{Tenant: "elsewhere", ThreadId: h.thread}
	imported := must(importFile(ctx, h.history, elsewhere, file))(h.t)
	if imported.GetFirstVersion() != first {
		h.t.Errorf("imported %v", imported)
	}
	if findings := verify(h.t, db, store.KeyOf("elsewhere", h.thread)); len(findings) > 0 {
		h.t.Errorf("imported: %v", findings)
	}
	again := export(h.t, h.history, elsewhere)
	must(h.client.DeleteThread(ctx, &threadsvcv1.DeleteThreadRequest{Thread: threadName(h.thread)}))(h.t)
	if n := h.number(`SELECT count(*) FROM contents WHERE thread_key = $1`, keyOf(h.thread)); n > 0 {
		h.t.Errorf("%d contents outlive the thread", n)
	}
	execSQL(h.t, h.db, `DELETE FROM tombstones`)
	must(importFile(ctx, h.history, threadName(h.thread), file))(h.t)
	h.checkPast("imported")
	if third := export(h.t, h.history, threadName(h.thread)); !bytes.Equal(file, third) {
		h.t.Errorf("%d bytes were exported, and then %d others", len(file), len(third))
	}
	if len(again) != len(file)+len("elsewhere")-len("test") {
		h.t.Errorf("%d bytes were exported, and elsewhere %d", len(file), len(again))
	}
	fork := &threadsvcv1.ForkThreadRequest{Source: threadName(h.thread), ThreadId: "fork", Moment: versionMoment(first)}
	must(h.history.ForkThread(ctx, fork))(h.t)
	if findings := verify(h.t, db, store.KeyOf("test", "fork")); len(findings) > 0 {
		h.t.Errorf("fork: %v", findings)
	}
	_, before := h.state(versionMoment(first), "")
	rewind := &threadsvcv1.RewindThreadRequest{Thread: threadName(h.thread), To: versionMoment(first)}
	must(h.history.RewindThread(ctx, rewind))(h.t)
	if _, after := h.state(nil, ""); after != before {
		h.t.Errorf("rewound to the first version the state is %s, want %s", after, before)
	}
}

// A checkpoint after the cut that is damaged costs the replay of the log from the cut, and nothing else.
func TestDamagedCheckpointsAfterTheCut(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{CheckpointBytes: 1 << 10, PruneInterval: -1})
	h.converseAtLength()
	h.settle()
	first := h.prune(h.runEnd("r1")).GetFirstVersion()
	h.forgetBefore(first)
	execSQL(t, h.db, `UPDATE checkpoints SET hash = sha256(hash) WHERE version > $1`, int64(first))
	h.checkPast("with damaged checkpoints")
	execSQL(t, h.db, `UPDATE checkpoints SET hash = sha256(hash) WHERE version = $1`, int64(first))
	_, _, err := contextAt(h.conversation, versionMoment(first))
	wantReason(t, err, codes.Internal, "INTERNAL")
	h.stillWorks()
}

// Changes are listed back to the cut, and the list says so; leaves that had their value there are not blamed on anything.
func TestHistoryEndsAtTheCut(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{PruneInterval: -1})
	h.record("r1", stateSnapshot(`{"a":1,"b":1}`))
	h.record("r2", stateDelta(`[{"op":"replace","path":"/b","value":2}]`))
	h.record("r3", stateDelta(`[{"op":"replace","path":"/a","value":2},{"op":"replace","path":"/a","value":3}]`))
	first := h.runEnd("r2")
	h.prune(first)
	list := func(pointer string, from *threadsvcv1.Moment) *threadsvcv1.ListStateChangesResponse {
		return must(h.history.ListStateChanges(t.Context(), &threadsvcv1.ListStateChangesRequest{Thread: threadName(h.thread), Pointer: pointer, From: from}))(t)
	}
	if resp := list("/a", nil); len(resp.GetChanges()) != 2 || resp.GetPrunedVersion() != first {
		t.Errorf("changes of /a: %v", resp)
	}
	if resp := list("/b", nil); len(resp.GetChanges()) != 0 || resp.GetPrunedVersion() != first {
		t.Errorf("changes of /b: %v", resp)
	}
	if resp := list("/a", versionMoment(first)); len(resp.GetChanges()) != 2 || resp.GetPrunedVersion() != 0 {
		t.Errorf("changes of /a since the cut: %v", resp)
	}
	blamed := must(h.history.BlameState(t.Context(), &threadsvcv1.BlameStateRequest{Thread: threadName(h.thread)}))(t).GetLeaves()
	if len(blamed) != 2 || blamed[0].GetSource() == nil || blamed[0].GetPrunedVersion() != 0 || blamed[1].GetSource() != nil || blamed[1].GetPrunedVersion() != first {
		t.Errorf("blamed %v", blamed)
	}
}
