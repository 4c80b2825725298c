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
)

// merger joins the log segments of runs that are over into large ones, in the background and within a rate: streams
// that are acknowledged event by event leave many small ones. Once a run's are joined, the thread gets the checkpoints it
// needs. Several servers may do so at once.
type merger struct {
	store  store.Store
	cfg    Config
	lay    func(context.Context, store.RunPlace) (replayed int64, err error)
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func newMerger(st store.Store, cfg Config, lay func(context.Context, store.RunPlace) (int64, error)) *merger {
	ctx, cancel := context.WithCancel(context.Background())
	m := &merger{store: st, cfg: cfg, lay: lay, cancel: cancel}
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
	}
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
		replayed, err := m.lay(ctx, at)
		if err != nil && !m.recovered(ctx, err) {
			return false
		}
		merged += replayed
		wait := time.Duration(float64(merged) / float64(m.cfg.MergeRate) * float64(time.Second))
		if !pause(ctx, max(wait, mergePause)) {
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
