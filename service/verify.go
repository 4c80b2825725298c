package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
)

// FindingKind says what of a thread does not agree with its log. The names are those of the contract.
type FindingKind string

// The kinds of findings.
const (
	// FindingLog: entries are missing or cannot be read.
	FindingLog FindingKind = "LOG"
	// FindingHash: the hash of the log is another one, somewhere in the range.
	FindingHash FindingKind = "LOG_HASH"
	// FindingState: the state, or a part of what it is stored as.
	FindingState FindingKind = "STATE"
	// FindingMessages: a message.
	FindingMessages FindingKind = "MESSAGES"
	// FindingTracking: what is remembered of the runs.
	FindingTracking FindingKind = "TRACKING"
	// FindingCheckpoint: a checkpoint.
	FindingCheckpoint FindingKind = "CHECKPOINT"
	// FindingHead: where the thread stands, or its metadata.
	FindingHead FindingKind = "HEAD"
	// FindingRun: the row of a run.
	FindingRun FindingKind = "RUN"
)

// Finding is something that does not agree with the log, in a range of versions. It holds no contents.
type Finding struct {
	FirstVersion, LastVersion uint64
	Kind                      FindingKind
	Detail                    string
}

// String is the finding as one line.
func (f *Finding) String() string {
	if f.FirstVersion == f.LastVersion {
		return fmt.Sprintf("version %d: %s: %s", f.FirstVersion, f.Kind, f.Detail)
	}
	return fmt.Sprintf("versions %d to %d: %s: %s", f.FirstVersion, f.LastVersion, f.Kind, f.Detail)
}

// Verification is how Verify reports. Its functions are called by the goroutine that called Verify.
type Verification struct {
	// Timeout bounds each call of the store; 0 means 30 seconds.
	Timeout time.Duration
	// Found is called with each finding, Progress now and then with the version reached and the last. Nil: nobody is told.
	Found    func(Finding)
	Progress func(version, last uint64)
}

// Verify recomputes a thread from its log, and compares what is stored: the chain of hashes, the fold with its state,
// messages and tracking, the checkpoints, the head, and the rows of runs as far as they follow from the log. It reads one
// moment of the thread, which may go on meanwhile, and holds its context and 4 MiB of its log in memory. It returns the
// head that it verified. Not covered, since nothing else says it: the fencing token and lease, the time of creation, run
// rows' input hashes and times, and the ledger of warnings.
//
// Of a thread whose log was cut it verifies what is kept, beginning with the fold at the cut. Should the thread be pruned
// meanwhile it begins again, if nothing was found yet; otherwise the error is store.ErrPruned.
func Verify(ctx context.Context, st store.Store, key store.Key, v Verification) (store.Head, error) {
	orElse(&v.Timeout, 30*time.Second)
	if v.Found == nil {
		v.Found = func(Finding) {}
	}
	if v.Progress == nil {
		v.Progress = func(uint64, uint64) {}
	}
	for attempt := 1; ; attempt++ {
		r := &verifier{Verification: v, st: st, key: key}
		err := r.verify(ctx)
		if err == nil {
			return *r.head, nil
		}
		if !errors.Is(err, store.ErrPruned) || r.told > 0 || attempt == maxAttempts {
			return store.Head{}, err
		}
	}
}

func (r *verifier) verify(ctx context.Context) error {
	readCtx, cancel := context.WithTimeout(ctx, r.Timeout)
	evidence, err := r.st.Evidence(readCtx, r.key)
	cancel()
	if err != nil {
		return err
	}
	r.evidence, r.head = evidence, &evidence.Head
	r.thread, r.patches = agui.NewThread(r.head.ThreadID, agui.DefaultLimits()), newPatchCheck(evidence)
	if err := r.begin(ctx); err != nil {
		return err
	}
	r.thread.WatchState(func(e agui.StateEffect) { r.effects = append(r.effects, e) })
	r.checkHead()
	if err := r.walk(ctx); err != nil {
		return errors.Join(err, r.stillKept(ctx))
	}
	if err := r.finish(ctx); err != nil {
		return err
	}
	return r.tell(ctx)
}

// verifier walks along one log.
type verifier struct {
	Verification
	st       store.Store
	key      store.Key
	evidence *store.Evidence
	head     *store.Head

	thread    *agui.Thread
	effects   []agui.StateEffect // of the entry that was replayed last
	confirmed uint64             // the last version whose hash is known to be right
	lost      bool               // entries are missing: nothing after them can be compared
	unfolded  bool               // entries cannot be folded: the fold cannot be compared
	blind     bool               // the fold that the log begins with cannot be read: no entry can be folded
	patches   patchCheck
	cuts      int            // checkpoints that were
	last      *store.Segment // that the head's version lies in
	run       runCheck
	findings  []Finding // that nobody was told of yet
	told      int       // how many were
}

