package service

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/threadsvc/threadsvc/agui"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
)

// started is a run that was opened: what the caller is told, and the RunAgentInput.
type started struct {
	start *threadsvcv1.RunStart
	input []byte
}

// StartRun implements the contract.
func (s *Service) StartRun(req *threadsvcv1.StartRunRequest, stream threadsvcv1.ThreadService_StartRunServer) error {
	run, err := s.startRun(stream.Context(), req)
	if err != nil {
		return statusOf(err, s.cfg.Logger).Err()
	}
	first := &threadsvcv1.StartRunResponse{Part: &threadsvcv1.StartRunResponse_Start{Start: run.start}}
	if err := stream.Send(first); err != nil {
		return err
	}
	return sendChunks(run.input, func(chunk []byte) error {
		return stream.Send(&threadsvcv1.StartRunResponse{Part: &threadsvcv1.StartRunResponse_InputChunk{InputChunk: chunk}})
	})
}

func (s *Service) startRun(ctx context.Context, req *threadsvcv1.StartRunRequest) (*started, error) {
	key, err := threadKey(req.GetThread(), "thread")
	if err != nil {
		return nil, err
	}
	if err := checkStart(req); err != nil {
		return nil, err
	}
	input, warnings, err := s.decodeStart(req)
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		run, commit, err := s.tryStart(ctx, key, req, input, warnings)
		if err == nil && commit != nil {
			if err = await(ctx, commit); err == nil {
				err = commit.result.Err
				run.start.Lease.ExpiresAt = timestamp(commit.result.LeaseExpiresAt)
			}
		}
		retry := errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrDuplicate)
		if !retry || attempt == maxAttempts {
			return run, err
		}
	}
}

func checkStart(req *threadsvcv1.StartRunRequest) error {
	if err := checkID("run_id", req.GetRunId()); err != nil {
		return err
	}
	if err := checkTenant("parent_run_id", req.GetParentRunId()); err != nil {
		return err
	}
	if ttl := req.GetLeaseTtl(); ttl != nil && (ttl.CheckValid() != nil || ttl.AsDuration() < 0) {
		return errField("lease_ttl", "must be a duration of at least 0")
	}
	if _, known := threadsvcv1.ActiveRunPolicy_name[int32(req.GetPolicy())]; !known {
		return errField("policy", "is not a policy of this server")
	}
	if _, known := threadsvcv1.UnansweredToolCalls_name[int32(req.GetUnansweredToolCalls())]; !known {
		return errField("unanswered_tool_calls", "is not a choice of this server")
	}
	return nil
}

// decodeStart checks what the run is started with, by the rules for a RunAgentInput.
func (s *Service) decodeStart(req *threadsvcv1.StartRunRequest) (agui.Event, []agui.Warning, error) {
	input := inputText{depth: s.cfg.Limits.Depth}
	input.string("threadId", req.GetThread().GetThreadId())
	input.string("runId", req.GetRunId())
	input.string("parentRunId", req.GetParentRunId())
	input.json("state", req.GetState())
	input.list("messages", req.GetMessages())
	input.json("tools", req.GetTools())
	input.json("context", req.GetContext())
	input.json("forwardedProps", req.GetForwardedProps())
	input.json("resume", req.GetResume())
	return s.decodeInput(&input)
}

func (s *Service) decodeInput(input *inputText) (agui.Event, []agui.Warning, error) {
	if input.wrong != nil {
		return agui.Event{}, nil, errInput(input.wrong)
	}
	limits := s.cfg.Limits
	limits.Event = limits.Context // a run input carries many messages; the request's size bounds it
	decoded, warnings, v := agui.DecodeInput(input.close(), limits)
	if v != nil {
		return agui.Event{}, nil, errInput(v)
	}
	return decoded, warnings, nil
}

// tryStart opens the run and queues its commit, which is nil if the run had been started before.
func (s *Service) tryStart(ctx context.Context, key store.Key, req *threadsvcv1.StartRunRequest, input agui.Event, warnings []agui.Warning) (*started, *pending, error) {
	l, err := s.acquireSettled(ctx, key, req.GetThread().GetThreadId())
	if err != nil {
		return nil, nil, err
	}
	defer s.letGo(l)
	before := l.head
	run, p, err := s.openRun(ctx, l, req, input, warnings)
	if refused := (*refusal)(nil); errors.As(err, &refused) {
		if stale := s.checkCurrent(ctx, l, &before); stale != nil {
			err = stale
		}
	}
	return run, p, err
}

