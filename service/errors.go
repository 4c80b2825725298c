package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/threadsvc/threadsvc/agui"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
)

// errorDomain is the domain of every ErrorInfo.
const errorDomain = "threadsvc"

// maxMeta bounds each value of an ErrorInfo's metadata: a status travels in HTTP/2 headers, whose size is limited.
const maxMeta = 1024

// refusal is an error that a caller is told about: the reason of the contract, a short text, and its dynamic parts.
type refusal struct {
	reason threadsvcv1.ErrorReason
	text   string
	meta   map[string]string
}

func (e *refusal) Error() string { return e.text }

// refuse makes a refusal; meta alternates names and values.
func refuse(reason threadsvcv1.ErrorReason, text string, meta ...string) *refusal {
	e := &refusal{reason: reason, text: text, meta: map[string]string{}}
	for i := 0; i+1 < len(meta); i += 2 {
		e.meta[meta[i]] = meta[i+1]
	}
	return e
}

// with adds a dynamic part.
func (e *refusal) with(name, value string) *refusal {
	meta := maps.Clone(e.meta)
	meta[name] = value
	return &refusal{reason: e.reason, text: e.text, meta: meta}
}

// statusCodes gives every reason its status code, as the comments of the contract do.
var statusCodes = map[threadsvcv1.ErrorReason]codes.Code{
	threadsvcv1.ErrorReason_ERROR_REASON_INVALID_REQUEST:       codes.InvalidArgument,
	threadsvcv1.ErrorReason_ERROR_REASON_INVALID_INPUT:         codes.InvalidArgument,
	threadsvcv1.ErrorReason_ERROR_REASON_PROTOCOL_VIOLATION:    codes.InvalidArgument,
	threadsvcv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED:        codes.ResourceExhausted,
	threadsvcv1.ErrorReason_ERROR_REASON_THREAD_NOT_FOUND:      codes.NotFound,
	threadsvcv1.ErrorReason_ERROR_REASON_THREAD_EXISTS:         codes.AlreadyExists,
	threadsvcv1.ErrorReason_ERROR_REASON_RUN_NOT_FOUND:         codes.NotFound,
	threadsvcv1.ErrorReason_ERROR_REASON_RUN_EXISTS:            codes.AlreadyExists,
	threadsvcv1.ErrorReason_ERROR_REASON_RUN_ACTIVE:            codes.FailedPrecondition,
	threadsvcv1.ErrorReason_ERROR_REASON_RUN_CLOSED:            codes.FailedPrecondition,
	threadsvcv1.ErrorReason_ERROR_REASON_LEASE_LOST:            codes.FailedPrecondition,
	threadsvcv1.ErrorReason_ERROR_REASON_OFFSET_GAP:            codes.OutOfRange,
	threadsvcv1.ErrorReason_ERROR_REASON_OFFSET_MISMATCH:       codes.AlreadyExists,
	threadsvcv1.ErrorReason_ERROR_REASON_VERSION_MISMATCH:      codes.Aborted,
	threadsvcv1.ErrorReason_ERROR_REASON_INTERRUPTS_OPEN:       codes.FailedPrecondition,
	threadsvcv1.ErrorReason_ERROR_REASON_INTERRUPTS_EXPIRED:    codes.FailedPrecondition,
	threadsvcv1.ErrorReason_ERROR_REASON_INTERRUPTS_UNKNOWN:    codes.InvalidArgument,
	threadsvcv1.ErrorReason_ERROR_REASON_TOOL_CALLS_UNANSWERED: codes.FailedPrecondition,
	threadsvcv1.ErrorReason_ERROR_REASON_CONTENTION:            codes.Aborted,
	threadsvcv1.ErrorReason_ERROR_REASON_DATABASE_UNAVAILABLE:  codes.Unavailable,
	threadsvcv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN:         codes.Unavailable,
	threadsvcv1.ErrorReason_ERROR_REASON_INTERNAL:              codes.Internal,
	threadsvcv1.ErrorReason_ERROR_REASON_WAIT_QUEUE_FULL:       codes.ResourceExhausted,
	threadsvcv1.ErrorReason_ERROR_REASON_DEADLINE_EXCEEDED:     codes.DeadlineExceeded,
	threadsvcv1.ErrorReason_ERROR_REASON_CANCELLED:             codes.Canceled,
	threadsvcv1.ErrorReason_ERROR_REASON_READER_TOO_SLOW:       codes.Aborted,
	threadsvcv1.ErrorReason_ERROR_REASON_VERSION_NOT_FOUND:     codes.OutOfRange,
	threadsvcv1.ErrorReason_ERROR_REASON_THREAD_DELETED:        codes.FailedPrecondition,
	threadsvcv1.ErrorReason_ERROR_REASON_VERSION_PRUNED:        codes.OutOfRange,
}

