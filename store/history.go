package store

import (
	"context"
	"time"

	"github.com/threadsvc/threadsvc/agui"
)

// History is the part of a Store that keeps the past of threads within reach: checkpoints, from which any version is
// replayed. Checkpoints are derived from the log; without any, all that history costs is more replay.
type History interface {
	// VersionAt returns the last version of a thread that was committed at or before a time; 0 if none was. Should the
	// database's clock ever have been set back, it is one of the versions that the time was passed at. The error is a
	// *PrunedError if that version was pruned.
	VersionAt(ctx context.Context, key Key, at time.Time) (uint64, error)

	// CheckpointAt returns the last checkpoint at or before a version; ErrNotFound if there is none, and ErrCorrupt if it
	// cannot be read.
	CheckpointAt(ctx context.Context, key Key, version uint64) (Checkpoint, error)

	// SinceCheckpoint measures a thread's log from its last checkpoint to a version, which must end a segment.
	SinceCheckpoint(ctx context.Context, key Key, until uint64) (LogSince, error)

	// PutCheckpoint keeps a checkpoint, which must end a segment, unless there is a later one, or all checkpoints together
	// would then take more than the log, both as they are stored. It reports whether the thread
	// has this or a later one now.
	PutCheckpoint(ctx context.Context, key Key, c Checkpoint) (kept bool, err error)

	// Evidence reads, in one snapshot, what is stored of a thread beside its log and its ledgers.
	Evidence(ctx context.Context, key Key) (*Evidence, error)

	// Import makes a thread of what feed gives, with the versions, hashes and times that it says: all of it, or nothing if
	// feed returns an error. The head's labels are kept, its lease begins anew. Runs that are over count as merged. The
	// error is ErrConflict if the thread exists, ErrInvalid if what it is given contradicts itself, or feed's.
	Import(ctx context.Context, head Head, replaceDeleted bool, feed func(Importer) error) error

	// Names lists the threads of all tenants in the order of their keys: those after a key, at most limit.
	Names(ctx context.Context, after Key, limit int) ([]Name, error)
}

// Name is how a thread is named.
type Name struct {
	Key              Key
	Tenant, ThreadID string
}

// Evidence is what is stored of a thread that must agree with its log. A row that cannot be read is among the Faults and
// left out.
type Evidence struct {
	Head Head
	// MetadataAltered: the metadata are not those that were written.
	MetadataAltered bool
	// Folded tells whether there is a fold; its version, tracking and messages follow.
	Folded      bool
	FoldVersion uint64
	Tracking    []byte
	Messages    []agui.StoredMessage
	// Base is the document that Patches have been applied to since, with its version; its text is nil if there is none.
	// Each patch is what the entries after the patch before did, joined, and has the version of the last of them.
	Base    agui.StatePatch
	Patches []agui.StatePatch
	// State is what base and patches amount to, nil if nothing has set it.
	State agui.Value
	// Checkpoints are the versions of the checkpoints, in order.
	Checkpoints []uint64
	Faults      []Fault
}

// Fault is a stored row that cannot be read.
type Fault struct {
	// Version is the one it belongs to.
	Version uint64
	// What names the row.
	What string
	Err  error
}

// Checkpoint is a fold of the past. Its Version is the fold's.
type Checkpoint struct {
	Fold agui.Fold
	// Hash is the hash of the log up to the version.
	Hash [32]byte
	// Size is the length of the fold's plain stored form; set on reading.
	Size int64
}

// LogSince says how much log there is after a thread's last checkpoint.
type LogSince struct {
	// Version is the checkpoint's, 0 if there is none; Size is that of its plain fold.
	Version uint64
	Size    int64
	// LogSize is the size of the plain entries after it, and Grown by how much they have grown the log (Segment.Grown).
	LogSize, Grown int64
	// Room tells whether a checkpoint as large as the last one, as it is stored, would be kept.
	Room bool
}

// Importer takes the parts of a thread that is imported, in this order: the fold at its first version if its log was cut,
// segments, each following the one before, runs by their ordinals, warnings, and the fold of it all. It keeps nothing that
// it is given.
type Importer interface {
	Cut(c Checkpoint) error
	Segment(s *Segment) error
	Run(r *Run) error
	Warning(w *Warning) error
	Fold(c *agui.Changes) error
}
