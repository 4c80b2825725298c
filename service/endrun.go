package service

import (
	"context"
	"errors"
	"unicode/utf8"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
)

// maxEndReason bounds the reason that EndRun is given, in bytes.
const maxEndReason = 1024

// EndRun implements the contract.
func (s *Service) EndRun(ctx context.Context, req *threadsvcv1.EndRunRequest) (*threadsvcv1.EndRunResponse, error) {
	resp, err := s.endRun(ctx, req)
	if err != nil {
		return nil, statusOf(err, s.cfg.Logger).Err()
	}
	return resp, nil
}

func (s *Service) endRun(ctx context.Context, req *threadsvcv1.EndRunRequest) (*threadsvcv1.EndRunResponse, error) {
	key, err := threadKey(req.GetThread(), "thread")
	if err != nil {
		return nil, err
	}
	if err := checkEnd(req); err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		version, commit, err := s.tryEnd(ctx, key, req)
		if err == nil && commit != nil {
			err = commit.outcome(ctx)
		}
		if err == nil {
			var resp *threadsvcv1.EndRunResponse
			if resp, err = s.endedRun(ctx, key, req.GetRunId(), version); err == nil {
				return resp, nil
			}
		}
		if !overtaken(err) || attempt == maxAttempts {
			return nil, err
		}
		if err := s.fenceOff(ctx, key, req.GetRunId(), attempt); err != nil {
			return nil, err
		}
	}
}

// patience is how many attempts to close a run may fail before its writer is fenced off.
const patience = 3

// fenceOff lets the writer of a run, on another node, commit nothing more, if closing the run has failed too often because
// of what it wrote in between. The run stays active until it is closed, or its lease ends.
func (s *Service) fenceOff(ctx context.Context, key store.Key, runID string, attempt int) error {
	if attempt < patience || runID == "" {
		return nil
	}
	return s.patiently(ctx, key, func() error {
		storeCtx, cancel := s.writeContext(ctx)
		defer cancel()
		return s.store.Fence(storeCtx, key, runID)
	})
}

func checkEnd(req *threadsvcv1.EndRunRequest) error {
	if err := checkID("run_id", req.GetRunId()); err != nil {
		return err
	}
	if reason := req.GetReason(); len(reason) > maxEndReason || !utf8.ValidString(reason) {
		return errField("reason", "must be UTF-8 of at most 1,024 bytes")
	}
	return nil
}

// tryEnd ends the run if it is the one to end, and returns the thread's version with the commit to wait for, if any. A run
// that is open is ended behind whatever is queued: its producer may never pause.
func (s *Service) tryEnd(ctx context.Context, key store.Key, req *threadsvcv1.EndRunRequest) (uint64, *pending, error) {
	l, err := s.acquire(ctx, key, req.GetThread().GetThreadId())
	for err == nil && l.busy() != nil && l.head.ActiveRun != req.GetRunId() {
		s.letGo(l)
		l, err = s.acquireSettled(ctx, key, req.GetThread().GetThreadId())
	}
	if err != nil {
		return 0, nil, err
	}
	defer s.letGo(l)
	if p := l.endBy(req); p != nil {
		return l.head.Version, p, nil
	}
	version := l.head.Version
	if !l.exists {
		err = errThreadNotFound
	}
	if stale := s.checkCurrent(ctx, l, &l.head); stale != nil {
		err = stale
	}
	return version, nil, err
}

// endBy ends the run that is asked for and returns the commit; nil if there is nothing to end. The lock must be held.
func (l *live) endBy(req *threadsvcv1.EndRunRequest) *pending {
	last := l.run != nil && l.run.RunID == req.GetRunId()
	if !l.exists || !last || l.head.ActiveRun == "" && len(l.thread.OpenInterrupts()) == 0 {
		return nil
	}
	p := l.pend()
	applied := l.thread.End(req.GetReason())
	l.add(p, &applied, l.head.NextOffset, l.head.NextOffset)
	l.fence(p)
	return p
}

// fence makes every token that was granted worthless and completes the commit.
func (l *live) fence(p *pending) {
	l.head.Fence++
	p.wantsFold = true
	l.seal(p)
}

// endedRun answers for a run that nobody can append to at a version of its thread. One that was started after that version is
// none: store.ErrConflict.
func (s *Service) endedRun(ctx context.Context, key store.Key, runID string, version uint64) (*threadsvcv1.EndRunResponse, error) {
	ctx, cancel := s.storeContext(ctx)
	defer cancel()
	run, err := s.store.Run(ctx, key, runID)
	if errors.Is(err, store.ErrNotFound) {
		return nil, errRunNotFound
	}
	if err != nil {
		return nil, err
	}
	if run.FirstVersion > version || run.Status == store.RunActive {
		return nil, store.ErrConflict
	}
	return &threadsvcv1.EndRunResponse{Run: runMessage(&run), Version: version}, nil
}
