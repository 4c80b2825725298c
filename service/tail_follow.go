package service

import (
	"context"
	"fmt"
	"math"
	"runtime/debug"
	"sync/atomic"
	"time"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
)

// follower is one caller who follows a log.
type follower struct {
	tails    *tails
	tail     *tail
	draining <-chan struct{}
	send     func(*threadsvcv1.ReadLogResponse) error

	next     atomic.Uint64 // the version to be sent next
	began    time.Time     // when the call began
	blocked  atomic.Int64  // since when a message is being sent, in nanoseconds after began; 0 if none is
	caughtUp uint64        // the version beyond which the caller is told that it has caught up
	told     bool          // it was
	until    uint64        // the last version to be sent when the server drains
}

// follow sends a log from a version on until the caller leaves. The sending is done by a goroutine of its own, since
// nothing but the end of the call wakes one that waits for a caller who does not read.
func (s *Service) follow(ctx context.Context, key store.Key, from uint64, send func(*threadsvcv1.ReadLogResponse) error) error {
	if s.draining() {
		return errShuttingDown
	}
	t, err := s.joinTail(ctx, key, from)
	if err != nil {
		return err
	}
	defer s.tails.leave(t)
	f := &follower{tails: s.tails, tail: t, draining: s.drain, send: send, until: math.MaxUint64, began: time.Now()}
	f.next.Store(from)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	s.streams.Go(func() { done <- f.runSafely(ctx) })
	return f.await(done, s.cfg.ReaderTimeout)
}

// joinTail adds a follower to a thread.
func (s *Service) joinTail(ctx context.Context, key store.Key, from uint64) (*tail, error) {
	for range maxAttempts {
		head, err := s.head(ctx, key)
		if err != nil {
			return nil, err
		}
		if err := checkEntryKept(&head, from); err != nil {
			return nil, err
		}
		if from > head.Version+1 {
			return nil, errField("from_version", "is beyond the thread's next version, "+number(head.Version+1))
		}
		if t, ok := s.tails.join(&head); ok {
			return t, nil
		}
	}
	return nil, errThreadNotFound
}

// await waits for the end, or until a message has waited for too long to be taken.
func (f *follower) await(done <-chan error, patience time.Duration) error {
	ticker := time.NewTicker(max(patience/8, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-ticker.C: // Since does not follow a clock that is set
			if since := f.blocked.Load(); since != 0 && int64(time.Since(f.began))-since > int64(patience) {
				return errTooSlow(f.next.Load())
			}
		}
	}
}

func errTooSlow(from uint64) *refusal {
	return refuse(threadsvcv1.ErrorReason_ERROR_REASON_READER_TOO_SLOW, "what was committed was not read in time", "from_version", number(from))
}

// runSafely is run, where a panic ends the call and not the server.
func (f *follower) runSafely(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("service: panic while following: %v\n%s", r, debug.Stack())
		}
	}()
	return f.run(ctx)
}

func (f *follower) run(ctx context.Context) error {
	f.caughtUp = f.tails.look(f.tail, math.MaxUint64).known
	for {
		v := f.tails.look(f.tail, f.next.Load())
		if err := f.ended(ctx, &v); err != nil {
			return err
		}
		var err error
		switch {
		case len(v.chunks) > 0:
			err = f.sendChunks(v.chunks)
		case v.stored:
			err = f.sendStored(ctx, v.known)
		case v.fill:
			err = f.tails.fill(ctx, f.tail)
		default:
			err = f.wait(ctx, v.changed)
		}
		if err != nil {
			return err
		}
	}
}

// ended tells the caller once that it has caught up, and reports whether the call is at its end.
func (f *follower) ended(ctx context.Context, v *view) error {
	next := f.next.Load()
	if f.until == math.MaxUint64 && closed(f.draining) {
		f.until = v.known
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case v.gone:
		return errThreadNotFound
	}
	if !f.told && next > f.caughtUp {
		f.told = true
		if err := f.put(&threadsvcv1.ReadLogResponse{CaughtUpVersion: next - 1}, next); err != nil {
			return err
		}
	}
	if next > f.until {
		return errShuttingDown
	}
	return nil
}

// wait waits until there is something new, or the server begins to drain.
func (f *follower) wait(ctx context.Context, changed <-chan struct{}) error {
	draining := f.draining
	if f.until != math.MaxUint64 {
		draining = nil
	}
	select {
	case <-changed:
	case <-draining:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// sendChunks sends what is in memory.
func (f *follower) sendChunks(chunks []*chunk) error {
	for _, c := range chunks {
		for _, message := range c.messages() {
			if message = since(message, f.next.Load()); message == nil {
				continue
			}
			if err := f.put(message, after(message)); err != nil {
				return err
			}
		}
		f.next.Store(c.last + 1)
	}
	return nil
}

// sendStored sends a piece that is not in memory any more. Once that is made up for the caller is told.
func (f *follower) sendStored(ctx context.Context, known uint64) error {
	from := f.next.Load()
	segments, err := f.tails.read(ctx, f.tail, from)
	if err != nil {
		return err
	}
	if f.told {
		f.told, f.caughtUp = false, known
	}
	out := logSender{send: func(m *threadsvcv1.ReadLogResponse) error { return f.put(m, after(m)) }}
	for i := range segments {
		if err := out.segment(&segments[i], from); err != nil {
			return err
		}
	}
	err = out.flush()
	f.next.Store(segments[len(segments)-1].LastVersion + 1)
	return err
}

// put sends a message, after which the caller goes on with version next.
func (f *follower) put(message *threadsvcv1.ReadLogResponse, next uint64) error {
	f.blocked.Store(max(int64(time.Since(f.began)), 1))
	defer f.blocked.Store(0)
	if err := f.send(message); err != nil {
		return err
	}
	f.next.Store(next)
	return nil
}

// after is the version after those that a message completes.
func after(m *threadsvcv1.ReadLogResponse) (next uint64) {
	if n := len(m.GetEntries()); n > 0 {
		next = m.GetEntries()[n-1].GetVersion()
		if !m.GetEntries()[n-1].GetPayloadContinues() {
			next++
		}
	}
	if n := len(m.GetUnreadable()); n > 0 {
		next = max(next, m.GetUnreadable()[n-1].GetLastVersion()+1)
	}
	return next
}

// since is the part of a message from a version on, nil if there is none. The message itself is not changed.
func since(m *threadsvcv1.ReadLogResponse, from uint64) *threadsvcv1.ReadLogResponse {
	part := &threadsvcv1.ReadLogResponse{Entries: m.GetEntries()}
	for len(part.Entries) > 0 && part.Entries[0].GetVersion() < from {
		part.Entries = part.Entries[1:]
	}
	for _, r := range m.GetUnreadable() {
		if r.GetLastVersion() >= from {
			first := max(r.GetFirstVersion(), from)
			part.Unreadable = append(part.Unreadable, &threadsvcv1.UnreadableRange{FirstVersion: first, LastVersion: r.GetLastVersion()})
		}
	}
	switch {
	case len(part.Entries) == len(m.GetEntries()) && len(m.GetUnreadable()) == 0:
		return m
	case len(part.Entries) == 0 && len(part.Unreadable) == 0:
		return nil
	}
	return part
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
