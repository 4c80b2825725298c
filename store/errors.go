package store

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrNotFound: there is no such thread or run.
	ErrNotFound = errors.New("store: not found")
	// ErrConflict: the thread is not at the expected version and fence, or exists already.
	ErrConflict = errors.New("store: the thread was changed by another writer")
	// ErrLocked: somebody else holds the lock of the thread's head, so nothing was written; the same commit may be made again
	// later. It wraps ErrConflict, for those who would rather read the thread anew.
	ErrLocked = fmt.Errorf("%w: its head is locked", ErrConflict)
	// ErrDuplicate: a run id is taken on the thread.
	ErrDuplicate = errors.New("store: the run exists already")
	// ErrDeleted: a thread that is to be made was erased before. The error is a *DeletedError.
	ErrDeleted = errors.New("store: the thread was deleted")
	// ErrPruned: a version is before the first that is kept. The error is a *PrunedError.
	ErrPruned = errors.New("store: the version was pruned")
	// ErrUnavailable: the database did not answer. Whether a commit was made is not known.
	ErrUnavailable = errors.New("store: the database is unavailable")
	// ErrSchema: the database's schema is not the one this program needs.
	ErrSchema = errors.New("store: the database's schema is not usable")
	// ErrCorrupt: what is stored cannot be read back.
	ErrCorrupt = errors.New("store: stored data is corrupt")
	// ErrInvalid: a commit contradicts itself, which is a fault of the program that made it.
	ErrInvalid = errors.New("store: invalid commit")
)

// DeletedError says when a thread that is to be made was erased. It wraps ErrDeleted.
type DeletedError struct {
	// DeletedAt is by the database's clock, in UTC.
	DeletedAt time.Time
}

func (e *DeletedError) Error() string {
	return fmt.Sprintf("%v at %s", ErrDeleted, e.DeletedAt.Format(time.RFC3339Nano))
}

// Unwrap returns ErrDeleted.
func (e *DeletedError) Unwrap() error { return ErrDeleted }

// PrunedError says that what was asked for lies before the first version that a thread keeps. It wraps ErrPruned.
type PrunedError struct {
	// FirstVersion is the first that can be read as a moment; the log goes on after it.
	FirstVersion uint64
	// Version is the version asked for, 0 if a time was.
	Version uint64
}

func (e *PrunedError) Error() string {
	return fmt.Sprintf("%v: version %d, the first is %d", ErrPruned, e.Version, e.FirstVersion)
}

// Unwrap returns ErrPruned.
func (e *PrunedError) Unwrap() error { return ErrPruned }
