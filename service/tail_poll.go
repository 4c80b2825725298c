package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/threadsvc/threadsvc/store"
)

const (
	// tailPage is about how much of a log is read for a follower at once.
	tailPage = 256 << 10
	// maxPollPause bounds the time between two polls while the store fails.
	maxPollPause = 5 * time.Second
)

// startPolling starts the goroutine that asks the store how far the followed threads are.
func (h *tails) startPolling() {
	ctx, cancel := context.WithCancel(context.Background())
	h.stop = cancel
	h.poller.Go(func() { h.pollAll(ctx) })
}

// close stops the poller and waits for it.
func (h *tails) close() {
	h.stop()
	h.poller.Wait()
}

// pollAll polls while there is somebody who follows. The pause grows while the store fails, and is never shorter than what
// a poll takes.
func (h *tails) pollAll(ctx context.Context) {
	wait := h.cfg.TailPoll
	for pause(ctx, wait) {
		if h.followed.Load() == 0 {
			select {
			case <-h.joined:
			case <-ctx.Done():
			}
			continue
		}
		started := time.Now()
		err := h.poll(ctx)
		switch {
		case err == nil:
			wait = max(h.cfg.TailPoll, time.Since(started))
		case ctx.Err() == nil:
			wait = min(2*max(wait, h.cfg.TailPoll), max(maxPollPause, h.cfg.TailPoll))
			h.cfg.Logger.Warn("polling the followed threads failed", "error", err)
		}
	}
}

// poll asks, in one statement, how far the followed threads are, and tells those who follow them.
func (h *tails) poll(ctx context.Context) error {
	threads := h.all()
	keys := make([]store.Key, len(threads))
	for i, t := range threads {
		keys[i] = t.key
	}
	ctx, cancel := context.WithTimeout(ctx, h.cfg.StoreTimeout)
	defer cancel()
	positions, err := h.store.Positions(ctx, keys)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range threads {
		h.place(t, positions)
	}
	return nil
}

func (h *tails) all() []*tail {
	h.mu.Lock()
	defer h.mu.Unlock()
	threads := make([]*tail, 0, len(h.threads))
	for _, t := range h.threads {
		threads = append(threads, t)
	}
	return threads
}

// place notes what the store said of a thread, and reports whether it still is there. mu must be held.
func (h *tails) place(t *tail, positions map[store.Key]store.Position) bool {
	at, ok := positions[t.key]
	if !ok || !at.CreatedAt.Equal(t.created) {
		h.lose(t)
		return false
	}
	t.note(at.Version)
	return true
}

// read reads a piece of the log from the store. It makes sure, afterwards, that the thread is still the same one.
func (h *tails) read(ctx context.Context, t *tail, from uint64) ([]store.Segment, error) {
	select {
	case h.reads <- struct{}{}:
		defer func() { <-h.reads }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, h.cfg.StoreTimeout)
	defer cancel()
	segments, err := h.store.Log(ctx, t.key, from, tailPage)
	if err != nil {
		return nil, err
	}
	positions, err := h.store.Positions(ctx, []store.Key{t.key})
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.place(t, positions) {
		return nil, errThreadNotFound
	}
	if len(segments) == 0 {
		return nil, fmt.Errorf("service: the log of %s ends before version %d", t.key, from)
	}
	return segments, nil
}

// fill reads what was committed elsewhere, once for all followers: it does nothing while another one is at it.
func (h *tails) fill(ctx context.Context, t *tail) error {
	from, ok := h.beginFill(t)
	if !ok {
		return nil
	}
	var segments []store.Segment
	defer func() { h.endFill(t, segments) }()
	segments, err := h.read(ctx, t, from)
	var pruned *store.PrunedError
	if errors.As(err, &pruned) { // which concerns those who have not read that far
		h.skip(t, pruned.FirstVersion)
		return nil
	}
	return err
}

// skip passes over what was pruned before anybody here has read it.
func (h *tails) skip(t *tail, version uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if version <= t.end {
		return
	}
	for _, c := range t.recent {
		h.bytes -= c.bytes
	}
	h.recent = slices.DeleteFunc(h.recent, func(c *chunk) bool { return c.tail == t })
	t.recent, t.end, t.known = nil, version, max(t.known, version)
	t.wake()
}

func (h *tails) beginFill(t *tail) (from uint64, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.filling || t.known == t.end {
		return 0, false
	}
	t.filling = true
	return t.end + 1, true
}

// endFill keeps what was read. Nothing was if the read failed; then the next follower tries.
func (h *tails) endFill(t *tail, segments []store.Segment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.filling = false
	h.keep(t, segments)
	t.wake()
}
