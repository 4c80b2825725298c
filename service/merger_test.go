package service

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/threadsvc/threadsvc/store"
)

// goneStore lists runs to merge, and is gone when they are to be merged.
type goneStore struct {
	store.Store
	merges atomic.Int32
}

func (s *goneStore) Unmerged(context.Context, int) ([]store.RunPlace, error) {
	return make([]store.RunPlace, mergePage), nil
}

func (s *goneStore) Merge(context.Context, store.RunPlace) (int64, error) {
	s.merges.Add(1)
	return 0, store.ErrUnavailable
}

// While the database is away the merger does not knock for every run of its page.
func TestMergerWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	gone := &goneStore{}
	m := &merger{store: gone, cfg: Config{Logger: slog.New(slog.NewTextHandler(&log, nil)), MergeRate: 1 << 20}.withDefaults()}
	ctx, cancel := context.WithTimeout(t.Context(), mergeInterval/4)
	defer cancel()
	started := time.Now()
	if m.round(ctx) {
		t.Error("the merger goes on")
	}
	if n, lines := gone.merges.Load(), strings.Count(log.String(), "\n"); n != 1 || lines != 1 {
		t.Errorf("%d attempts and %d lines in %v, want one", n, lines, time.Since(started))
	}
}
