package service

import (
	"context"

	"github.com/threadsvc/threadsvc/agui"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
)

// ordinary tells which runs had an ordinary end, one that the agent meant: RUN_FINISHED, whatever its outcome.
var ordinary = map[store.RunStatus]bool{store.RunFinished: true, store.RunInterrupted: true, store.RunCancelled: true}

// setStartingState makes the input of a run carry the state that it is to start from, if that may not be the present one.
// The thread's lock must be held, and nothing be queued but what closes a run.
func (s *Service) setStartingState(ctx context.Context, l *live, req *threadsvcv1.StartRunRequest, input *agui.Event) error {
	wanted := req.GetStartingState() == threadsvcv1.StartingState_STARTING_STATE_LAST_COMPLETED
	if !wanted || input.State != nil || !l.exists || l.run == nil || ordinary[l.run.Status] {
		return nil
	}
	version, err := s.lastCompleted(ctx, l.key)
	if err != nil {
		return err
	}
	thread := agui.NewThread("", s.cfg.Limits)
	if version > 0 {
		if thread, err = s.foldAt(ctx, l.key, l.head.ThreadID, version); err != nil {
			return err
		}
	}
	input.State, input.StateLacks = thread.State(nil), thread.StateResync().Text()
	return nil
}

// lastCompleted returns the version at which the last run with an ordinary end was over; if there is none, the one before
// the first run.
func (s *Service) lastCompleted(ctx context.Context, key store.Key) (uint64, error) {
	const page = 100
	version := uint64(0)
	for before := int64(0); before != 1; {
		runs, err := s.runsBefore(ctx, key, before, page)
		if err != nil || len(runs) == 0 {
			return version, err
		}
		for i := range runs {
			if ordinary[runs[i].Status] {
				return runs[i].LastVersion, nil
			}
			before, version = runs[i].Ordinal, runs[i].FirstVersion-1
		}
	}
	return version, nil
}

func (s *Service) runsBefore(ctx context.Context, key store.Key, before int64, limit int) ([]store.Run, error) {
	ctx, cancel := s.storeContext(ctx)
	defer cancel()
	return s.store.Runs(ctx, key, before, limit)
}
