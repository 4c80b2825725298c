package service

import (
	"context"
	"sync"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
)

// spacing is by how much the log grows from one checkpoint to the next, where a context has a size: half as much again. A moment is
// then read from a checkpoint by a replay of, on average, three quarters as much log as the context is, and a byte of log costs
// two thirds of a byte of checkpoints.
func spacing(context int64) int64 { return context + context/2 }

// checkpointDue reports whether a context of a size is to be kept, after log of a size by which it has grown so much.
func (s *Service) checkpointDue(context, size, grown int64) bool {
	return size >= s.cfg.CheckpointBytes && grown >= spacing(context)
}

// layCheckpoints gives a thread the checkpoints that its log up to a place in a run, mostly its end, asks for (checkpointDue).
// It returns how many bytes of log it has replayed. It holds one thread at a time, and only if there is something to do.
func (s *Service) layCheckpoints(ctx context.Context, at store.RunPlace) (replayed int64, err error) {
	until := at.LastVersion
	storeCtx, cancel := s.storeContext(ctx)
	since, err := s.store.SinceCheckpoint(storeCtx, at.Key, until)
	cancel()
	if err != nil || !since.Room || !s.checkpointDue(since.Size, since.LogSize, since.Grown) || !s.walks.due(at.Key, &since) {
		return 0, err
	}
	head, err := s.head(ctx, at.Key)
	if err != nil {
		return 0, err
	}
	thread, err := s.checkpointAt(ctx, at.Key, head.ThreadID, since.Version)
	if err != nil {
		return 0, err
	}
	layer := checkpointLayer{service: s, key: at.Key, thread: thread}
	for thread.Version() < until && !layer.damaged && err == nil {
		err = layer.page(ctx, until)
	}
	if err == nil {
		s.walks.note(at.Key, newWalk(&since, int64(thread.Size())))
	}
	return layer.replayed, err
}

// checkpointLayer walks along a log.
type checkpointLayer struct {
	service  *Service
	key      store.Key
	thread   *agui.Thread
	size     int64 // of the log since the last checkpoint, or since the last attempt
	grown    int64 // and by how much it has grown
	replayed int64
	damaged  bool // what cannot be read leaves nothing to build on
}

// page replays the next segments, and lays checkpoints between them.
func (l *checkpointLayer) page(ctx context.Context, until uint64) error {
	segments, err := l.service.logSegments(ctx, l.key, l.thread.Version()+1)
	if err != nil {
		return err
	}
	l.damaged = len(segments) == 0
	for i := range segments {
		segment := &segments[i]
		if segment.LastVersion > until || l.damaged {
			l.damaged = l.damaged || l.thread.Version() < until
			return nil
		}
		if l.damaged = len(replayUntil(l.thread, segment, until, replayEntry(l.thread))) > 0; l.damaged {
			return nil
		}
		l.replayed += int64(len(segment.Entries))
		l.size, l.grown = l.size+int64(len(segment.Entries)), l.grown+segment.Grown()
		if !l.service.checkpointDue(int64(l.thread.Size()), l.size, l.grown) {
			continue
		}
		if err := l.lay(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (l *checkpointLayer) lay(ctx context.Context) error {
	l.size, l.grown = 0, 0
	ctx, cancel := l.service.writeContext(ctx)
	defer cancel()
	_, err := l.service.store.PutCheckpoint(ctx, l.key, store.Checkpoint{Fold: l.thread.Fold(), Hash: l.thread.Hash()})
	return err
}

// maxWalks bounds how many threads are remembered whose log was walked along.
const maxWalks = 1 << 14

// walks remembers how much log a thread must have before another walk along it may lay a checkpoint: whether one is due is only
// known from the context at the end of a walk, which may be much larger than the last checkpoint. So a log is replayed
// whenever it has grown by half, and not at the end of each run: three times, all walks together. Waiting for longer than that
// would pass over a context that has shrunk.
type walks struct {
	mu    sync.Mutex
	after map[store.Key]walk
}

// walk is what one came to.
type walk struct {
	from  uint64 // the version of the checkpoint it began at
	grown int64  // the growth of the log since then
	due   int64  // the growth at which another is worth its while
}

// newWalk is one that has come to a context of a size.
func newWalk(since *store.LogSince, context int64) walk {
	return walk{from: since.Version, grown: since.Grown, due: min(spacing(context), since.Grown+since.Grown/2)}
}

// due reports whether the log since a checkpoint has grown enough for another walk. One that has grown less than before is another
// thread's, of the same name.
func (w *walks) due(key store.Key, since *store.LogSince) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, known := w.after[key]
	return !known || last.from != since.Version || since.Grown < last.grown || since.Grown >= last.due
}

func (w *walks) note(key store.Key, done walk) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.after == nil || len(w.after) >= maxWalks {
		w.after = map[store.Key]walk{} // each is walked along once more
	}
	w.after[key] = done
}
