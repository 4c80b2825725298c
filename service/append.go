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

// maxAttempts bounds how often a call starts again because another writer changed the thread in between.
const maxAttempts = 8

// writer is who appends: a producer's stream and its right to do so.
type writer struct {
	key      store.Key
	tenant   string
	threadID string
	streamID string
	token    uint64
	// delay is how long events may be gathered before they are committed.
	delay time.Duration
}

// outcome is what became of a batch: what is durable once its commit is, and why the rest was refused, if it was.
type outcome struct {
	progress *threadsvcv1.Progress
	refused  error
	commit   *pending // nil if there is nothing to wait for
}

// wait waits for the outcome's commit. The error is the commit's, or the context's.
func (o *outcome) wait(ctx context.Context) error {
	if o.commit == nil {
		return nil
	}
	return o.commit.outcome(ctx)
}

// AppendBatch implements the contract.
func (s *Service) AppendBatch(ctx context.Context, req *threadsvcv1.AppendBatchRequest) (*threadsvcv1.AppendBatchResponse, error) {
	w, err := writerOf(req.GetRun())
	if err != nil {
		return nil, statusOf(err, s.cfg.Logger).Err()
	}
	for attempt := 1; ; attempt++ {
		out, err := s.append(ctx, w, req.GetBatch())
		if err == nil {
			err = out.wait(ctx)
		}
		if overtaken(err) && attempt < maxAttempts {
			continue // another node wrote, or a run id is taken: what this batch still brings is found out anew
		}
		if err == nil && out.refused != nil {
			err = withProgress(out.refused, out.progress)
		}
		if err != nil {
			return nil, statusOf(err, s.cfg.Logger).Err()
		}
		return &threadsvcv1.AppendBatchResponse{Progress: out.progress}, nil
	}
}

// overtaken reports whether a commit failed for a reason that may be somebody else's: another writer came first, or what was
// queued with it names a run id that is taken. What there is to commit is found out anew then.
func overtaken(err error) bool {
	return errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrDuplicate)
}

// withProgress adds what is durable to a refusal.
func withProgress(err error, progress *threadsvcv1.Progress) error {
	var refused *refusal
	if errors.As(err, &refused) && progress != nil {
		return refused.with("next_offset", number(progress.NextOffset)).with("version", number(progress.Version))
	}
	return err
}

func writerOf(run *threadsvcv1.RunHandle) (*writer, error) {
	if run == nil {
		return nil, errField("run", "is required")
	}
	key, err := threadKey(run.GetThread(), "run.thread")
	if err != nil {
		return nil, err
	}
	if err := checkID("run.run_id", run.GetRunId()); err != nil {
		return nil, err
	}
	return &writer{
		key: key, tenant: run.GetThread().GetTenant(), threadID: run.GetThread().GetThreadId(), streamID: run.GetRunId(),
		token: run.GetFencingToken(),
	}, nil
}

// append folds a batch into its thread and queues what it amounts to. The error is that of finding the thread; what is
// wrong with the batch is in the outcome.
func (s *Service) append(ctx context.Context, w *writer, batch *threadsvcv1.EventBatch) (*outcome, error) {
	for attempt := 1; !s.draining(); attempt++ {
		l, err := s.acquire(ctx, w.key, w.threadID)
		if err != nil {
			return nil, err
		}
		out, first, err := s.tryAppend(ctx, l, w, batch)
		switch {
		case errors.Is(err, errStale) && attempt < maxAttempts:
			continue
		case first == nil:
			return out, err
		}
		if err := await(ctx, first); err != nil {
			return nil, err
		}
	}
	return nil, errShuttingDown
}

// tryAppend is append on a thread whose lock is held, which it lets go. If the batch can only be judged when a commit is
// done, it returns that commit. An outcome that no commit will confirm is only good if the thread is current.
func (s *Service) tryAppend(ctx context.Context, l *live, w *writer, batch *threadsvcv1.EventBatch) (_ *outcome, first *pending, _ error) {
	defer s.letGo(l)
	busy, before, earlier := l.busy(), l.head, l.queued
	decided := l.head.StreamID == w.streamID && batch.GetOffset() >= l.head.NextOffset && !l.thread.Closed()
	if busy != nil && !decided {
		s.committer.hasten(l)
		return nil, busy, nil
	}
	out, err := s.judge(ctx, l, w, batch, earlier)
	if err == nil && out.commit == nil && busy == nil {
		err = s.checkCurrent(ctx, l, &before)
	}
	return out, nil, err
}

// judge folds the part of a batch that is new, or refuses the batch.
func (s *Service) judge(ctx context.Context, l *live, w *writer, batch *threadsvcv1.EventBatch, earlier *pending) (*outcome, error) {
	if err := s.admit(ctx, l, w, batch); err != nil {
		return s.notAdmitted(ctx, l, w, batch, err)
	}
	next := l.head.NextOffset
	if batch.GetOffset() > next {
		return refusedAt(l, errOffsetGap(next)), nil
	}
	again := min(next-batch.GetOffset(), uint64(len(batch.GetEvents())))
	if again > 0 {
		if err := s.compare(ctx, l, w, batch, again); err != nil {
			return refusedAt(l, err), nil
		}
	}
	out := s.fold(ctx, l, batch.GetEvents()[again:], earlier)
	l.delay(w.delay, earlier)
	return out, nil
}

// errStale says that another node had written the thread since it was loaded here; it has caught up, or been dropped.
var errStale = fmt.Errorf("service: the thread in memory is not current: %w", store.ErrConflict)

// checkCurrent returns errStale unless the thread's head as it was before the call is the one that is committed. The thread
// has caught up then, or been dropped. A commit finds that out by itself; what is refused, or answered without one, must be checked. The lock must
// be held, and nothing have been queued before the call.
func (s *Service) checkCurrent(ctx context.Context, l *live, before *store.Head) error {
	head, err := s.head(ctx, l.key)
	if errors.Is(err, store.ErrNotFound) {
		head, err = store.Head{}, nil
		if before.Version == 0 {
			return nil
		}
	}
	if err == nil && (head.Version != before.Version || head.Fence != before.Fence || head.Hash != before.Hash) {
		unchanged := l.head.Version == before.Version && l.head.Fence == before.Fence && l.head.StreamID == before.StreamID
		if err = errStale; unchanged && s.catchUp(ctx, l) {
			return err
		}
	}
	if err != nil {
		s.cache.drop(l)
	}
	return err
}

// refresh brings what is in memory of a thread up to date if another node has written it since: a producer that opens a stream may
// come from there, and would be told of a conflict otherwise.
func (s *Service) refresh(ctx context.Context, w *writer) {
	l, err := s.acquire(ctx, w.key, w.threadID)
	if err != nil {
		return // the first batch will tell
	}
	defer s.letGo(l)
	if l.busy() == nil {
		_ = s.checkCurrent(ctx, l, &l.head)
	}
}

// refusedOther is the outcome of a batch of another stream than the one that may append, whose progress is none of it.
func refusedOther(l *live, err error) *outcome { return &outcome{refused: err, commit: l.busy()} }

// refusedAt is the outcome of a batch of which nothing was taken.
func refusedAt(l *live, err error) *outcome {
	progress := &threadsvcv1.Progress{NextOffset: l.head.NextOffset, Version: l.head.Version, StateResyncDue: resyncMessage(l.thread)}
	return &outcome{progress: progress, refused: err, commit: l.busy()}
}

// fold applies the events and queues their entries. Without events it renews the lease, if there is one. earlier is what
// other calls have queued.
func (s *Service) fold(ctx context.Context, l *live, events [][]byte, earlier *pending) *outcome {
	if len(events) == 0 && l.head.ActiveRun == "" {
		return refusedAt(l, nil)
	}
	p := l.pend()
	out := &outcome{progress: &threadsvcv1.Progress{}, commit: p}
	scratch := entryBuffers.get(0)
	defer func() { entryBuffers.put(scratch) }()
	for _, event := range events {
		offset := l.head.NextOffset
		if out.refused = s.checkNewRun(ctx, l, event); out.refused != nil {
			break
		}
		applied, v := l.thread.ApplyTo(scratch, offset, event)
		if v != nil {
			out.refused = l.refuse(p, v, offset)
			break
		}
		l.add(p, &applied, offset, offset+1)
		scratch = applied.Stored
		out.progress.Warnings = appendWarnings(out.progress.Warnings, applied.Warnings, offset, applied.RunID, l.head.Version)
	}
	l.seal(p)
	out.progress.NextOffset, out.progress.Version = l.head.NextOffset, l.head.Version
	out.progress.StateResyncDue = resyncMessage(l.thread)
	if out.refused != nil && p != earlier && p.bytes == 0 { // the batch brought nothing, not even a run
		s.forget(l, p)
		out.commit = l.inflight
	}
	return out
}

// forget cancels a pending commit that turned out to be empty. If a stream was opened for it, the thread is dropped, since
// nobody may ever continue that stream.
func (s *Service) forget(l *live, p *pending) {
	l.cancel(p)
	if l.head.Fence != p.commit.ExpectFence || p.commit.Create != nil {
		s.cache.drop(l)
	}
}

// refuse closes the run because of a violation, unless the violation leaves it open.
func (l *live) refuse(p *pending, v *agui.Violation, offset uint64) error {
	if !v.Fatal() {
		return errViolation(v, offset, false)
	}
	applied := l.thread.Fail(offset, v)
	if applied.Entries == 0 {
		return errViolation(v, offset, false)
	}
	l.add(p, &applied, offset, offset)
	l.countWarnings(p, applied.RunID, 1)
	p.commit.Warnings = append(p.commit.Warnings, store.Warning{
		Version: l.head.Version, RunID: applied.RunID, Offset: offset, Fatal: true,
		Warning: agui.Warning{Code: v.Code, Path: v.Path, Detail: v.Detail},
	})
	return errViolation(v, offset, true)
}

// gatherBytes is the size of what a thread has queued beyond which nothing is gained by gathering more.
const gatherBytes = 64 << 10

// delay lets the committer gather for a while what a batch has queued. It does not delay what others had queued before.
func (l *live) delay(d time.Duration, earlier *pending) {
	switch p := l.queued; {
	case p == nil:
	case d == 0 || p.bytes >= gatherBytes:
		p.due = time.Time{}
	case p != earlier:
		p.due = time.Now().Add(d)
	}
}
