package embedded

import (
	"errors"
	"fmt"
)

var (
	// ErrNoBinaries reports that no usable PostgreSQL server programs were
	// found. The error that wraps it is one line that says how to install
	// them on this system.
	ErrNoBinaries = errors.New("embedded: no PostgreSQL server programs")
	// ErrInUse reports that another live process holds the directory.
	ErrInUse = errors.New("embedded: directory in use")
	// ErrForeignDir reports a directory with content that is not this
	// package's. Nothing in it was touched.
	ErrForeignDir = errors.New("embedded: directory holds other files")
	// ErrUnreachableDir reports that the unprivileged account that runs
	// Postgres for root cannot enter the directory or run the programs.
	ErrUnreachableDir = errors.New("embedded: directory unreachable")
	// ErrNoAccount reports that the process is root and the system has no
	// account to run Postgres as.
	ErrNoAccount = errors.New("embedded: no unprivileged account")
	// ErrBadSetting reports a setting that is malformed or that this package
	// keeps to itself.
	ErrBadSetting = errors.New("embedded: bad setting")
	// ErrBadName reports a database name that Postgres would refuse or
	// shorten.
	ErrBadName = errors.New("embedded: bad database name")
	// ErrStopped reports a call on a server after Stop.
	ErrStopped = errors.New("embedded: server stopped")
)

// StartError reports that a PostgreSQL program failed or did not become ready.
type StartError struct {
	Program string // "initdb" or "postgres"
	Log     string // the last lines it wrote, at most 4 KiB; may be empty
	Err     error  // its exit status, or why waiting ended
}

// Error implements error; the text ends with the program's last lines.
func (e *StartError) Error() string {
	text := fmt.Sprintf("embedded: %s did not start: %v", e.Program, e.Err)
	if e.Log != "" {
		text += "; its last lines:\n" + e.Log
	}
	return text
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }
