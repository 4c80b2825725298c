package client

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// Error is an error that a server answered with, or that the connection ended with.
type Error struct {
	// Reason is the contract's; UNSPECIFIED if the error is not the service's own (or newer than this client).
	Reason threadsvcv1.ErrorReason
	// Metadata holds the dynamic parts, as the comment of the reason names them.
	Metadata map[string]string

	status *status.Status
}

// Error is the text of the status, with its code.
func (e *Error) Error() string {
	return fmt.Sprintf("threadsvc: %s: %s", e.status.Code(), e.status.Message())
}

// Code is the status code.
func (e *Error) Code() codes.Code { return e.status.Code() }

// GRPCStatus is the status; status.FromError and status.Code find it.
func (e *Error) GRPCStatus() *status.Status { return e.status }

// Unwrap returns the status as an error.
func (e *Error) Unwrap() error { return e.status.Err() }

// ErrorOf finds the *Error in err, or makes it of the gRPC status there. It returns nil if there is neither.
func ErrorOf(err error) *Error {
	var typed *Error
	if err == nil || errors.As(err, &typed) {
		return typed
	}
	s, ok := status.FromError(err)
	if !ok {
		return nil
	}
	return errorOfStatus(s)
}

func errorOfStatus(s *status.Status) *Error {
	e := &Error{status: s}
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			e.Reason = threadsvcv1.ErrorReason(threadsvcv1.ErrorReason_value["ERROR_REASON_"+info.GetReason()])
			e.Metadata = info.GetMetadata()
		}
	}
	return e
}

// ReasonOf is the reason of an error; UNSPECIFIED if it has none.
func ReasonOf(err error) threadsvcv1.ErrorReason {
	if e := ErrorOf(err); e != nil {
		return e.Reason
	}
	return threadsvcv1.ErrorReason_ERROR_REASON_UNSPECIFIED
}

// typed gives an error its type. The end of the caller's own context comes before what it made the call fail with.
func typed(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if e := ErrorOf(err); e != nil {
		return e
	}
	return err
}

// repeatable reports whether a call that failed may be made again by itself: https://google.aip.dev/194 names UNAVAILABLE
// alone. An answer that breaks off is the same thing.
func repeatable(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || status.Code(err) == codes.Unavailable
}

// resumable reports whether a stream that ended with err is to be taken up again where it stood. Beside what is
// repeatable that is one which the server ended, by itself or because it was cut off while stopping, and two reasons that say so.
func resumable(err error) bool {
	switch ReasonOf(err) {
	case threadsvcv1.ErrorReason_ERROR_REASON_READER_TOO_SLOW:
		return true
	case threadsvcv1.ErrorReason_ERROR_REASON_CONTENTION: // an append names its offset, so the writer is who AIP-194 leaves it to
		return true
	}
	return repeatable(err) || errors.Is(err, io.EOF) || status.Code(err) == codes.Canceled
}