// openRun opens the run on a thread whose lock is held, or refuses.
func (s *Service) openRun(ctx context.Context, l *live, req *threadsvcv1.StartRunRequest, input agui.Event, warnings []agui.Warning) (*started, *pending, error) {
	hash := inputHash(req)
	if l.exists {
		run, err := s.startedBefore(ctx, l, req, hash)
		if run != nil || err != nil {
			return run, nil, err
		}
	}
	if want := req.ExpectedVersion; want != nil && *want != l.head.Version {
		return nil, nil, errVersion(l.head.Version)
	}
	if err := s.closeActive(ctx, l, req.GetPolicy()); err != nil {
		return nil, nil, err
	}
	applied, err := l.thread.Begin(agui.Start{
		Input: input, StatePatch: req.GetStatePatch(), Now: time.Now(),
		AllowUnanswered: req.GetUnansweredToolCalls() > threadsvcv1.UnansweredToolCalls_UNANSWERED_TOOL_CALLS_REFUSE,
	})
	if err != nil {
		l.abandon(store.ErrConflict)
		s.cache.drop(l)
		return nil, nil, errInput(err)
	}
	applied.Warnings = warnings
	p := s.begin(l, req, &applied, hash)
	return describeStart(l, req, &applied), p, nil
}

func errVersion(version uint64) *refusal {
	return refuse(threadsvcv1.ErrorReason_ERROR_REASON_VERSION_MISMATCH, "the thread is not at the expected version", "version", number(version))
}

// closeActive makes way for a new run: an active one whose lease has expired, or that is to be taken over, is closed.
func (s *Service) closeActive(ctx context.Context, l *live, policy threadsvcv1.ActiveRunPolicy) error {
	if !l.exists || !l.thread.Running() {
		return nil
	}
	if policy == threadsvcv1.ActiveRunPolicy_ACTIVE_RUN_POLICY_TAKE_OVER {
		s.truncate(l, agui.TakenOver)
		return nil
	}
	return s.closeExpired(ctx, l)
}

// begin queues an announced run: its input, its row, its lease.
func (s *Service) begin(l *live, req *threadsvcv1.StartRunRequest, applied *agui.Applied, hash [32]byte) *pending {
	p := s.pend(l)
	if !l.exists {
		p.commit.Create = &store.NewThread{Tenant: req.GetThread().GetTenant(), ThreadID: req.GetThread().GetThreadId()}
		l.exists = true
	}
	l.head.Fence++
	l.head.StreamID, l.head.NextOffset, l.recorded = req.GetRunId(), 0, false
	l.head.LeaseTTL = s.leaseOf(req.GetLeaseTtl().AsDuration())
	l.openRun(p, &store.Run{
		RunID: req.GetRunId(), ParentRunID: req.GetParentRunId(), InputHash: hash, FirstVersion: l.head.Version + 1,
	})
	l.add(p, applied, 0, 0)
	l.seal(p)
	return p
}

// describeStart is what the caller is told of a run whose input is the thread's last entry.
func describeStart(l *live, req *threadsvcv1.StartRunRequest, applied *agui.Applied) *started {
	repair := req.GetUnansweredToolCalls() == threadsvcv1.UnansweredToolCalls_UNANSWERED_TOOL_CALLS_REPAIR
	run := startOf(l.thread, repair)
	run.start.Lease = &threadsvcv1.Lease{FencingToken: l.head.Fence}
	run.start.Warnings = appendWarnings(nil, applied.Warnings, 0, req.GetRunId(), l.head.Version)
	return run
}

func startOf(thread *agui.Thread, repair bool) *started {
	input := thread.RunInput(repair)
	return &started{input: input.Text, start: &threadsvcv1.RunStart{
		Version:                     thread.Version(),
		PendingToolCalls:            thread.PendingToolCalls(),
		RepairedToolCalls:           input.Repaired,
		InputSize:                   uint64(len(input.Text)),
		StateTouchedByIncompleteRun: thread.TouchedByIncompleteRun(),
	}}
}