// statusOf turns an error into what the caller gets. It is the only place where that is decided. Faults of the service
// are logged, and the caller told no more than that there was one.
func statusOf(err error, log *slog.Logger) *status.Status {
	var refused *refusal
	if errors.As(err, &refused) {
		return refused.status()
	}
	if s, ok := status.FromError(err); ok {
		return transportStatus(s)
	}
	var deleted *store.DeletedError
	var pruned *store.PrunedError
	switch {
	case errors.As(err, &pruned):
		return errVersionPruned(pruned.FirstVersion, number(pruned.Version)).status()
	case errors.As(err, &deleted):
		return errThreadDeleted(deleted.DeletedAt).status()
	case errors.Is(err, context.Canceled):
		return errCancelled.status()
	case errors.Is(err, store.ErrUnavailable):
		log.Warn("database unavailable", "error", err)
		return refuse(threadsvcv1.ErrorReason_ERROR_REASON_DATABASE_UNAVAILABLE, "the database is unavailable").status()
	case errors.Is(err, context.DeadlineExceeded):
		return errDeadline.status()
	case errors.Is(err, store.ErrNotFound):
		return errThreadNotFound.status()
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrDuplicate):
		return refuse(threadsvcv1.ErrorReason_ERROR_REASON_CONTENTION, "other writers kept changing the thread").status()
	}
	log.Error("internal error", "error", err)
	return refuse(threadsvcv1.ErrorReason_ERROR_REASON_INTERNAL, "internal error").status()
}

// transportStatus gives a status that gRPC made its ErrorInfo, if it has a reason here.
func transportStatus(s *status.Status) *status.Status {
	if len(s.Details()) > 0 {
		return s
	}
	switch s.Code() {
	case codes.Canceled:
		return errCancelled.status()
	case codes.DeadlineExceeded:
		return errDeadline.status()
	case codes.ResourceExhausted:
		return refuse(threadsvcv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED, s.Message(), "code", codeRequestTooLarge).status()
	}
	return s
}

// codeRequestTooLarge says that a message of the transport, and no event in it, exceeds a limit.
const codeRequestTooLarge = "REQUEST_TOO_LARGE"

func (e *refusal) status() *status.Status {
	code, ok := statusCodes[e.reason]
	if !ok {
		code = codes.Internal
	}
	info := &errdetails.ErrorInfo{
		Reason: strings.TrimPrefix(e.reason.String(), "ERROR_REASON_"), Domain: errorDomain, Metadata: map[string]string{},
	}
	for name, value := range e.meta {
		if len(value) > maxMeta {
			value = strings.ToValidUTF8(value[:maxMeta], "") + "…"
		}
		info.Metadata[name] = value
	}
	s, err := status.New(code, e.text).WithDetails(info)
	if err != nil { // cannot happen: the code is not OK
		return status.New(code, e.text)
	}
	return s
}

var (
	errThreadNotFound = refuse(threadsvcv1.ErrorReason_ERROR_REASON_THREAD_NOT_FOUND, "there is no such thread")
	errRunNotFound    = refuse(threadsvcv1.ErrorReason_ERROR_REASON_RUN_NOT_FOUND, "there is no such run")
	errThreadExists   = refuse(threadsvcv1.ErrorReason_ERROR_REASON_THREAD_EXISTS, "the thread exists")
	errShuttingDown   = refuse(threadsvcv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN, "the server is shutting down; connect to another one")
	errCancelled      = refuse(threadsvcv1.ErrorReason_ERROR_REASON_CANCELLED, "the call was cancelled")
	errDeadline       = refuse(threadsvcv1.ErrorReason_ERROR_REASON_DEADLINE_EXCEEDED, "the deadline passed")
	errLeaseLost      = refuse(threadsvcv1.ErrorReason_ERROR_REASON_LEASE_LOST, "the fencing token is not that of the lease")
)

