package service

import (
	"context"
	"errors"

	"github.com/threadsvc/threadsvc/agui"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
)

// errStreamOver says that a stream can append nothing more; what it sent before may still be sent again.
var errStreamOver = errors.New("service: the stream is over")

// admit checks that the writer may append, and opens a stream that nobody announced. The lock must be held.
func (s *Service) admit(ctx context.Context, l *live, w *writer, batch *threadsvcv1.EventBatch) error {
	if l.exists && l.head.StreamID == w.streamID {
		if l.thread.Closed() {
			return errStreamOver
		}
		if w.token != l.head.Fence && !(w.token == 0 && l.recorded) {
			return errLeaseLost
		}
		return nil
	}
	if l.exists {
		known, err := s.knownRun(ctx, l.key, w.streamID)
		if err != nil {
			return err
		}
		if known {
			return errStreamOver
		}
	}
	return s.openStream(ctx, l, w, batch)
}

func (s *Service) knownRun(ctx context.Context, key store.Key, runID string) (bool, error) {
	ctx, cancel := s.storeContext(ctx)
	defer cancel()
	_, err := s.store.Run(ctx, key, runID)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// openStream prepares the thread for a stream that is recorded as it passes by: its run was not announced. The thread is
// made if it does not exist.
func (s *Service) openStream(ctx context.Context, l *live, w *writer, batch *threadsvcv1.EventBatch) error {
	switch {
	case w.token != 0 || len(batch.GetEvents()) == 0:
		return errRunNotFound
	case batch.GetOffset() != 0 && !l.exists: // it may have been deleted
		return errThreadNotFound
	case batch.GetOffset() != 0:
		return errOffsetGap(0)
	}
	if l.thread.Running() {
		if err := s.closeExpired(ctx, l); err != nil {
			return err
		}
	}
	p := l.pend()
	if !l.exists {
		p.commit.Create = &store.NewThread{Tenant: w.tenant, ThreadID: w.threadID}
		l.exists = true
	}
	l.head.Fence++
	l.head.StreamID, l.head.NextOffset, l.head.LeaseTTL = w.streamID, 0, s.cfg.LeaseTTL
	l.recorded = true
	l.thread.Await(w.streamID)
	return nil
}

// truncate closes the active run as truncated.
func (s *Service) truncate(l *live, reason agui.Code) {
	p := l.pend()
	applied := l.thread.Truncate(reason)
	l.add(p, &applied, l.head.NextOffset, l.head.NextOffset)
}

func (s *Service) head(ctx context.Context, key store.Key) (store.Head, error) {
	ctx, cancel := s.storeContext(ctx)
	defer cancel()
	return s.store.Head(ctx, key)
}

// notAdmitted answers a writer that may not append: a batch of a stream that is over is acknowledged if all of it was
// received before.
func (s *Service) notAdmitted(ctx context.Context, l *live, w *writer, batch *threadsvcv1.EventBatch, err error) (*outcome, error) {
	if !errors.Is(err, errStreamOver) {
		return refusedOther(l, err), nil
	}
	if n := uint64(len(batch.GetEvents())); n > 0 {
		if s.compare(ctx, l, w, batch, n) == nil {
			progress := &threadsvcv1.Progress{NextOffset: batch.GetOffset() + n, Version: l.head.Version, StateResyncDue: resyncMessage(l.thread)}
			return &outcome{progress: progress}, nil
		}
	}
	storeCtx, cancel := s.storeContext(ctx)
	defer cancel()
	run, err := s.store.Run(storeCtx, l.key, w.streamID)
	if err != nil {
		return nil, err
	}
	if l.head.StreamID != w.streamID {
		return refusedOther(l, errRunClosed(&run)), nil
	}
	return refusedAt(l, errRunClosed(&run)), nil
}

// compare judges the first n events of a batch, which were received before, against what was received then. Everything
// queued must be committed.
func (s *Service) compare(ctx context.Context, l *live, w *writer, batch *threadsvcv1.EventBatch, n uint64) error {
	from := batch.GetOffset()
	ctx, cancel := s.storeContext(ctx)
	defer cancel()
	segments, err := s.store.Stream(ctx, l.key, w.streamID, from, from+n)
	if err != nil {
		return err
	}
	return compareEvents(segments, from, batch.GetEvents()[:n])
}

// compareEvents returns an error unless each event is the one that was received at its offset.
func compareEvents(segments []store.Segment, from uint64, events [][]byte) error {
	same := make([]bool, len(events))
	for _, segment := range segments {
		if segment.Err != nil { // what cannot be read cannot be compared, and is durable
			for o := max(from, segment.FirstOffset); o < min(from+uint64(len(events)), segment.NextOffset); o++ {
				same[o-from] = true
			}
			continue
		}
		entries, _ := agui.DecodeEntries(segment.Entries)
		for i := range entries {
			if e := &entries[i]; e.Kind != agui.KindInput && e.Offset >= from && e.Offset-from < uint64(len(events)) {
				same[e.Offset-from] = same[e.Offset-from] || e.Caused(events[e.Offset-from])
			}
		}
	}
	for i, ok := range same {
		if !ok {
			return errOffsetMismatch(from + uint64(i))
		}
	}
	return nil
}

// checkNewRun refuses a RUN_STARTED for a run that the thread has already had. The run that is awaited was checked when
// its stream was opened. The look-up is only made after a commit has failed because of such a run: it hardly ever happens,
// and the database refuses it in any case.
func (s *Service) checkNewRun(ctx context.Context, l *live, event []byte) error {
	if !l.suspect {
		return nil
	}
	decoded, _, v := agui.Decode(event, s.cfg.Limits)
	if v != nil || decoded.Type != agui.RunStarted || decoded.RunID == l.thread.RunID() && !l.thread.Over() {
		return nil
	}
	known, err := s.knownRun(ctx, l.key, decoded.RunID)
	if err == nil && (known || decoded.RunID == l.thread.RunID()) {
		v := &agui.Violation{Code: agui.RunReused, Path: "/runId", Detail: "the thread has already had this run"}
		return errViolation(v, l.head.NextOffset, false)
	}
	return err
}
