package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/threadsvc/threadsvc/agui"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
)

func errVersionNotFound(first, last uint64) *refusal {
	return refuse(threadsvcv1.ErrorReason_ERROR_REASON_VERSION_NOT_FOUND, "the thread has no such version",
		"first_version", number(first), "last_version", number(last))
}

// readAt reads a thread as it was committed at a moment; an absent one is now. The caller owns it.
func (s *Service) readAt(ctx context.Context, name *threadsvcv1.ThreadName, moment *threadsvcv1.Moment) (*agui.Thread, error) {
	if moment == nil {
		thread, _, err := s.snapshot(ctx, name)
		return thread, err
	}
	key, err := threadKey(name, "thread")
	if err != nil {
		return nil, err
	}
	head, err := s.head(ctx, key)
	if err != nil {
		return nil, err
	}
	version, err := s.versionOf(ctx, &head, moment, "moment")
	if err != nil {
		return nil, err
	}
	if version == head.Version { // its fold is kept
		thread, _, err := s.snapshot(ctx, name)
		if err != nil || thread.Version() == version {
			return thread, err
		}
	}
	return s.foldAt(ctx, key, head.ThreadID, version)
}

// versionOf finds the version that a moment names; an absent one is now.
func (s *Service) versionOf(ctx context.Context, head *store.Head, moment *threadsvcv1.Moment, field string) (uint64, error) {
	switch at := moment.GetAt().(type) {
	case *threadsvcv1.Moment_Version:
		if at.Version > head.Version {
			return 0, errVersionNotFound(head.FirstVersion, head.Version)
		}
		return at.Version, checkKept(head, at.Version)
	case *threadsvcv1.Moment_RunId:
		return s.endOfRun(ctx, head, at.RunId, field)
	case *threadsvcv1.Moment_Time:
		if err := at.Time.CheckValid(); err != nil {
			return 0, errField(field+".time", "is not a time")
		}
		return s.versionAtTime(ctx, head, at.Time.AsTime())
	}
	if moment == nil {
		return head.Version, nil
	}
	return 0, errField(field, "names no moment")
}

func (s *Service) endOfRun(ctx context.Context, head *store.Head, runID, field string) (uint64, error) {
	if err := checkID(field+".run_id", runID); err != nil {
		return 0, err
	}
	ctx, cancel := s.storeContext(ctx)
	defer cancel()
	run, err := s.store.Run(ctx, head.Key, runID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return 0, errRunNotFound
	case err != nil:
		return 0, err
	case run.Status == store.RunActive:
		return head.Version, nil
	}
	version := min(run.LastVersion, head.Version)
	return version, checkKept(head, version)
}

// versionAtTime asks the store, which knows times from year 1 to 9999 as protobuf does, in microseconds.
func (s *Service) versionAtTime(ctx context.Context, head *store.Head, at time.Time) (uint64, error) {
	ctx, cancel := s.storeContext(ctx)
	defer cancel()
	version, err := s.store.VersionAt(ctx, head.Key, at.Truncate(time.Microsecond))
	var pruned *store.PrunedError
	if errors.As(err, &pruned) {
		return 0, errVersionPruned(pruned.FirstVersion, "")
	}
	return min(version, head.Version), err
}

// foldAt makes a thread as it was at a version that it has reached, from the nearest checkpoint. Entries that cannot be
// read are passed over and logged; the log's hash is then zero, since it cannot be known. If the log is pruned meanwhile up
// to a version that is not beyond, there is another checkpoint to begin with.
func (s *Service) foldAt(ctx context.Context, key store.Key, threadID string, version uint64) (*agui.Thread, error) {
	for attempt := 1; ; attempt++ {
		thread, err := s.checkpointAt(ctx, key, threadID, version)
		if err == nil {
			err = s.advance(ctx, key, thread, version, replayEntry(thread))
		}
		if err == nil {
			return thread, nil
		}
		var pruned *store.PrunedError
		switch {
		case !errors.As(err, &pruned):
			return nil, err
		case version < pruned.FirstVersion:
			return nil, &store.PrunedError{FirstVersion: pruned.FirstVersion, Version: version}
		case attempt == maxAttempts:
			return nil, err
		}
	}
}