func (r *verifier) found(kind FindingKind, first, last uint64, format string, args ...any) {
	r.findings = append(r.findings, Finding{FirstVersion: first, LastVersion: last, Kind: kind, Detail: fmt.Sprintf(format, args...)})
}

// checkHead compares what the head says of itself.
func (r *verifier) checkHead() {
	h := r.head
	if store.KeyOf(h.Tenant, h.ThreadID) != h.Key {
		r.found(FindingHead, h.Version, h.Version, "the name is not that of the key")
	}
	if r.evidence.MetadataAltered {
		r.found(FindingHead, h.Version, h.Version, "the metadata were altered")
	}
	metadata, err := readMetadata("metadata", h.Metadata.Text)
	if want := metadata.KeptLabels(); err != nil || fmt.Sprintf("%q", want) != fmt.Sprintf("%q", h.Metadata.Labels) && len(want)+len(h.Metadata.Labels) > 0 {
		r.found(FindingHead, h.Version, h.Version, "the labels are not those of the metadata")
	}
	for _, fault := range r.evidence.Faults {
		r.found(FindingState, fault.Version, fault.Version, "%s cannot be read: %v", fault.What, fault.Err)
	}
}

// walk replays the log and compares on the way.
func (r *verifier) walk(ctx context.Context) error {
	if err := r.reached(ctx); err != nil {
		return err
	}
	for at := r.head.FirstVersion; at < r.head.Version; {
		readCtx, cancel := context.WithTimeout(ctx, r.Timeout)
		segments, err := r.st.Log(readCtx, r.key, at+1, logPage)
		cancel()
		if err != nil {
			return err
		}
		if len(segments) == 0 {
			if err := r.stillThere(ctx); err != nil {
				return err
			}
			r.loseTo(at+1, r.head.Version, "entries are missing")
			return r.tell(ctx)
		}
		for i := range segments {
			if at, err = r.segment(ctx, &segments[i], at); err != nil || at >= r.head.Version {
				break
			}
		}
		if err == nil {
			err = r.tell(ctx)
		}
		if err != nil {
			return err
		}
		r.Progress(at, r.head.Version)
	}
	return nil
}

// stillThere tells a thread that was deleted meanwhile from one whose log ends too early.
func (r *verifier) stillThere(ctx context.Context) error {
	readCtx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	_, err := r.st.Head(readCtx, r.key)
	return err
}

// loseTo notes that versions cannot be replayed.
func (r *verifier) loseTo(first, last uint64, format string, args ...any) {
	r.found(FindingLog, first, last, format, args...)
	r.lost = true
}

// segment replays a segment's entries after a version, and returns the version that it leads to.
func (r *verifier) segment(ctx context.Context, s *store.Segment, at uint64) (uint64, error) {
	if s.FirstVersion > at+1 {
		r.loseTo(at+1, min(s.FirstVersion-1, r.head.Version), "entries are missing")
	}
	last := min(s.LastVersion, r.head.Version)
	r.last = &store.Segment{StreamID: s.StreamID, NextOffset: s.NextOffset, LastVersion: s.LastVersion}
	version := s.FirstVersion - 1
	err := s.Err
	if err == nil {
		err = agui.EachEntry(s.Entries, func(entry *agui.Entry, stored []byte) error {
			if version++; version <= at || version > last || r.lost {
				return nil
			}
			if entry.Kind == agui.KindEvent && (entry.Offset < s.FirstOffset || entry.Offset >= s.NextOffset) {
				r.found(FindingLog, version, version, "the event's offset is not one of its segment's")
			}
			return r.entry(ctx, s, entry, stored)
		})
	}
	var broken *brokenCheckError
	switch {
	case errors.As(err, &broken):
		return at, broken.err
	case err != nil:
		r.loseTo(max(s.FirstVersion, at+1), last, "entries cannot be read: %v", err)
	case version != s.LastVersion:
		r.loseTo(max(s.FirstVersion, at+1), last, "there are %d entries for versions %d to %d", version+1-s.FirstVersion, s.FirstVersion, s.LastVersion)
	}
	return max(at, s.LastVersion), nil
}

// brokenCheckError is an error that ended the verification, and no finding.
type brokenCheckError struct{ err error }

func (e *brokenCheckError) Error() string { return e.err.Error() }

// entry replays an entry and compares what is stored of its version.
func (r *verifier) entry(ctx context.Context, s *store.Segment, entry *agui.Entry, stored []byte) error {
	r.effects = r.effects[:0]
	if err := r.thread.Replay(entry, stored); err != nil && !r.blind {
		version := r.thread.Version()
		r.found(FindingLog, version, version, "the entry cannot be folded")
		r.unfolded = true
	}
	r.run.entry(r.thread.Version(), s.RunID, entry)
	if err := r.reached(ctx); err != nil {
		return &brokenCheckError{err}
	}
	return nil
}

// reached compares what is stored of the version that the thread is at.
func (r *verifier) reached(ctx context.Context) error {
	version := r.thread.Version()
	e := r.evidence
	if patch, right := r.patches.reached(version, r.effects); !right && !r.unfolded {
		r.found(FindingState, patch.Version, patch.Version, "the stored patch is not that of the entries")
	}
	if e.Base.Patch != nil && e.Base.Version == version && !r.unfolded && !bytes.Equal(e.Base.Patch, r.thread.State(nil)) {
		r.found(FindingState, version, version, "the stored document is not the state")
	}
	if e.Folded && e.FoldVersion == version && !r.unfolded {
		r.checkFold()
	}
	if r.cuts < len(e.Checkpoints) && e.Checkpoints[r.cuts] == version {
		r.cuts++
		if err := r.checkCheckpoint(ctx); err != nil {
			return err
		}
	}
	return r.checkRun(ctx)
}

// checkFold compares the stored fold.
func (r *verifier) checkFold() {
	version, e := r.thread.Version(), r.evidence
	fold := r.thread.Fold()
	state := e.State
	if string(state) == "{}" {
		state = nil
	}
	if !bytes.Equal(state, fold.State) {
		r.found(FindingState, version, version, "the stored state is another one")
	}
	if !bytes.Equal(e.Tracking, fold.Tracking) {
		r.found(FindingTracking, version, version, "what is remembered of the runs is something else")
	}
	if len(e.Messages) != len(fold.Messages) {
		r.found(FindingMessages, version, version, "there are %d messages instead of %d", len(e.Messages), len(fold.Messages))
	}
	for i := range min(len(e.Messages), len(fold.Messages)) {
		got, want := &e.Messages[i], &fold.Messages[i]
		if got.Position != want.Position || got.ID != want.ID || got.Role != want.Role || !bytes.Equal(got.Body, want.Body) {
			r.found(FindingMessages, version, version, "the message at position %d is another one", want.Position)
		}
	}
}

// checkCheckpoint compares the checkpoint of the version that the thread is at. The hash it has of the log, if it is
// sound, narrows down where the log differs.
func (r *verifier) checkCheckpoint(ctx context.Context) error {
	version := r.thread.Version()
	readCtx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	c, err := r.st.CheckpointAt(readCtx, r.key, version)
	switch {
	case errors.Is(err, store.ErrNotFound) || err == nil && c.Fold.Version != version:
		return nil // it was there when the evidence was read, and was removed since: by a merge, as a rule
	case errors.Is(err, store.ErrCorrupt):
		r.found(FindingCheckpoint, version, version, "it cannot be read: %v", err)
		return nil
	case err != nil:
		return err
	}
	fold := r.thread.Fold()
	same := c.Fold.Version == version && bytes.Equal(c.Fold.Append(nil), fold.Append(nil))
	switch {
	case c.Hash == r.thread.Hash():
		r.confirmed = version
		if !same && !r.unfolded {
			r.found(FindingCheckpoint, version, version, "it is another fold than that of the log")
		}
	case same: // either the log or the checkpoint: the head will tell
		r.found(FindingCheckpoint, version, version, "its hash of the log is another one")
	default:
		r.found(FindingHash, r.confirmed+1, version, "the log is not the one that was hashed")
		r.thread.Seal(version, c.Hash)
		r.confirmed = version
	}
	return nil
}

// nextOffset is the offset that the head's stream must go on with: that of the last segment, or 0 if that is of a stream
// before. It is not known if the segment goes on beyond the head.
func (r *verifier) nextOffset() (offset uint64, known bool) {
	switch {
	case r.last == nil || r.last.LastVersion > r.head.Version:
		return 0, false
	case r.last.StreamID != r.head.StreamID:
		return 0, true
	}
	return r.last.NextOffset, true
}

// finish compares what is stored at the end.
func (r *verifier) finish(ctx context.Context) error {
	h := r.head
	if !r.lost && r.thread.Hash() != h.Hash {
		r.found(FindingHash, min(r.confirmed+1, h.Version), h.Version, "the log is not the one that was hashed")
	}
	if want, known := r.nextOffset(); known && h.NextOffset != want {
		r.found(FindingHead, h.Version, h.Version, "the stream goes on at another offset in the log")
	}
	if r.evidence.FoldVersion > h.Version {
		r.found(FindingHead, h.Version, h.Version, "the stored fold is of version %d", r.evidence.FoldVersion)
	}
	if r.lost {
		return nil
	}
	for _, p := range r.patches.stored {
		r.found(FindingState, p.Version, p.Version, "there is a patch of a version that the log does not have")
	}
	if e := r.evidence; e.Base.Patch != nil && e.Base.Version > h.Version {
		r.found(FindingState, h.Version, h.Version, "the stored document is of version %d", e.Base.Version)
	}
	for _, version := range r.evidence.Checkpoints[r.cuts:] {
		r.found(FindingCheckpoint, min(version, h.Version), min(version, h.Version), "there is a checkpoint of version %d", version)
	}
	return r.finishRuns(ctx)
}
