package store

import "errors"

var (
	// ErrNotFound: there is no such thread or run.
	ErrNotFound = errors.New("store: not found")
	// ErrConflict: the thread is not at the expected version and fence, or exists already.
	ErrConflict = errors.New("store: the thread was changed by another writer")
	// ErrDuplicate: a run id is taken on the thread.
	ErrDuplicate = errors.New("store: the run exists already")
	// ErrUnavailable: the database did not answer. Whether a commit was made is not known.
	ErrUnavailable = errors.New("store: the database is unavailable")
	// ErrSchema: the database's schema is not the one this program needs.
	ErrSchema = errors.New("store: the database's schema is not usable")
	// ErrCorrupt: what is stored cannot be read back.
	ErrCorrupt = errors.New("store: stored data is corrupt")
	// ErrInvalid: a commit contradicts itself, which is a fault of the program that made it.
	ErrInvalid = errors.New("store: invalid commit")
)
