package service

import (
	"errors"
	"fmt"
	"io"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/archive"
)

// errArchive is what is wrong with an exported file: with its form, or with what it says.
type errArchive struct{ err error }

func (e *errArchive) Error() string { return e.err.Error() }
func (e *errArchive) Unwrap() error { return e.err }

func badArchive(format string, args ...any) error { return &errArchive{fmt.Errorf(format, args...)} }

// archiveSink takes what an archive holds, once it is judged. Nil functions take nothing.
type archiveSink struct {
	cut     func(store.Checkpoint) error
	segment func(*store.Segment) error
	run     func(*store.Run) error
	warning func(*store.Warning) error
}

// judge reads an archive, whose head was read, to its end: the log must be the one that was hashed and fold into a thread
// within limits, and the rows must belong to it. It returns that thread. What is wrong with the archive is errArchive, or
// archive.ErrInvalid.
func judge(in *archive.Reader, head *store.Head, lim agui.Limits, sink archiveSink) (*agui.Thread, error) {
	j := judgement{head: head, lim: lim, sink: sink, thread: agui.NewThread(head.ThreadID, lim), runs: head.PrunedRuns}
	j.thread.ReplayWithinLimits()
	for {
		part, err := in.Next()
		if errors.Is(err, io.EOF) {
			return j.thread, j.end()
		}
		if err == nil {
			err = j.take(part)
		}
		if err != nil {
			return nil, err
		}
	}
}

type judgement struct {
	head   *store.Head
	lim    agui.Limits
	sink   archiveSink
	thread *agui.Thread
	runs   int64
	active string
}

func (j *judgement) take(part any) error {
	if _, fold := part.(*agui.Fold); !fold && j.thread.Version() < j.head.FirstVersion {
		return badArchive("there is no fold of version %d", j.head.FirstVersion)
	}
	switch part := part.(type) {
	case *agui.Fold:
		return j.fold(part)
	case *store.Segment:
		return j.segment(part)
	case *store.Run:
		return j.run(part)
	case *store.Warning:
		if part.Version > j.head.Version || part.Version <= j.head.FirstVersion && j.head.FirstVersion > 0 || checkOptionalID("run", part.RunID) != nil {
			return badArchive("a warning of version %d", part.Version)
		}
		if j.sink.warning != nil {
			return j.sink.warning(part)
		}
	}
	return nil
}

// fold begins with what the log that was cut amounts to.
func (j *judgement) fold(fold *agui.Fold) error {
	h := j.head
	if fold.Version != h.FirstVersion || fold.Version > h.Version || h.PrunedRuns < 1 || h.PrunedRuns >= h.Runs {
		return badArchive("a fold of version %d", fold.Version)
	}
	thread, err := agui.RestoreForeign(h.ThreadID, *fold, h.FirstHash, j.lim)
	if err != nil {
		return &errArchive{err}
	}
	if thread.Size() > j.lim.Context {
		return errTooLarge
	}
	j.thread = thread
	j.thread.ReplayWithinLimits()
	if j.sink.cut != nil {
		return j.sink.cut(store.Checkpoint{Fold: *fold, Hash: h.FirstHash})
	}
	return nil
}

// segment folds entries.
func (j *judgement) segment(s *store.Segment) error {
	if s.LastVersion > j.head.Version || checkOptionalID("run", s.RunID) != nil || checkOptionalID("stream", s.StreamID) != nil {
		return badArchive("entries up to version %d of %d", s.LastVersion, j.head.Version)
	}
	err := agui.EachEntry(s.Entries, func(entry *agui.Entry, stored []byte) error {
		if err := j.thread.Replay(entry, stored); err != nil {
			return &errArchive{err}
		}
		if j.thread.Size() > j.lim.Context {
			return errTooLarge
		}
		return nil
	})
	switch {
	case errors.Is(err, agui.ErrEntryCorrupt):
		return badArchive("entries of versions %d to %d do not decode", s.FirstVersion, s.LastVersion)
	case err != nil:
		return err
	case j.thread.Version() != s.LastVersion:
		return badArchive("there are entries up to version %d instead of %d", j.thread.Version(), s.LastVersion)
	}
	if j.sink.segment != nil {
		return j.sink.segment(s)
	}
	return nil
}

func (j *judgement) run(r *store.Run) error {
	j.runs++
	active := r.Status == store.RunActive
	switch {
	case r.Ordinal != j.runs || checkID("run", r.RunID) != nil || checkOptionalID("parent", r.ParentRunID) != nil || checkID("stream", r.StreamID) != nil:
		return badArchive("run %d follows run %d", r.Ordinal, j.runs-1)
	case statuses[r.Status] == 0 || active != r.EndedAt.IsZero() || active != (r.LastVersion == 0):
		return badArchive("run %d is neither active nor over", r.Ordinal)
	case r.FirstVersion <= j.head.FirstVersion || r.FirstVersion > j.head.Version || r.LastVersion > j.head.Version || !active && r.LastVersion < r.FirstVersion:
		return badArchive("run %d has versions %d to %d of %d", r.Ordinal, r.FirstVersion, r.LastVersion, j.head.Version)
	}
	if j.active = ""; active {
		j.active = r.RunID
	}
	if j.sink.run != nil {
		return j.sink.run(r)
	}
	return nil
}

// end judges the whole.
func (j *judgement) end() error {
	switch {
	case j.thread.Version() != j.head.Version:
		return badArchive("the log ends at version %d instead of %d", j.thread.Version(), j.head.Version)
	case j.thread.Hash() != j.head.Hash:
		return badArchive("the log is not the one that was hashed")
	case j.runs != j.head.Runs || j.active != j.head.ActiveRun || j.active != "" && !j.thread.Running():
		return badArchive("there are %d runs instead of %d, or another one is active", j.runs, j.head.Runs)
	}
	return nil
}

// VerifyArchive judges an exported thread without a database: that the file is whole, that its log is the one that was
// hashed and can be folded, and that its rows belong to it. It returns the head that the file has.
func VerifyArchive(in io.Reader, lim agui.Limits) (store.Head, error) {
	reader := archive.NewReader(in, archiveFrame(lim))
	part, err := reader.Next()
	if err != nil {
		return store.Head{}, err
	}
	written, ok := part.(*archive.Head)
	if !ok {
		return store.Head{}, badArchive("it has no head")
	}
	head, err := written.Store(written.Tenant)
	if err == nil {
		_, err = judge(reader, &head, lim, archiveSink{})
	}
	return head, err
}

// archiveFrame is the largest frame that is read: values of the largest size that an event may have, in base64, a few times;
// or an entry with a whole context.
func archiveFrame(lim agui.Limits) int { return max(6*lim.Event, 2*lim.Context) + 8<<20 }