// startedBefore answers a request for a run that exists: the same input gives the same run again. It returns nil for a
// run that is new.
func (s *Service) startedBefore(ctx context.Context, l *live, req *threadsvcv1.StartRunRequest, hash [32]byte) (*started, error) {
	storeCtx, cancel := s.storeContext(ctx)
	defer cancel()
	run, err := s.store.Run(storeCtx, l.key, req.GetRunId())
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if run.InputHash != hash {
		return nil, refuse(threadsvcv1.ErrorReason_ERROR_REASON_RUN_EXISTS, "the run id was used before with another input", "status", runStatusName(run.Status))
	}
	thread, err := s.threadAt(ctx, l, run.FirstVersion)
	if err != nil {
		return nil, err
	}
	repair := req.GetUnansweredToolCalls() == threadsvcv1.UnansweredToolCalls_UNANSWERED_TOOL_CALLS_REPAIR
	again := startOf(thread, repair)
	again.start.RepeatedRequest = true
	again.start.Lease = &threadsvcv1.Lease{FencingToken: run.Fence}
	if l.head.Fence == run.Fence {
		again.start.Lease.ExpiresAt = timestamp(l.head.LeaseExpiresAt)
	}
	return again, nil
}

// threadAt returns the thread as it was at an earlier version. It reads the log up to there.
func (s *Service) threadAt(ctx context.Context, l *live, version uint64) (*agui.Thread, error) {
	if l.head.Version == version {
		return l.thread, nil
	}
	thread := agui.NewThread(l.head.ThreadID, s.cfg.Limits)
	for thread.Version() < version {
		storeCtx, cancel := s.storeContext(ctx)
		segments, err := s.store.Log(storeCtx, l.key, thread.Version()+1, logPage)
		cancel()
		if err != nil {
			return nil, err
		}
		if len(segments) == 0 {
			return nil, fmt.Errorf("service: the log of %s ends at version %d, before %d", l.key, thread.Version(), version)
		}
		for i := range segments {
			replaySegment(thread, &segments[i], version)
		}
	}
	return thread, nil
}

// replaySegment replays the entries of a segment up to a version.
func replaySegment(thread *agui.Thread, segment *store.Segment, version uint64) {
	entries, _ := agui.DecodeEntries(segment.Entries)
	for i := range entries {
		if thread.Version() < version {
			_ = thread.Replay(&entries[i], entries[i].Append(nil))
		}
	}
	thread.Skip(min(segment.LastVersion, version)) // what cannot be read is passed over
}

// inputHash identifies what a run is started with; how it is to be started does not count.
func inputHash(req *threadsvcv1.StartRunRequest) [32]byte {
	what := proto.Clone(req).(*threadsvcv1.StartRunRequest)
	what.Policy, what.UnansweredToolCalls, what.ExpectedVersion, what.LeaseTtl = 0, 0, nil, nil
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(what)
	if err != nil { // cannot happen: the request was just unmarshalled
		panic(fmt.Sprintf("service: marshal request: %v", err))
	}
	return sha256.Sum256(append([]byte("StartRun\x00"), text...))
}

// inputText writes the text of a RunAgentInput from the fields of a request; absent ones are left out. Each value has to be
// one JSON value by itself, or it could bring members of its own.
type inputText struct {
	depth int // of nesting that values may have
	text  []byte
	wrong *agui.Violation // the first value that is not one
}

func (w *inputText) check(path string, value []byte) {
	var v *agui.Violation
	if w.wrong == nil && errors.As(agui.CheckJSON(value, w.depth), &v) {
		w.wrong = &agui.Violation{Code: v.Code, Path: path, Detail: v.Detail}
	}
}

func (w *inputText) name(name string) {
	separator := byte(',')
	if len(w.text) == 0 {
		separator = '{'
	}
	w.text = append(append(w.text, separator, '"'), name...)
	w.text = append(w.text, '"', ':')
}

func (w *inputText) string(name, value string) {
	if value != "" {
		text, _ := json.Marshal(value)
		w.name(name)
		w.text = append(w.text, text...)
	}
}

func (w *inputText) json(name string, value []byte) {
	if len(value) > 0 {
		w.check("/"+name, value)
		w.name(name)
		w.text = append(w.text, value...)
	}
}

func (w *inputText) list(name string, values [][]byte) {
	if len(values) == 0 {
		return
	}
	w.name(name)
	for i, value := range values {
		w.check(fmt.Sprintf("/%s/%d", name, i), value)
		separator := byte(',')
		if i == 0 {
			separator = '['
		}
		w.text = append(append(w.text, separator), value...)
	}
	w.text = append(w.text, ']')
}

func (w *inputText) close() []byte {
	if len(w.text) == 0 {
		return []byte("{}")
	}
	return append(w.text, '}')
}
