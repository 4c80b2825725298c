package service_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// checkShare reads in one snapshot what checkpoints and log take.
func (h *historian) checkShare(when string) {
	h.t.Helper()
	over := h.number(`
SELECT (k.stored - 2 * (s.stored + c.stored - k.chunks))::bigint FROM
    (SELECT coalesce(sum(stored_size), 0) AS stored, coalesce(sum(stored_size - octet_length(fold)), 0) AS chunks FROM checkpoints) k,
    (SELECT coalesce(sum(octet_length(entries)), 0) AS stored FROM log_segments) s,
    (SELECT coalesce(sum(octet_length(body)), 0) AS stored FROM contents) c`)
	if over > 0 {
		h.t.Errorf("%s: checkpoints take %d bytes more than twice the log", when, over)
	}
}

// checkVerified verifies the thread, which must be as its log says.
func (h *historian) checkVerified(when string) {
	h.t.Helper()
	_, findings, err := h.verifyThread(h.t.Context())
	if err != nil || len(findings) > 0 {
		h.t.Errorf("%s: findings %v, %v", when, findings, err)
	}
}

// A run that goes on for long has checkpoints meanwhile, and others once it is over and merged. At no time do they take more
// than twice what the log does, every version stays what it was, and nothing is found to be wrong.
func TestALongRunHasCheckpointsMeanwhile(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{CheckpointBytes: 2 << 10, FoldBytes: 4 << 10})
	h.record("r0", stateSnapshot(`{"v0":"`+storetest.Noise(0, 3000)+`"}`))
	h.open("r1")
	found := func() bool {
		return h.number(`SELECT count(*) FROM checkpoints c JOIN runs r ON r.status = 1 AND c.version > r.first_version`) > 0
	}
	for i, deadline := 0, time.Now().Add(time.Minute); i < 60 || !found(); i++ {
		h.append(stateDelta(fmt.Sprintf(`[{"op":"add","path":"/v%d","value":%q}]`, i%4, storetest.Noise(i, 700))))
		if i%10 == 0 && len(h.was) < 20 {
			h.look()
		}
		h.checkShare("while the run goes on")
		if time.Now().After(deadline) {
			t.Fatal("a long run has no checkpoints")
		}
	}
	h.checkPast("while the run goes on")
	h.checkVerified("while the run goes on")
	h.append(runFinished(h.thread, "r1"))
	h.look()
	for merged := false; !merged; time.Sleep(time.Millisecond) {
		merged = h.number(`SELECT count(*) FROM runs WHERE NOT merged`) == 0
		h.checkShare("while it is merged")
	}
	h.waitFor("checkpoints of the run that is over", `SELECT EXISTS (SELECT 1 FROM checkpoints c JOIN runs r ON r.run_id = 'r1' AND c.version > r.first_version)`)
	h.checkPast("once it is over")
	h.checkVerified("once it is over")
	h.checkShare("once it is over")
}
