package service

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"github.com/threadsvc/threadsvc/agui"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
)

// startedBefore finds the run of a request that was made before: the same input gives the same run again, another is
// refused. It returns nil for a run that is new.
func (s *Service) startedBefore(ctx context.Context, l *live, req *threadsvcv1.StartRunRequest, hash [32]byte) (*started, error) {
	ctx, cancel := s.storeContext(ctx)
	defer cancel()
	run, err := s.store.Run(ctx, l.key, req.GetRunId())
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if run.InputHash != hash {
		return nil, refuse(threadsvcv1.ErrorReason_ERROR_REASON_RUN_EXISTS, "the run id was used before with another input", "status", runStatusName(run.Status))
	}
	lease := &threadsvcv1.Lease{FencingToken: run.Fence}
	if l.head.Fence == run.Fence {
		lease.ExpiresAt = timestamp(l.head.LeaseExpiresAt)
	}
	return &started{again: &run, start: &threadsvcv1.RunStart{Lease: lease}}, nil
}

// repeat answers StartRun for a run that was started before as it was answered then. It holds no lock: the log up to the
// run's start does not change.
func (s *Service) repeat(ctx context.Context, call *startCall, run *started) (*started, error) {
	req := call.req
	thread, err := s.threadAt(ctx, call.key, req.GetThread().GetThreadId(), run.again.FirstVersion)
	if err != nil {
		return nil, err
	}
	again := startOf(thread, req.GetUnansweredToolCalls() == threadsvcv1.UnansweredToolCalls_UNANSWERED_TOOL_CALLS_REPAIR)
	again.start.RepeatedRequest = true
	again.start.Lease = run.start.Lease
	return again, nil
}

// threadAt returns the thread as it was at an earlier version. Unless it still is at that version, it replays the log.
func (s *Service) threadAt(ctx context.Context, key store.Key, threadID string, version uint64) (*agui.Thread, error) {
	loadCtx, cancel := s.storeContext(ctx)
	loaded, err := s.store.Load(loadCtx, key)
	cancel()
	if err != nil {
		return nil, err
	}
	if loaded.Head.Version == version {
		thread, _, err := restore(threadID, loaded, s.cfg.Limits)
		return thread, err
	}
	return s.foldAt(ctx, key, threadID, version)
}

// inputHash identifies what a run is started with, the state it is to start from included; whether it may be started does
// not count. It hashes every field with its number and its length, and so does not depend on how messages are marshalled.
func inputHash(req *threadsvcv1.StartRunRequest) [32]byte {
	h := sha256.New()
	field := func(number uint64, value []byte) {
		if len(value) > 0 {
			h.Write(binary.AppendUvarint(binary.AppendUvarint(nil, number), uint64(len(value))))
			h.Write(value)
		}
	}
	field(1, []byte(req.GetThread().GetTenant()))
	field(2, []byte(req.GetThread().GetThreadId()))
	field(3, []byte(req.GetRunId()))
	field(4, []byte(req.GetParentRunId()))
	for _, message := range req.GetMessages() {
		field(5, message)
	}
	field(6, req.GetState())
	field(7, req.GetStatePatch())
	field(8, req.GetTools())
	field(9, req.GetContext())
	field(10, req.GetForwardedProps())
	field(11, req.GetResume())
	if req.GetStartingState() == threadsvcv1.StartingState_STARTING_STATE_LAST_COMPLETED {
		field(12, []byte{byte(req.GetStartingState())})
	}
	return [32]byte(h.Sum(nil))
}
