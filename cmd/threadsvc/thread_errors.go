package main

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/threadsvc/threadsvc/client"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// callError is a call that failed, with its reason and what to do next. It unwraps to what the client returned.
type callError struct {
	reason, text, advice string
	err                  error
}

// Error has a line for what happened and one for what to do. Neither can command a terminal.
func (e *callError) Error() string {
	text := visible(e.text)
	if e.reason != "" {
		text = e.reason + ": " + text
	}
	if e.advice != "" {
		text += "\n" + visible(e.advice)
	}
	return text
}

func (e *callError) Unwrap() error { return e.err }

// explain gives the error of a call its reason and advice; others stay as they are.
func (c *threadCall) explain(err error) error {
	typed := client.ErrorOf(err)
	if err == nil || errors.Is(err, errUsage) || typed == nil {
		return err
	}
	e := &callError{text: typed.GRPCStatus().Message(), err: err}
	if typed.Reason != 0 {
		e.reason = strings.TrimPrefix(typed.Reason.String(), "ERROR_REASON_")
		e.advice = c.advice(typed)
		return e
	}
	e.reason = typed.Code().String()
	switch typed.Code() {
	case codes.Unavailable:
		e.text = fmt.Sprintf("no server answers at %s: %s", c.server, e.text)
		e.advice = "Start one with 'threadsvc serve', or name another with --server or THREADSVC_SERVER."
	case codes.Unimplemented:
		e.advice = "The server is older than this program; use the threadsvc of its version."
	case codes.DeadlineExceeded:
		e.advice = "Give it more time with --timeout."
	}
	return e
}

// advice says what to do about an error of the service.
func (c *threadCall) advice(e *client.Error) string {
	switch e.Reason {
	case threadsvcv1.ErrorReason_ERROR_REASON_THREAD_NOT_FOUND:
		return fmt.Sprintf("'threadsvc thread list' shows the threads of a tenant; this call asked for tenant %q (--tenant).", c.tenant)
	case threadsvcv1.ErrorReason_ERROR_REASON_VERSION_NOT_FOUND:
		return fmt.Sprintf("The thread has the versions %s to %s.", e.Metadata["first_version"], e.Metadata["last_version"])
	case threadsvcv1.ErrorReason_ERROR_REASON_VERSION_PRUNED:
		return prunedAdvice(e.Metadata["first_version"])
	case threadsvcv1.ErrorReason_ERROR_REASON_RUN_NOT_FOUND:
		return "'threadsvc thread show' lists the thread's runs."
	case threadsvcv1.ErrorReason_ERROR_REASON_RUN_ACTIVE:
		return fmt.Sprintf("Run %s is going on, with a lease until %s: wait for its end, or end it with EndRun.",
			e.Metadata["active_run"], e.Metadata["lease_expires_at"])
	case threadsvcv1.ErrorReason_ERROR_REASON_VERSION_MISMATCH:
		return fmt.Sprintf("The thread is at version %s now: look what came in between, and decide again.", e.Metadata["version"])
	case threadsvcv1.ErrorReason_ERROR_REASON_THREAD_EXISTS:
		return "Choose another id; what is there is never overwritten."
	case threadsvcv1.ErrorReason_ERROR_REASON_THREAD_DELETED:
		return fmt.Sprintf("A thread of this id was deleted (%s): choose another id, or ask for this one by CreateThread's replace_deleted or import --replace-deleted.",
			e.Metadata["delete_time"])
	case threadsvcv1.ErrorReason_ERROR_REASON_DEADLINE_EXCEEDED:
		return "Give it more time with --timeout."
	case threadsvcv1.ErrorReason_ERROR_REASON_DATABASE_UNAVAILABLE, threadsvcv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN,
		threadsvcv1.ErrorReason_ERROR_REASON_CONTENTION:
		return "Try again in a moment."
	case threadsvcv1.ErrorReason_ERROR_REASON_INTERNAL:
		return "The server's log says more."
	}
	return ""
}
