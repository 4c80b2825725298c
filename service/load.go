package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/threadsvc/threadsvc/store"
)

// acquire returns the live thread of a key with its lock held, loaded, and with room to queue. The caller must letGo it.
func (s *Service) acquire(ctx context.Context, key store.Key, threadID string) (*live, error) {
	for {
		l := s.cache.get(key)
		if err := l.acquire(ctx); err != nil {
			return nil, err
		}
		if l.dead {
			l.release()
			continue
		}
		if err := s.loadLocked(ctx, l, threadID); err != nil {
			return nil, err
		}
		if l.queued == nil || l.queued.bytes < s.cfg.QueueBytes {
			return l, nil
		}
		first := l.inflight
		if first == nil {
			first = l.queued
		}
		l.release()
		if err := await(ctx, first); err != nil {
			return nil, err
		}
	}
}

// acquireSettled is acquire for calls that need everything queued to be committed first.
func (s *Service) acquireSettled(ctx context.Context, key store.Key, threadID string) (*live, error) {
	for {
		l, err := s.acquire(ctx, key, threadID)
		if err != nil {
			return nil, err
		}
		busy := l.busy()
		if busy == nil {
			return l, nil
		}
		s.committer.hasten(l)
		l.release()
		if err := await(ctx, busy); err != nil {
			return nil, err
		}
	}
}

// acquireUnloaded returns the live thread of a key with its lock held, whether it was loaded or not, and everything queued
// committed. Who holds it must not queue anything, and release it.
func (s *Service) acquireUnloaded(ctx context.Context, key store.Key) (*live, error) {
	for {
		l := s.cache.get(key)
		if err := l.acquire(ctx); err != nil {
			return nil, err
		}
		busy := l.busy()
		if busy == nil && !l.dead {
			return l, nil
		}
		s.committer.hasten(l)
		l.release()
		if busy != nil {
			if err := await(ctx, busy); err != nil {
				return nil, err
			}
		}
	}
}

// await waits until a commit is done, however it ended.
func await(ctx context.Context, p *pending) error {
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// outcome waits until the commit is done and returns its error, or the context's.
func (p *pending) outcome(ctx context.Context) error {
	if err := await(ctx, p); err != nil {
		return err
	}
	return p.result.Err
}

// letGo releases a thread and accounts for what it takes now. After a panic the thread is dropped with what it queued.
func (s *Service) letGo(l *live) {
	if r := recover(); r != nil {
		l.abandon(fmt.Errorf("service: panic while folding: %v", r))
		s.cache.drop(l)
		l.release()
		panic(r)
	}
	if !l.exists && l.busy() == nil {
		s.cache.drop(l)
	}
	s.committer.offer(l)
	s.cache.settle(l)
	l.fresh = false
	l.release()
}

// loadLocked loads a thread that was not loaded yet. If that fails, or panics, the thread is dropped and let go.
func (s *Service) loadLocked(ctx context.Context, l *live, threadID string) error {
	if l.thread != nil {
		return nil
	}
	loaded := false
	defer func() {
		if !loaded {
			s.cache.drop(l)
			l.release()
		}
	}()
	err := s.load(ctx, l, threadID)
	loaded = err == nil
	l.fresh = loaded
	return err
}

// load reads a thread; one that does not exist is empty.
func (s *Service) load(ctx context.Context, l *live, threadID string) error {
	ctx, cancel := s.storeContext(ctx)
	defer cancel()
	loaded, err := s.store.Load(ctx, l.key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	unreadable, err := l.load(threadID, loaded, s.cfg.Limits)
	if err != nil {
		return err
	}
	for _, err := range unreadable {
		s.cfg.Logger.Error("stored entry passed over", "thread_key", l.key.String(), "error", err)
	}
	if loaded == nil || loaded.Head.StreamID == "" {
		return nil
	}
	return s.loadStream(ctx, l)
}

// loadStream finds out how the stream that may append was opened.
func (s *Service) loadStream(ctx context.Context, l *live) error {
	opener := l.run
	if opener == nil || opener.RunID != l.head.StreamID {
		run, err := s.store.Run(ctx, l.key, l.head.StreamID)
		switch {
		case errors.Is(err, store.ErrNotFound): // its RUN_STARTED has not come yet
			l.recorded = true
			l.thread.Await(l.head.StreamID)
			return nil
		case err != nil:
			return err
		}
		opener = &run
	}
	l.recorded = opener.InputHash == [32]byte{}
	return nil
}
