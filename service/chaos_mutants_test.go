package service_test

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// soundChaos is what is known of a thread with two runs, the second of which was taken over in its midst by a third.
func soundChaos() *chaosRecord {
	r := &chaosRecord{thread: &loadThread{id: "thread"}}
	for i := range 3 {
		id := fmt.Sprintf("r%d", i+1)
		r.thread.streams = append(r.thread.streams, &sentStream{id: id, token: uint64(i + 1)})
		r.add(id, 2, `{}`)
		r.add(id, 1, `{"type":"RUN_STARTED"}`)
		if id == "r2" {
			r.add(id, 3, `{"type":"RUN_TRUNCATED","runId":"r2"}`)
			r.runs = append(r.runs, &threadsvcv1.Run{RunId: id, Status: threadsvcv1.RunStatus_RUN_STATUS_TRUNCATED})
			continue
		}
		r.add(id, 1, `{"type":"RUN_FINISHED"}`)
		r.runs = append(r.runs, &threadsvcv1.Run{RunId: id, Status: threadsvcv1.RunStatus_RUN_STATUS_FINISHED})
	}
	var seen []seenEntry
	for _, e := range r.entries {
		seen = append(seen, seenEntry{e.GetVersion(), sha256.Sum256(e.GetPayload())})
	}
	r.tails = [][]seenEntry{seen}
	return r
}

func (r *chaosRecord) add(run string, kind threadsvcv1.EntryKind, payload string) {
	r.entries = append(r.entries, &threadsvcv1.LogEntry{Version: uint64(len(r.entries) + 1), RunId: run, Kind: kind, Payload: []byte(payload)})
}

func TestChaosCheckerAcceptsSoundThreads(t *testing.T) {
	t.Parallel()
	if findings := checkChaos(soundChaos()); len(findings) > 0 {
		t.Error(findings)
	}
}

// TestChaosCheckerFindsBugs gives the checker what services with one bug each would leave behind.
func TestChaosCheckerFindsBugs(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		want   findingKind
		change func(r *chaosRecord)
	}{
		{"no fence check", stale, func(r *chaosRecord) { r.add("r2", 1, `{"type":"CUSTOM"}`) }},
		{"two active runs", interleaved, func(r *chaosRecord) { r.entries[4].RunId, r.entries[7].RunId = "r3", "r2" }},
		{"token granted again", stale, func(r *chaosRecord) { r.thread.streams[1].token = 4 }},
		{"tail before commit", tailWrong, func(r *chaosRecord) {
			r.tails[0] = append(r.tails[0], seenEntry{version: uint64(len(r.entries) + 1)})
		}},
		{"entry changed after it was shown", tailWrong, func(r *chaosRecord) { r.entries[2].Payload = []byte(`{"type":"RUN_FINISHED" }`) }},
		{"tail twice", tailWrong, func(r *chaosRecord) { r.tails[0] = slices.Insert(r.tails[0], 3, r.tails[0][2]) }},
		{"tail out of order", tailWrong, func(r *chaosRecord) { r.tails[0][3], r.tails[0][4] = r.tails[0][4], r.tails[0][3] }},
		{"tail with a gap", tailWrong, func(r *chaosRecord) { r.tails[0] = slices.Delete(r.tails[0], 3, 4) }},
		{"tail that stops", tailWrong, func(r *chaosRecord) { r.tails[0] = r.tails[0][:5] }},
		{"gap", changed, func(r *chaosRecord) { r.entries = slices.Delete(r.entries, 3, 4) }},
		{"version twice", changed, func(r *chaosRecord) { r.entries = slices.Insert(r.entries, 3, r.entries[3]) }},
		{"truncated run finished", miscalled, func(r *chaosRecord) { r.runs[1].Status = threadsvcv1.RunStatus_RUN_STATUS_FINISHED }},
		{"truncated run failed", miscalled, func(r *chaosRecord) { r.runs[1].Status = threadsvcv1.RunStatus_RUN_STATUS_FAILED }},
		{"finished run without its end", miscalled, func(r *chaosRecord) { r.entries[2].Payload = []byte(`{"type":"CUSTOM"}`) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := soundChaos()
			test.change(r)
			wantFinding(t, 0, test.want, checkChaos(r))
		})
	}
}
