package service

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/threadsvc/threadsvc/store"
)

const (
	// mergeInterval is how often the merger looks for runs that are over.
	mergeInterval = 2 * time.Second
	// mergePause is the least time between two runs: servers that meet at the same one do not spin.
	mergePause = time.Millisecond
	// mergePage is how many of them it takes at once.
	mergePage = 64
	// maxGrown bounds the runs that are noted to have grown; one that is left out is noted again when it has grown further.
	maxGrown = 4096
)

// merger joins the log segments of runs that are over into large ones, in the background and within a rate: streams
// that are acknowledged event by event leave many small ones. Once a run's are joined, the thread gets the checkpoints it
// needs; so it does while a long run is going on. Several servers may do so at once.
type merger struct {
	store  store.Store
	cfg    Config
	lay    func(context.Context, store.RunPlace) (replayed int64, err error)
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu    sync.Mutex           // guards grown
	grown map[store.Key]uint64 // threads with a run that goes on, and up to where it is folded
}

func newMerger(st store.Store, cfg Config, lay func(context.Context, store.RunPlace) (int64, error)) *merger {
	ctx, cancel := context.WithCancel(context.Background())
	m := &merger{store: st, cfg: cfg, lay: lay, cancel: cancel, grown: map[store.Key]uint64{}}
	if cfg.MergeRate > 0 {
		m.done.Go(func() { m.run(ctx) })
	}
	return m
}

// close stops the merger and waits for it.
func (m *merger) close() {
	m.cancel()
	m.done.Wait()
}

func (m *merger) run(ctx context.Context) {
	for pause(ctx, mergeInterval) {
		for m.round(ctx) {
		}
		m.follow(ctx)
	}
}

// grew notes that a run that goes on has been folded up to a version: since the last time it has grown by as much as a
// checkpoint may be worth. It never blocks.
func (m *merger) grew(at store.RunPlace) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, noted := m.grown[at.Key]; m.cfg.MergeRate > 0 && (noted || len(m.grown) < maxGrown) {
		m.grown[at.Key] = at.LastVersion
	}
}

// follow gives threads with runs that have grown the checkpoints that they need meanwhile.
func (m *merger) follow(ctx context.Context) {
	m.mu.Lock()
	grown := m.grown
	m.grown = map[store.Key]uint64{}
	m.mu.Unlock()
	for key, version := range grown {
		if !m.checkpoints(ctx, store.RunPlace{Key: key, LastVersion: version}, 0) {
			return
		}
	}
}

// checkpoints lays those of a thread up to a version and pauses, for what was merged before too. It reports whether the
// context still holds.
func (m *merger) checkpoints(ctx context.Context, at store.RunPlace, merged int64) bool {
	replayed, err := m.lay(ctx, at)
	if err != nil && !m.recovered(ctx, err) {
		return false
	}
	wait := time.Duration(float64(merged+replayed) / float64(m.cfg.MergeRate) * float64(time.Second))
	return pause(ctx, max(wait, mergePause))
}

// round merges one page of runs and reports whether there may be more. A run that cannot be merged keeps none from it.
func (m *merger) round(ctx context.Context) bool {
	listCtx, cancel := context.WithTimeout(ctx, m.cfg.StoreTimeout)
	places, err := m.store.Unmerged(listCtx, mergePage)
	cancel()
	if err != nil {
		m.failed(ctx, err)
		return false
	}
	progress := false
	for _, at := range places {
		mergeCtx, cancel := context.WithTimeout(ctx, m.cfg.StoreTimeout)
		merged, err := m.store.Merge(mergeCtx, at)
		cancel()
		if err != nil {
			if !m.recovered(ctx, err) {
				return false
			}
			continue
		}
		progress = true
		if !m.checkpoints(ctx, at, merged) {
			return false
		}
	}
	return progress && len(places) == mergePage
}

func (m *merger) failed(ctx context.Context, err error) {
	if ctx.Err() == nil {
		m.cfg.Logger.Warn("merging segments failed", "error", err)
	}
}

// recovered notes a failure, waits if the database may be away, when the next attempt would fail as well, and reports
// whether the context still holds.
func (m *merger) recovered(ctx context.Context, err error) bool {
	m.failed(ctx, err)
	return !errors.Is(err, store.ErrUnavailable) || pause(ctx, mergeInterval)
}

// pause waits and reports whether the context still holds.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
