package service

import (
	"context"
	"errors"

	"github.com/threadsvc/threadsvc/agui"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
)

// RewindThread implements the contract.
func (s *Service) RewindThread(ctx context.Context, req *threadsvcv1.RewindThreadRequest) (*threadsvcv1.RewindThreadResponse, error) {
	resp, err := s.rewindThread(ctx, req)
	if err != nil {
		return nil, statusOf(err, s.cfg.Logger).Err()
	}
	return resp, nil
}

func (s *Service) rewindThread(ctx context.Context, req *threadsvcv1.RewindThreadRequest) (*threadsvcv1.RewindThreadResponse, error) {
	key, err := threadKey(req.GetThread(), "thread")
	if err != nil {
		return nil, err
	}
	if req.GetTo() == nil {
		return nil, errField("to", "is required")
	}
	for attempt := 1; ; attempt++ {
		resp, p, err := s.tryRewind(ctx, key, req)
		if err == nil {
			if err = await(ctx, p); err == nil {
				err = p.result.Err
			}
		}
		if again := errors.Is(err, errStale) || errors.Is(err, store.ErrConflict); !again || attempt == maxAttempts {
			return resp, err
		}
	}
}

// tryRewind folds the mark into the thread and queues its commit.
func (s *Service) tryRewind(ctx context.Context, key store.Key, req *threadsvcv1.RewindThreadRequest) (*threadsvcv1.RewindThreadResponse, *pending, error) {
	l, err := s.acquireSettled(ctx, key, req.GetThread().GetThreadId())
	if err != nil {
		return nil, nil, err
	}
	defer s.letGo(l)
	before := l.head
	to, err := s.mayRewind(ctx, l, req)
	if err != nil {
		if stale := s.checkCurrent(ctx, l, &before); stale != nil {
			err = stale
		}
		return nil, nil, err
	}
	if l.thread.Running() {
		if err := s.closeExpired(ctx, l); err != nil {
			return nil, nil, err
		}
	}
	applied, err := l.thread.Rewind(to.Fold())
	if err != nil {
		l.abandon(err)
		s.cache.drop(l)
		return nil, nil, err
	}
	p := l.pend()
	p.wantsFold = true
	l.add(p, &applied, l.head.NextOffset, l.head.NextOffset)
	l.seal(p)
	return &threadsvcv1.RewindThreadResponse{Version: l.head.Version, ToVersion: to.Version()}, p, nil
}

// mayRewind returns the thread as it was at the moment that it is to be taken back to, or refuses.
func (s *Service) mayRewind(ctx context.Context, l *live, req *threadsvcv1.RewindThreadRequest) (*agui.Thread, error) {
	if !l.exists {
		return nil, errThreadNotFound
	}
	if want := req.ExpectedVersion; want != nil && *want != l.head.Version {
		return nil, errVersion(l.head.Version)
	}
	version, err := s.versionOf(ctx, &l.head, req.GetTo(), "to")
	if err != nil {
		return nil, err
	}
	return s.foldAt(ctx, l.key, l.head.ThreadID, version)
}

// ForkThread implements the contract.
func (s *Service) ForkThread(ctx context.Context, req *threadsvcv1.ForkThreadRequest) (*threadsvcv1.ForkThreadResponse, error) {
	resp, err := s.forkThread(ctx, req)
	if err != nil {
		return nil, statusOf(err, s.cfg.Logger).Err()
	}
	return resp, nil
}

func (s *Service) forkThread(ctx context.Context, req *threadsvcv1.ForkThreadRequest) (*threadsvcv1.ForkThreadResponse, error) {
	name := &threadsvcv1.ThreadName{Tenant: req.GetSource().GetTenant(), ThreadId: req.GetThreadId()}
	if err := checkID("thread_id", name.GetThreadId()); err != nil {
		return nil, err
	}
	metadata, err := readMetadata("metadata", req.GetMetadata())
	if err != nil {
		return nil, err
	}
	source, err := s.readAt(ctx, req.GetSource(), req.GetMoment())
	if err != nil {
		return nil, err
	}
	key, err := threadKey(name, "thread_id")
	if err != nil {
		return nil, err
	}
	hash := source.Hash()
	origin := agui.Origin{ThreadID: req.GetSource().GetThreadId(), Version: source.Version(), LogHash: hash[:]}
	p, err := s.tryFork(ctx, key, name, origin, source.Fold(), metadata)
	if errors.Is(err, errStale) {
		p, err = s.tryFork(ctx, key, name, origin, source.Fold(), metadata)
	}
	if err != nil {
		return nil, err
	}
	if err := await(ctx, p); err != nil {
		return nil, err
	}
	if errors.Is(p.result.Err, store.ErrConflict) {
		return nil, errThreadExists
	}
	if p.result.Err != nil {
		return nil, p.result.Err
	}
	thread, loaded, err := s.snapshot(ctx, name)
	if err != nil {
		return nil, err
	}
	msg := threadMessage(&loaded.Head)
	addPast(msg, thread)
	return &threadsvcv1.ForkThreadResponse{Thread: msg, SourceVersion: origin.Version}, nil
}

// tryFork makes the new thread and queues its commit.
func (s *Service) tryFork(ctx context.Context, key store.Key, name *threadsvcv1.ThreadName, origin agui.Origin, fold agui.Fold, metadata store.Metadata) (*pending, error) {
	l, err := s.acquireSettled(ctx, key, name.GetThreadId())
	if err != nil {
		return nil, err
	}
	defer s.letGo(l)
	if l.exists {
		if err := s.checkCurrent(ctx, l, &l.head); err != nil {
			return nil, err
		}
		return nil, errThreadExists
	}
	applied, err := l.thread.Fork(origin, fold)
	if err != nil {
		s.cache.drop(l)
		return nil, err
	}
	p := l.pend()
	p.commit.Create = &store.NewThread{Tenant: name.GetTenant(), ThreadID: name.GetThreadId(), Metadata: metadata}
	p.wantsFold, l.exists = true, true
	l.add(p, &applied, 0, 0)
	l.seal(p)
	return p, nil
}

// addPast says what a thread knows of its own past.
func addPast(msg *threadsvcv1.Thread, thread *agui.Thread) {
	for _, u := range thread.Undone() {
		msg.Undone = append(msg.Undone, &threadsvcv1.UndoneRange{FirstVersion: u.FirstVersion, LastVersion: u.LastVersion})
	}
	if o := thread.Origin(); o != nil {
		msg.Origin = &threadsvcv1.ThreadOrigin{ThreadId: o.ThreadID, Version: o.Version, LogHash: o.LogHash}
	}
}
