package service

import (
	"context"
	"math/rand/v2"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
)

// live is a thread kept folded in memory, at the version that all its queued entries amount to. Its fields are guarded
// by the lock, which is held by whoever folds into it and, briefly, by the committer; not while anything is written.
type live struct {
	key  store.Key
	lock chan struct{} // holds one token; a channel so that waiting obeys a context

	// thread is nil until the thread was loaded.
	thread *agui.Thread
	// head is the head row as it will be once everything queued is committed. A Version of 0 with exists false means
	// that nobody has made the thread yet.
	head   store.Head
	exists bool
	// run is the last run, nil if there is none; recorded tells whether the stream that may append was opened by its own
	// RUN_STARTED, so that it needs no token.
	run      *store.Run
	recorded bool

	fresh     bool     // it was loaded since the lock was taken
	suspect   bool     // a commit failed because of a run id that was taken, so they are looked up
	tailBytes int      // of the log since the stored fold
	queued    *pending // what has been folded and not been taken by the committer
	inflight  *pending // what the committer is writing
	offered   bool     // it is in the committer's queue
	dead      bool     // dropped from the cache: a commit failed, or it was evicted
}

func newLive(key store.Key) *live {
	l := &live{key: key, lock: make(chan struct{}, 1)}
	l.lock <- struct{}{}
	return l
}

// acquire takes the lock, or returns the context's error.
func (l *live) acquire(ctx context.Context) error {
	select {
	case <-l.lock:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *live) tryAcquire() bool {
	select {
	case <-l.lock:
		return true
	default:
		return false
	}
}

func (l *live) release() { l.lock <- struct{}{} }

// busy returns the last commit that is not done yet, nil if there is none. The lock must be held.
func (l *live) busy() *pending {
	if l.queued != nil {
		return l.queued
	}
	return l.inflight
}

// memory estimates what the thread takes, in bytes. A parsed state takes several times its text.
func (l *live) memory() int64 {
	const overhead = 8 << 10
	if l.thread == nil {
		return overhead
	}
	overall := overhead + int64(len(l.thread.Input()))
	messages := int64(l.thread.Size() - l.thread.StateSize())
	return overall + 2*messages + 8*int64(l.thread.StateSize()) + 300*int64(l.thread.MessageCount())
}

// load reads the thread, or makes an empty one if it does not exist.
func (l *live) load(threadID string, loaded *store.Loaded, lim agui.Limits) ([]error, error) {
	if loaded == nil {
		l.thread = agui.NewThread(threadID, lim)
		l.head = store.Head{Key: l.key, ThreadID: threadID, Fence: firstFence()}
		return nil, nil
	}
	thread, unreadable, err := restore(threadID, loaded, lim)
	if err != nil {
		return nil, err
	}
	l.thread, l.head, l.run, l.exists = thread, loaded.Head, loaded.LastRun, true
	for _, segment := range loaded.Tail {
		l.tailBytes += len(segment.Entries)
	}
	return unreadable, nil
}

// firstFence is where the fencing tokens of a new thread start: anywhere, so that a token of a thread of the same name that
// was deleted is none of this one.
func firstFence() uint64 { return rand.Uint64N(1 << 48) }

// restore makes the thread that was loaded. Entries that cannot be read are passed over and returned as errors.
func restore(threadID string, loaded *store.Loaded, lim agui.Limits) (*agui.Thread, []error, error) {
	thread, err := agui.Restore(threadID, loaded.Fold, [32]byte{}, lim)
	if err != nil {
		return nil, nil, err
	}
	var unreadable []error
	for _, segment := range loaded.Tail {
		thread.Skip(segment.FirstVersion - 1) // the end of the segment before may have been unreadable
		if segment.Err != nil {
			unreadable = append(unreadable, segment.Err)
			thread.Skip(segment.LastVersion)
			continue
		}
		unreadable = append(unreadable, thread.ReplayAll(segment.Entries)...)
	}
	thread.Seal(loaded.Head.Version, loaded.Head.Hash)
	return thread, unreadable, nil
}