func errField(field, rule string) *refusal {
	return refuse(threadsvcv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, field+": "+rule, "field", field, "rule", rule)
}

func errOffsetGap(next uint64) *refusal {
	return refuse(threadsvcv1.ErrorReason_ERROR_REASON_OFFSET_GAP, "the batch starts beyond the expected offset", "next_offset", number(next))
}

func errOffsetMismatch(offset uint64) *refusal {
	return refuse(threadsvcv1.ErrorReason_ERROR_REASON_OFFSET_MISMATCH, "another event was received at this offset", "offset", number(offset))
}

func errRunClosed(run *store.Run) *refusal {
	return refuse(threadsvcv1.ErrorReason_ERROR_REASON_RUN_CLOSED, "the run is over", "status", runStatusName(run.Status))
}

func errThreadDeleted(at time.Time) *refusal {
	return refuse(threadsvcv1.ErrorReason_ERROR_REASON_THREAD_DELETED, "the thread was deleted; only CreateThread with replace_deleted makes it again",
		"delete_time", at.UTC().Format(time.RFC3339Nano))
}

func errRunActive(head *store.Head) *refusal {
	expiry := ""
	if !head.LeaseExpiresAt.IsZero() {
		expiry = head.LeaseExpiresAt.UTC().Format(time.RFC3339Nano)
	}
	return refuse(threadsvcv1.ErrorReason_ERROR_REASON_RUN_ACTIVE, "another run is active",
		"active_run", head.ActiveRun, "lease_expires_at", expiry)
}

// errViolation tells of an event that was refused.
func errViolation(v *agui.Violation, offset uint64, closed bool) *refusal {
	reason := threadsvcv1.ErrorReason_ERROR_REASON_PROTOCOL_VIOLATION
	if !v.Fatal() {
		reason = threadsvcv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED
	}
	text := fmt.Sprintf("event %d: %s: %s", offset, v.Code, v.Detail)
	return refuse(reason, text, "code", string(v.Code), "path", v.Path, "offset", number(offset), "run_closed", strconv.FormatBool(closed))
}

// errInput tells of a run input that was refused.
func errInput(err error) error {
	var v *agui.Violation
	var refused *agui.RefusalError
	switch {
	case errors.As(err, &v):
		reason := threadsvcv1.ErrorReason_ERROR_REASON_INVALID_INPUT
		if !v.Fatal() || v.Code == agui.PatchLimit {
			reason = threadsvcv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED
		}
		return refuse(reason, fmt.Sprintf("%s: %s", v.Code, v.Detail), "code", string(v.Code), "path", v.Path)
	case errors.As(err, &refused):
		return errRefused(refused)
	}
	return err
}

func errRefused(e *agui.RefusalError) *refusal {
	ids := strings.Join(e.IDs, ",")
	switch e.Reason {
	case agui.InterruptsOpen:
		return refuse(threadsvcv1.ErrorReason_ERROR_REASON_INTERRUPTS_OPEN, "interrupts are not answered by resume", "interrupt_ids", ids)
	case agui.InterruptsExpired:
		return refuse(threadsvcv1.ErrorReason_ERROR_REASON_INTERRUPTS_EXPIRED, "expired interrupts can only be cancelled", "interrupt_ids", ids)
	case agui.InterruptsUnknown:
		return refuse(threadsvcv1.ErrorReason_ERROR_REASON_INTERRUPTS_UNKNOWN, "resume answers interrupts that are not open", "interrupt_ids", ids)
	}
	return refuse(threadsvcv1.ErrorReason_ERROR_REASON_TOOL_CALLS_UNANSWERED, "tool calls have no result", "tool_call_ids", ids)
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }
