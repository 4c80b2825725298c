// Package store keeps agent threads in Postgres: the log, the folds and the ledger of warnings. This file is its
// contract, Store; type Postgres keeps it. Package storetest holds the suite that every implementation must pass and the
// in-memory model that Postgres is compared with.
package store

import (
	"context"
	"time"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store/content"
)

// Store keeps threads. Its methods are safe for concurrent use, hold no locks between calls, and obey the deadline of
// their context. Reads see committed data only, each in one snapshot.
//
// A method that needs the lock of a row which somebody else keeps returns ErrLocked before long, and may be called again.
//
// Errors: ErrNotFound, ErrConflict, ErrDuplicate, ErrDeleted and ErrUnavailable (all to be tested with errors.Is). ErrInvalid and
// ErrCorrupt, and anything else, are a fault of the program or the data. Offsets and versions beyond those stored, and
// identifiers nobody used, find nothing; identifiers must be valid UTF-8 without NUL.
type Store interface {
	// Commit writes the commits, each of another thread, in as few transactions as possible, and returns one result
	// for each, in the same order. A commit is all or nothing. One that fails does not keep the others from being
	// written: ErrConflict if the thread's head is not the expected one, ErrDuplicate if a run id is taken, ErrDeleted if
	// the thread is to be made and was erased before.
	// If the outcome is unknown (the connection broke), the results are ErrUnavailable.
	Commit(ctx context.Context, commits []*Commit) []Result

	// CommitHeld is Commit for a writer that would always come too late while others keep writing a thread: with the head
	// locked it reads what has come since a version, as Since does, and commits what change makes of it, in one transaction.
	// Other commits of the thread wait for that. change is called at most once, and must not call the store; its error is
	// the result's. ErrLocked means that the lock could not be had and change was not called.
	CommitHeld(ctx context.Context, key Key, version uint64, maxBytes int, change func(*Loaded) (*Commit, error)) Result

	// Load reads what is needed to continue a thread: its head, its last fold, the log after that, its last run.
	Load(ctx context.Context, key Key) (*Loaded, error)

	// Since reads what has come since a version: as Load does, but the fold has nothing except its version, and the tail is
	// the log after the given version, until the size of its entries exceeds maxBytes. A tail that does not reach the head's
	// version, or whose first segment begins below the given one, was cut or merged.
	Since(ctx context.Context, key Key, version uint64, maxBytes int) (*Loaded, error)

	// Now is the time by the database's clock, the only one that decides anything: those of servers differ and are set.
	Now(ctx context.Context) (time.Time, error)

	// Expired lists threads whose lease has ended by the database's clock and whose run is still active, in the order of
	// their leases' ends: those after the given one, at most limit.
	Expired(ctx context.Context, after ExpiredLease, limit int) ([]ExpiredLease, error)

	// Fence raises a thread's fence if the run is active, so that nothing can be committed with the one it was granted. It
	// does nothing otherwise.
	Fence(ctx context.Context, key Key, runID string) error
	// Folded reads a thread's stored fold alone, and where the thread is: all that is needed to read a thread that nobody
	// is writing to. Messages of the roles that are named are left out.
	Folded(ctx context.Context, key Key, without ...agui.Role) (*Folded, error)

	// Head reads a thread's head alone.
	Head(ctx context.Context, key Key) (Head, error)

	// Positions reads how far the logs of many threads go, in one statement. Threads that do not exist are left out.
	Positions(ctx context.Context, keys []Key) (map[Key]Position, error)

	// Threads lists the heads of a tenant's threads by the start of their last run, newest first.
	Threads(ctx context.Context, query ThreadQuery) ([]Head, error)

	// Run reads one run.
	Run(ctx context.Context, key Key, runID string) (Run, error)

	// Runs lists a thread's runs, newest first: those with an ordinal below before (0 means all), at most limit.
	Runs(ctx context.Context, key Key, before int64, limit int) ([]Run, error)

	// Warnings lists a thread's warnings in the order they were raised: those after the given place, at most limit.
	Warnings(ctx context.Context, key Key, after WarningPlace, limit int) ([]Warning, error)

	// TenantWarnings lists the warnings of a tenant's threads, newest first. It looks at a bounded stretch of the ledger, and
	// says where that ended if it was not the end.
	TenantWarnings(ctx context.Context, query WarningQuery) (WarningPage, error)

	// SummarizeWarnings counts the warnings that a query selects, by code and by the value of one label.
	SummarizeWarnings(ctx context.Context, query WarningQuery, label string) (WarningSummary, error)

	// Log reads segments of a thread's log in order: those with entries at or after version from, until the size of
	// their entries exceeds maxBytes. At least one segment is returned if there is one. The error is a *PrunedError if
	// entries are missing because they were pruned.
	Log(ctx context.Context, key Key, from uint64, maxBytes int) ([]Segment, error)

	// Stream reads the segments that hold the offsets [from, to) of a producer stream, in order.
	Stream(ctx context.Context, key Key, streamID string, from, to uint64) ([]Segment, error)

	// Unmerged lists runs that are over and whose segments have not been merged yet, at most limit; those of a thread in
	// their order.
	Unmerged(ctx context.Context, limit int) ([]RunPlace, error)

	// Merge joins the segments of a run that is over into few large ones, and returns the size of their plain entries.
	// It does nothing if the run is merged, or another call is at it.
	Merge(ctx context.Context, at RunPlace) (int64, error)

	// UpdateMetadata replaces a thread's metadata by what change makes of the present one, in one transaction with the
	// row locked. change must not block, and may be called again.
	UpdateMetadata(ctx context.Context, key Key, change func(Metadata) (Metadata, error)) (Head, error)

	// Delete erases every row of a thread, and leaves a tombstone that has no more of it than its key, its version, its hash
	// and the time. A thread of that key can only be made again by a NewThread with ReplaceDeleted.
	Delete(ctx context.Context, key Key) (Erasure, error)

	History
	Retention

	// Ping reports whether the store can serve, as an error that says why not.
	Ping(ctx context.Context) error

	// Close releases what the store holds and waits for its goroutines.
	Close()
}

