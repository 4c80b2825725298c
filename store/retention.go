package store

import (
	"context"
	"time"
)

// Retention is the part of a Store that keeps the policies of tenants and prunes threads. A thread is pruned in three steps:
// PutCut lays a checkpoint at the cut, Cut moves the thread's first version there, which is when readers notice, and Sweep
// removes what lies before, in as many small transactions as it takes. Whoever is stopped in between leaves a thread that is
// whole, and garbage that Unswept lists. Any number of callers may do so at once.
type Retention interface {
	// Policy reads a tenant's policy; ErrNotFound if there is none.
	Policy(ctx context.Context, tenant string) (Policy, error)

	// SetPolicy makes or replaces a tenant's policy, and returns it with its time.
	SetPolicy(ctx context.Context, p Policy) (Policy, error)

	// DeletePolicy removes a tenant's policy; ErrNotFound if there is none. What was pruned stays so.
	DeletePolicy(ctx context.Context, tenant string) error

	// SpreadPolicies marks threads of tenants whose policy was changed as due, at most limit of them, and reports whether
	// there may be more. Threads of such a tenant are not listed as due before that is done.
	SpreadPolicies(ctx context.Context, limit int) (more bool, err error)

	// Due lists threads of tenants that have a policy, at which it is to be looked whether there is something to prune, at
	// most limit. Those with an active run are left out.
	Due(ctx context.Context, limit int) ([]DueThread, error)

	// PlanCut finds out where a thread is to be cut. The cut's version is 0 if nowhere. It writes nothing.
	PlanCut(ctx context.Context, key Key, keep Keep) (Plan, error)

	// SetDue says when a thread is to be looked at next, by the database's clock; the zero time is when its next run is
	// started. It does nothing if the thread has had another run since it had so many, or the policy was changed.
	SetDue(ctx context.Context, due DueThread, runs int64, at time.Time) error

	// PutCut keeps the checkpoint of a cut, whatever there is room for, in place of one that is there. The error is
	// ErrConflict if the thread was cut there or beyond.
	PutCut(ctx context.Context, key Key, c Checkpoint) error

	// Cut moves a thread's first version to a cut that was planned and has its checkpoint, with the hash that the
	// checkpoint has. The error is ErrConflict, and nothing moved, if a run is active, if the thread was cut there or
	// beyond by somebody else, or if anything is not as planned.
	Cut(ctx context.Context, key Key, cut CutPlace, hash [32]byte) error

	// Unswept lists threads that have garbage, longest first, at most limit.
	Unswept(ctx context.Context, limit int) ([]Key, error)

	// Sweep removes at most about limit rows of a thread's garbage in one transaction, and reports whether there may be
	// more. It does nothing if another call is at it.
	Sweep(ctx context.Context, key Key, limit int) (more bool, err error)
}

// Keep says what of a thread's past is kept. Zero fields do not limit; what any of the others asks to be pruned is.
type Keep struct {
	// MaxAge is how long a run is kept after its end, MaxRuns how many runs are kept, and MaxBytes how much log, as the size
	// of its entries.
	MaxAge            time.Duration
	MaxRuns, MaxBytes int64
	// Before, if set, prunes what is before the last place to cut that is not after that version.
	Before uint64
	// Grace keeps runs that ended so recently, whatever else says.
	Grace time.Duration
}

// Policy is how long a tenant's threads are kept.
type Policy struct {
	Tenant string
	Keep   Keep // without Before and Grace
	// UpdatedAt is set on reading.
	UpdatedAt time.Time
}

// DueThread is a thread that is to be looked at, with its tenant's policy.
type DueThread struct {
	Key    Key
	Policy Policy
}

// CutPlace is a place between runs where a log can be cut.
type CutPlace struct {
	// Version is the last version that goes, and stays readable as a moment.
	Version uint64
	// Run is the ordinal of the last run that goes.
	Run int64
	// CommittedAt is the time of the version.
	CommittedAt time.Time
}

// Plan is what PlanCut finds.
type Plan struct {
	// Head is the thread's.
	Head Head
	// Cut is where it is to be cut; its Version is 0 if nowhere.
	Cut CutPlace
	// Next is when, without another run, something more will be to be pruned; zero if never.
	Next time.Time
}
