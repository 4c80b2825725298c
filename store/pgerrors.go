package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"
)

// SQLSTATEs that are told apart (Postgres documentation, appendix A).
const (
	uniqueViolation      = "23505"
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	undefinedTable       = "42P01"
	featureNotSupported  = "0A000" // a prepared statement whose result type changed; pgx has forgotten it
	invalidStatementName = "26000" // a prepared statement the server does not have; pgx has forgotten it
	readOnlyTransaction  = "25006" // the server became a standby, or read-only
	lockNotAvailable     = "55P03"
	adminShutdown        = "57P01" // also of one backend, by pg_terminate_backend
	crashShutdown        = "57P02"
	cannotConnectNow     = "57P03"
)

// maxAttempts bounds how often a call is tried.
const maxAttempts = 4

// retry runs op until it succeeds, its error is not safe to retry, or the attempts or the time are used up. The second
// attempt follows at once, since a stale connection or another transaction's lock is the common cause; those after it wait
// longer and longer, so as not to overrun a database that is starting.
func retry(ctx context.Context, safe func(error) bool, op func() error) error {
	for attempt := 1; ; attempt++ {
		err := op()
		if err == nil || attempt == maxAttempts || ctx.Err() != nil || !safe(err) {
			return err
		}
		wait := time.Duration(attempt-1) * (20*time.Millisecond + rand.N(20*time.Millisecond))
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
	}
}

// safeWrite reports whether a failed write certainly did nothing: it was rolled back by the server because of other
// transactions or a stale prepared statement, met a server that takes no writes, or was never sent.
func safeWrite(err error) bool {
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	switch sqlState(err) {
	case serializationFailure, deadlockDetected, featureNotSupported, invalidStatementName, readOnlyTransaction:
		return true
	case "":
		return pgconn.SafeToRetry(err)
	}
	return false
}

// safeRead reports whether a failed read is worth another attempt: also when a connection was lost, which the pool
// replaces.
func safeRead(err error) bool {
	return safeWrite(err) || (isUnavailable(err) && !endOfTime(err))
}

func sqlState(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Code
	}
	return ""
}

var sentinels = []error{ErrNotFound, ErrConflict, ErrDuplicate, ErrDeleted, ErrUnavailable, ErrSchema, ErrCorrupt, ErrInvalid}

// classify adds the sentinel that an error of the database stands for. It keeps the cause.
func classify(err error) error {
	switch {
	case err == nil, slices.ContainsFunc(sentinels, func(s error) bool { return errors.Is(err, s) }):
		return err
	case isUnavailable(err):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	case isTakenRun(err):
		return fmt.Errorf("%w: %w", ErrDuplicate, err)
	}
	return fmt.Errorf("store: %w", err)
}

func isTakenRun(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == uniqueViolation && pgErr.ConstraintName == "runs_run_id_unique"
}

// isUnavailable reports whether err says something about the database's being there and not about what was asked.
func isUnavailable(err error) bool {
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok { // whatever the server's reason is
		return true
	}
	if code := sqlState(err); code != "" {
		return unavailableState(code)
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return endOfTime(err) || pgconn.SafeToRetry(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, puddle.ErrClosedPool)
}

func endOfTime(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// unavailableState goes by the class, the first two characters: 08 connection exceptions, 28 authorisation, 3D no such
// database, 40 rollbacks by conflict that were retried in vain, 53 resources, 57 the operator, 58 the system.
func unavailableState(code string) bool {
	switch code[:2] {
	case "08", "28", "3D", "40", "53", "57", "58":
		return true
	}
	return code == readOnlyTransaction || code == lockNotAvailable
}