// Head is a thread's head row: where its log ends and who may append.
type Head struct {
	Key      Key
	Tenant   string
	ThreadID string
	// Version is the number of log entries; Hash chains them all (agui.Chain).
	Version uint64
	Hash    [32]byte
	// Fence is the last fencing token granted; 0 if none ever was.
	Fence uint64
	// StreamID names the producer stream that may append: the run it was opened for. NextOffset is the offset it must
	// continue with.
	StreamID   string
	NextOffset uint64
	// ActiveRun is the run that holds the lease; empty if none. The lease's end is by the database's clock.
	ActiveRun      string
	LeaseTTL       time.Duration
	LeaseExpiresAt time.Time
	LeaseExpired   bool
	// Runs is the number of runs so far, and so the ordinal of the last.
	Runs      int64
	Metadata  Metadata
	CreatedAt time.Time
	// LastRunAt is when the last run was started; CreatedAt if none was.
	LastRunAt time.Time
	// FirstVersion is the first version that can be read as a moment: the log up to it was pruned, with its runs, which were
	// PrunedRuns. FirstHash is the hash of that log and FirstAt the time of the version. All are zero if nothing was pruned.
	FirstVersion uint64
	FirstHash    [32]byte
	FirstAt      time.Time
	PrunedRuns   int64
}

// Metadata is what the application says about a thread.
type Metadata struct {
	// Text is a JSON object, as the application wrote it.
	Text []byte
	// Labels are its top-level string members, name and value joined by NUL, by which threads can be found. Those longer than
	// MaxLabelBytes are not kept.
	Labels []string
}

// Commit is what one thread has to write. The store does not keep it.
type Commit struct {
	Key Key
	// Create, if set, makes the thread. If it exists already the result is ErrConflict, whatever its version.
	Create *NewThread
	// ExpectVersion and ExpectFence must be the head's, or the result is ErrConflict (ErrLocked if it is but cannot be had now). They are not compared for a
	// Create.
	ExpectVersion, ExpectFence uint64
	// ExpectExpired is set if the head's lease must have ended by the database's clock, or the result is ErrConflict.
	ExpectExpired bool

	// The head afterwards. With an ActiveRun its lease lasts at least half of LeaseTTL from now: it is written anew
	// when Fence changes or when less than half is left. With KeepLease it stays what it is, unless Fence changes: the commit
	// is not the run's doing. ActiveRun and Runs change only with rows of runs.
	Version    uint64
	Hash       [32]byte
	Fence      uint64
	StreamID   string
	NextOffset uint64
	ActiveRun  string
	LeaseTTL   time.Duration
	KeepLease  bool
	// RunStarted moves the thread's LastRunAt to now. Runs is the number of runs afterwards.
	RunStarted bool
	Runs       int64

	Segments []Segment
	// Opened are new rows of runs; Updated replaces the changeable part of rows that exist.
	Opened, Updated []Run
	// Fold, if set, brings the stored fold up to Version.
	Fold     *agui.Changes
	Warnings []Warning

	packed []packedSegment         // Segments as Postgres stores them
	chunks map[content.Hash][]byte // what they refer to
}

// NewThread is what is fixed when a thread is made.
type NewThread struct {
	Tenant, ThreadID string
	Metadata         Metadata
	// ReplaceDeleted makes the thread also if it was erased before, and removes its tombstone. Without it the result is
	// ErrDeleted then.
	ReplaceDeleted bool
}

// Erasure is the receipt of an erased thread.
type Erasure struct {
	// Head is what the thread had when it was erased.
	Head Head
	// DeletedAt is the time of the erasure by the database's clock.
	DeletedAt time.Time
	// Rows is the number of rows that were erased, by table; tables that had none are in it too.
	Rows map[string]int64
}

// Result is the outcome of one commit.
type Result struct {
	Err error
	// CommittedAt is the time of the transaction and LeaseExpiresAt the end of the lease, by the database's clock.
	CommittedAt, LeaseExpiresAt time.Time
}

