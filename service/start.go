package service

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/threadsvc/threadsvc/agui"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
)

// started is a run that was opened: what the caller is told, and the RunAgentInput.
type started struct {
	start *threadsvcv1.RunStart
	input []byte
	// again is set for a run that was started before: the rest has still to be made of the log.
	again *store.Run
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
	call := &startCall{key: key, req: req, hash: inputHash(req)}
	if call.input, call.warnings, err = s.decodeStart(req); err != nil {
		return nil, err
	}
	defer func() { call.place.leave() }()
	return s.startUntilDone(ctx, call)
}

// startCall is a call of StartRun.
type startCall struct {
	key      store.Key
	req      *threadsvcv1.StartRunRequest
	hash     [32]byte
	input    agui.Event
	warnings []agui.Warning
	place    *waiter // in the queue of the thread, nil while it has none
}

// startUntilDone starts the run, again and again while others write in between, and waiting if that is the call's policy.
func (s *Service) startUntilDone(ctx context.Context, call *startCall) (*started, error) {
	for attempt := 1; ; attempt++ {
		run, err := s.startOnce(ctx, call)
		holder := activeRun(err)
		switch {
		case holder != nil && call.req.GetPolicy() == threadsvcv1.ActiveRunPolicy_ACTIVE_RUN_POLICY_WAIT:
			attempt, err = 0, s.queueUp(ctx, call, holder)
		case attempt == maxAttempts || !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrDuplicate):
			return run, err
		default:
			err = s.fenceOffActive(ctx, call, attempt)
		}
		if err != nil {
			return nil, err
		}
	}
}

// startOnce starts the run unless somebody else writes in between.
func (s *Service) startOnce(ctx context.Context, call *startCall) (*started, error) {
	run, commit, err := s.tryStart(ctx, call)
	if err != nil {
		return nil, err
	}
	if commit == nil {
		return s.repeat(ctx, call, run)
	}
	if err := commit.outcome(ctx); err != nil {
		return nil, err
	}
	run.start.Lease.ExpiresAt = timestamp(commit.result.LeaseExpiresAt)
	s.waiting.started(call.key, call.req.GetRunId())
	return run, nil
}

// fenceOffActive is fenceOff for a call that takes over, whatever the thread's version is: one that may still be refused for
// the version must leave the run alone.
func (s *Service) fenceOffActive(ctx context.Context, call *startCall, attempt int) error {
	req := call.req
	takesOver := req.GetPolicy() == threadsvcv1.ActiveRunPolicy_ACTIVE_RUN_POLICY_TAKE_OVER && req.ExpectedVersion == nil
	if attempt < patience || !takesOver {
		return nil
	}
	head, err := s.head(ctx, call.key)
	if err != nil || head.ActiveRun == req.GetRunId() {
		return ignoreNotFound(err)
	}
	return s.fenceOff(ctx, call.key, head.ActiveRun, attempt)
}

func ignoreNotFound(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

func checkStart(req *threadsvcv1.StartRunRequest) error {
	if err := checkID("run_id", req.GetRunId()); err != nil {
		return err
	}
	if err := checkOptionalID("parent_run_id", req.GetParentRunId()); err != nil {
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
	if _, known := threadsvcv1.StartingState_name[int32(req.GetStartingState())]; !known {
		return errField("starting_state", "is not a choice of this server")
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
func (s *Service) tryStart(ctx context.Context, call *startCall) (*started, *pending, error) {
	l, err := s.acquireSettled(ctx, call.key, call.req.GetThread().GetThreadId())
	if err != nil {
		return nil, nil, err
	}
	defer s.letGo(l)
	if !l.fresh { // catching up is cheaper than a commit that fails
		if err := s.checkCurrent(ctx, l, &l.head); err != nil {
			return nil, nil, err
		}
	}
	before := l.head
	run, p, err := s.openRun(ctx, l, call)
	if refused := (*refusal)(nil); errors.As(err, &refused) {
		if stale := s.checkCurrent(ctx, l, &before); stale != nil {
			err = stale
		}
	}
	return run, p, err
}

// openRun opens the run on a thread whose lock is held, or refuses.
func (s *Service) openRun(ctx context.Context, l *live, call *startCall) (*started, *pending, error) {
	req, input := call.req, call.input
	if l.exists {
		run, err := s.startedBefore(ctx, l, req, call.hash)
		if run != nil || err != nil {
			return run, nil, err
		}
	}
	if want := req.ExpectedVersion; want != nil && *want != l.head.Version {
		return nil, nil, errVersion(l.head.Version)
	}
	if err := s.makeWay(ctx, l, req.GetPolicy(), call.place); err != nil {
		return nil, nil, err
	}
	now, err := s.interruptTime(ctx, l)
	if err == nil {
		err = s.setStartingState(ctx, l, req, &input)
	}
	if err != nil {
		l.abandon(err)
		s.cache.drop(l)
		return nil, nil, err
	}
	applied, err := l.thread.Begin(agui.Start{
		Input: input, StatePatch: req.GetStatePatch(), Now: now,
		AllowUnanswered: req.GetUnansweredToolCalls() > threadsvcv1.UnansweredToolCalls_UNANSWERED_TOOL_CALLS_REFUSE,
	})
	if err != nil {
		l.abandon(store.ErrConflict)
		s.cache.drop(l)
		return nil, nil, errInput(err)
	}
	applied.Warnings = call.warnings
	p := s.begin(l, req, &applied, call.hash)
	return describeStart(l, req, &applied), p, nil
}

// interruptTime is the time by which the thread's open interrupts expire: the database's, as that of leases is, so that a run
// is not refused by one server and started by another. Without open interrupts it is not asked for.
func (s *Service) interruptTime(ctx context.Context, l *live) (time.Time, error) {
	if len(l.thread.OpenInterrupts()) == 0 {
		return time.Time{}, nil
	}
	ctx, cancel := s.storeContext(ctx)
	defer cancel()
	return s.store.Now(ctx)
}

func errVersion(version uint64) *refusal {
	return refuse(threadsvcv1.ErrorReason_ERROR_REASON_VERSION_MISMATCH, "the thread is not at the expected version", "version", number(version))
}

// makeWay makes way for a new run: an active one whose lease has expired, or that is to be taken over, is closed. Unless it
// takes over, a call that comes while others wait for their turn is refused.
func (s *Service) makeWay(ctx context.Context, l *live, policy threadsvcv1.ActiveRunPolicy, place *waiter) error {
	active := l.exists && l.thread.Running()
	if policy == threadsvcv1.ActiveRunPolicy_ACTIVE_RUN_POLICY_TAKE_OVER {
		if active {
			s.truncate(l, agui.TakenOver)
		}
		return nil
	}
	if next := s.waiting.before(l.key, place); next != "" {
		holder := l.head
		holder.ActiveRun = cmp.Or(holder.ActiveRun, next)
		return errRunActive(&holder)
	}
	if active {
		return s.closeExpired(ctx, l)
	}
	return nil
}

// begin queues an announced run: its input, its row, its lease.
func (s *Service) begin(l *live, req *threadsvcv1.StartRunRequest, applied *agui.Applied, hash [32]byte) *pending {
	p := l.pend()
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
		StateResyncDue:              resyncMessage(thread),
	}}
}

// leaseOf returns the lease TTL to use for a run that asked for ttl.
func (s *Service) leaseOf(ttl time.Duration) time.Duration {
	if ttl <= 0 {
		return s.cfg.LeaseTTL
	}
	return min(max(ttl, time.Second), s.cfg.MaxLeaseTTL)
}