// replayer replays one entry of a segment.
type replayer func(segment *store.Segment, entry *agui.Entry, stored []byte) error

func replayEntry(thread *agui.Thread) replayer {
	return func(_ *store.Segment, entry *agui.Entry, stored []byte) error { return thread.Replay(entry, stored) }
}

// advance reads on in the log and replays entries until the thread is at a version, as foldAt says.
func (s *Service) advance(ctx context.Context, key store.Key, thread *agui.Thread, version uint64, replay replayer) error {
	damaged := false
	for thread.Version() < version {
		segments, err := s.logSegments(ctx, key, thread.Version()+1)
		if err != nil {
			return err
		}
		if len(segments) == 0 { // it was deleted meanwhile
			return store.ErrNotFound
		}
		for i := range segments {
			for _, err := range replayUntil(thread, &segments[i], version, replay) {
				damaged = true
				s.cfg.Logger.Error("stored entry passed over", "thread_key", key.String(), "error", err)
			}
		}
	}
	if damaged {
		thread.Seal(version, [32]byte{})
	}
	return nil
}

// checkpointAt restores the last checkpoint at or before a version; without one the thread is empty. One that cannot be
// read is logged, and costs the replay of all the log that there is.
func (s *Service) checkpointAt(ctx context.Context, key store.Key, threadID string, version uint64) (*agui.Thread, error) {
	thread, err := s.restoreAt(ctx, key, threadID, version)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return agui.NewThread(threadID, s.cfg.Limits), nil
	case !errors.Is(err, store.ErrCorrupt):
		return thread, err
	}
	s.cfg.Logger.Error("stored checkpoint passed over", "thread_key", key.String(), "error", err)
	head, err := s.head(ctx, key)
	switch {
	case err != nil || head.FirstVersion == 0:
		return agui.NewThread(threadID, s.cfg.Limits), err
	case version < head.FirstVersion: // it was removed while it was read
		return nil, &store.PrunedError{FirstVersion: head.FirstVersion, Version: version}
	}
	return s.restoreAt(ctx, key, threadID, head.FirstVersion)
}

// restoreAt is checkpointAt for one that can be read: ErrNotFound, or ErrCorrupt, if there is none.
func (s *Service) restoreAt(ctx context.Context, key store.Key, threadID string, version uint64) (*agui.Thread, error) {
	ctx, cancel := s.storeContext(ctx)
	defer cancel()
	c, err := s.store.CheckpointAt(ctx, key, version)
	if err != nil {
		return nil, err
	}
	thread, err := agui.Restore(threadID, c.Fold, c.Hash, s.cfg.Limits)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrCorrupt, err)
	}
	return thread, nil
}

var errEnough = errors.New("service: the version is reached")

// replayUntil replays a segment's entries up to a version, and returns what could not be read. The thread is then at the
// segment's end or at the version, whichever comes first.
func replayUntil(thread *agui.Thread, segment *store.Segment, version uint64, replay replayer) (unreadable []error) {
	if thread.Version() >= version {
		return nil
	}
	if segment.FirstVersion > thread.Version()+1 {
		unreadable = append(unreadable, fmt.Errorf("service: versions %d to %d are missing", thread.Version()+1, segment.FirstVersion-1))
		thread.Skip(min(segment.FirstVersion-1, version))
	}
	at, end := segment.FirstVersion-1, min(segment.LastVersion, version)
	err := segment.Err
	if err == nil {
		err = agui.EachEntry(segment.Entries, func(entry *agui.Entry, stored []byte) error {
			if at == end {
				return errEnough
			}
			if at++; at <= thread.Version() {
				return nil
			}
			if err := replay(segment, entry, stored); err != nil {
				unreadable = append(unreadable, err)
			}
			return nil
		})
	}
	if err != nil && !errors.Is(err, errEnough) {
		unreadable = append(unreadable, err)
	}
	if thread.Version() < end && err == nil {
		unreadable = append(unreadable, fmt.Errorf("service: versions %d to %d are missing", thread.Version()+1, end))
	}
	thread.Skip(end)
	return unreadable
}