// Segment is a piece of a thread's log: the entries of one run that were committed together.
type Segment struct {
	FirstVersion, LastVersion uint64
	// RunID is the run the entries belong to; empty for those outside of any run.
	RunID string
	// StreamID is the producer stream of the entries' offsets, which lie in [FirstOffset, NextOffset).
	StreamID                string
	FirstOffset, NextOffset uint64
	// Entries are the stored forms of the entries, one after another (agui.DecodeEntries). It is nil, with Err set, if
	// they cannot be read.
	Entries []byte
	Err     error

	outlined bool  // Entries still has references in place of large payloads
	restated int64 // set on reading: how much of the plain entries was outlined and held already
	// CommittedAt and Times are set on reading: when the segment was committed, and if it was merged of several, when
	// each part of it was.
	CommittedAt time.Time
	Times       []TimeSpan
}

// TimeSpan is when the versions after those of the span before, up to LastVersion, were committed.
type TimeSpan struct {
	LastVersion uint64
	CommittedAt time.Time
}

// CommitTime is when one of the segment's versions was committed.
func (s *Segment) CommitTime(version uint64) time.Time {
	for _, span := range s.Times {
		if version <= span.LastVersion {
			return span.CommittedAt
		}
	}
	return s.CommittedAt
}

// ExpiredLease names a thread by its lease that has ended. The zero value comes before all others.
type ExpiredLease struct {
	ExpiresAt time.Time
	Key       Key
	ThreadID  string
}

// RunPlace names a run by its thread and its ordinal.
type RunPlace struct {
	Key     Key
	Ordinal int64
	// LastVersion is the version of the run's last entry; set on reading.
	LastVersion uint64
}

// Loaded is a thread as it is stored.
type Loaded struct {
	Head Head
	Fold agui.Fold
	// Tail is the log after the fold.
	Tail []Segment
	// LastRun is the run with the highest ordinal, nil if there is none.
	LastRun *Run
}

// RunStatus says how a run stands. The numbers are stored.
type RunStatus int16

const (
	// RunActive: the run holds the thread's lease, or its lease expired and nobody has closed it yet.
	RunActive RunStatus = 1
	// RunFinished: RUN_FINISHED with success.
	RunFinished RunStatus = 2
	// RunInterrupted: RUN_FINISHED with an interrupt.
	RunInterrupted RunStatus = 3
	// RunCancelled: RUN_FINISHED, cancelled.
	RunCancelled RunStatus = 4
	// RunFailed: RUN_ERROR, or a protocol violation.
	RunFailed RunStatus = 5
	// RunTruncated: the run never got its terminal event.
	RunTruncated RunStatus = 6
)

// Run is the row of one run.
type Run struct {
	RunID string
	// Ordinal counts a thread's runs from 1.
	Ordinal int64
	// StreamID is the producer stream the run's events came in.
	StreamID string
	// ParentRunID is empty if there is none.
	ParentRunID string
	// InputHash identifies what StartRun was called with; zero for a run opened by its RUN_STARTED.
	InputHash [32]byte
	// Fence is the token the run was granted.
	Fence uint64
	// FirstVersion is the version of the run's first entry. FirstOffset is the offset of its first event.
	FirstVersion uint64
	FirstOffset  uint64

	// What follows changes while the run goes on.

	Status RunStatus
	// LastVersion is the version of the run's last entry, 0 while it is active.
	LastVersion uint64
	// NextOffset is the offset after the run's last event; up to date only when the run is over.
	NextOffset uint64
	// ProtocolVersion, Outcome, Result, Usage and Error are JSON texts, nil when absent. Error is an object with
	// "message" and "code".
	ProtocolVersion, Outcome, Result, Usage, Error agui.Value
	// Warnings is the number of warnings the run raised.
	Warnings int64

	whole bool // there is nothing to merge

	// StartedAt and EndedAt are by the database's clock and set on reading; EndedAt is zero while the run is active.
	StartedAt, EndedAt time.Time
}

// Warning is one row of the ledger of what was dropped, stripped, translated or not applied, and of violations.
type Warning struct {
	// Version is the thread's version after the event.
	Version uint64
	RunID   string
	Offset  uint64
	agui.Warning
	// Fatal marks a violation.
	Fatal bool
	// Ordinal tells apart the warnings of one version.
	Ordinal int32
	// RaisedAt is set on reading, and so is RemovedBytes, the length of the removed text as it was: Removed is cut if it
	// was longer than MaxRemovedBytes.
	RaisedAt     time.Time
	RemovedBytes int64
}

// WarningPlace is a place in a thread's ledger.
type WarningPlace struct {
	Version uint64
	Ordinal int32
}

// ThreadQuery selects a tenant's threads.
type ThreadQuery struct {
	Tenant string
	// Labels must all be among the thread's.
	Labels []string
	// Before, with BeforeKey, is the place after which the page starts; zero for the first page.
	Before    time.Time
	BeforeKey Key
	Limit     int
}
