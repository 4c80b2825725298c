package service

import (
	"context"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
)

// catchUpBytes is how much of the log is read to catch up; a thread that is further behind is loaded anew.
const catchUpBytes = 1 << 20

// catchUp brings a thread that other nodes have written up to date, by reading only what it misses. It reports whether it
// could; if not, the thread may be half way and must be dropped. The lock must be held, and what is in memory be what was
// committed at its version.
func (s *Service) catchUp(ctx context.Context, l *live) bool {
	if l.dead || !l.exists || l.busy() != nil || l.awaiting() {
		return false
	}
	ctx, cancel := s.storeContext(ctx)
	defer cancel()
	news, err := s.store.Since(ctx, l.key, l.head.Version, catchUpBytes)
	if err != nil || !l.follow(news) {
		return false
	}
	return l.head.StreamID == "" || s.loadStream(ctx, l) == nil
}

// awaiting reports whether the thread was prepared for a stream of which nothing is stored; others may have gone on
// differently.
func (l *live) awaiting() bool {
	return !l.thread.Running() && !l.thread.Over() && l.thread.RunID() != ""
}

// follow replays what has come since the thread's version. The chain of hashes tells whether that leads to the present head,
// which it does not if the thread was erased and made anew.
func (l *live) follow(news *store.Loaded) bool {
	for i := range news.Tail {
		if !l.followSegment(&news.Tail[i], news.Fold.Version) {
			return false
		}
	}
	if l.thread.Version() != news.Head.Version || l.thread.Hash() != news.Head.Hash {
		return false
	}
	l.head, l.run, l.recorded = news.Head, news.LastRun, false
	return true
}

// followSegment replays the entries of a segment that the thread does not have yet. At the version of the stored fold,
// another node has written what this thread had noted to be written.
func (l *live) followSegment(segment *store.Segment, foldVersion uint64) bool {
	entries, err := agui.DecodeEntries(segment.Entries)
	if segment.Err != nil || err != nil || segment.FirstVersion > l.thread.Version()+1 {
		return false
	}
	for i := range entries {
		version := segment.FirstVersion + uint64(i)
		if version <= l.thread.Version() {
			continue
		}
		stored := entries[i].Append(nil)
		if l.thread.Replay(&entries[i], stored) != nil {
			return false
		}
		l.tailBytes += len(stored)
		if version == foldVersion {
			l.thread.Settle()
			l.tailBytes = 0
		}
	}
	return true
}
