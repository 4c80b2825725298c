package service

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/threadsvc/threadsvc/agui"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
)

// threadKey checks a thread's name and returns its key.
func threadKey(name *threadsvcv1.ThreadName, field string) (store.Key, error) {
	if name == nil {
		return store.Key{}, errField(field, "is required")
	}
	if err := checkOptionalID(field+".tenant", name.GetTenant()); err != nil {
		return store.Key{}, err
	}
	if err := checkID(field+".thread_id", name.GetThreadId()); err != nil {
		return store.Key{}, err
	}
	return store.KeyOf(name.GetTenant(), name.GetThreadId()), nil
}

// checkID judges an identifier as agui does those within events.
func checkID(field, id string) error {
	if id == "" {
		return errField(field, "must not be empty")
	}
	return checkOptionalID(field, id)
}

// checkOptionalID is checkID for what may be empty.
func checkOptionalID(field, id string) error {
	switch {
	case len(id) > agui.MaxIDBytes:
		return errField(field, fmt.Sprintf("must not be longer than %d bytes", agui.MaxIDBytes))
	case strings.ContainsRune(id, 0):
		return errField(field, "must not contain NUL")
	case !utf8.ValidString(id):
		return errField(field, "must be UTF-8")
	}
	return nil
}

// statuses maps the stored status of a run to the contract's.
var statuses = map[store.RunStatus]threadsvcv1.RunStatus{
	store.RunActive:      threadsvcv1.RunStatus_RUN_STATUS_ACTIVE,
	store.RunFinished:    threadsvcv1.RunStatus_RUN_STATUS_FINISHED,
	store.RunInterrupted: threadsvcv1.RunStatus_RUN_STATUS_INTERRUPTED,
	store.RunCancelled:   threadsvcv1.RunStatus_RUN_STATUS_CANCELLED,
	store.RunFailed:      threadsvcv1.RunStatus_RUN_STATUS_FAILED,
	store.RunTruncated:   threadsvcv1.RunStatus_RUN_STATUS_TRUNCATED,
}

func runStatusName(status store.RunStatus) string {
	return strings.TrimPrefix(statuses[status].String(), "RUN_STATUS_")
}

// threadMessage translates a head.
func threadMessage(h *store.Head) *threadsvcv1.Thread {
	return &threadsvcv1.Thread{
		Name:            &threadsvcv1.ThreadName{Tenant: h.Tenant, ThreadId: h.ThreadID},
		Version:         h.Version,
		LogHash:         h.Hash[:],
		Metadata:        h.Metadata.Text,
		CreateTime:      timestamp(h.CreatedAt),
		LastRunTime:     timestamp(h.LastRunAt),
		ActiveRunId:     h.ActiveRun,
		LeaseExpireTime: timestamp(h.LeaseExpiresAt),
		RunCount:        h.Runs,
		FirstVersion:    h.FirstVersion,
	}
}

// runMessage translates a run.
func runMessage(r *store.Run) *threadsvcv1.Run {
	return &threadsvcv1.Run{
		RunId:           r.RunID,
		Ordinal:         r.Ordinal,
		Status:          statuses[r.Status],
		ParentRunId:     r.ParentRunID,
		FirstVersion:    r.FirstVersion,
		LastVersion:     r.LastVersion,
		ProtocolVersion: agui.Text(r.ProtocolVersion),
		Outcome:         r.Outcome,
		Result:          r.Result,
		Usage:           r.Usage,
		Error:           r.Error,
		StartTime:       timestamp(r.StartedAt),
		EndTime:         timestamp(r.EndedAt),
		WarningCount:    r.Warnings,
	}
}

// warningMessage translates a warning of the ledger.
func warningMessage(w *store.Warning) *threadsvcv1.Warning {
	return &threadsvcv1.Warning{
		Code: string(w.Code), Path: w.Path, Detail: w.Detail, Offset: w.Offset, RunId: w.RunID, Version: w.Version,
		Fatal: w.Fatal, Removed: w.Removed, RaiseTime: timestamp(w.RaisedAt),
	}
}

// maxWarnings is the number of warnings that one answer carries; ListWarnings has them all.
const maxWarnings = 1000

// appendWarnings translates the warnings that one event raised, as far as the answer has room for them.
func appendWarnings(dst []*threadsvcv1.Warning, warnings []agui.Warning, offset uint64, runID string, version uint64) []*threadsvcv1.Warning {
	for i := range warnings[:min(len(warnings), maxWarnings-len(dst))] {
		w := &warnings[i]
		dst = append(dst, &threadsvcv1.Warning{
			Code: string(w.Code), Path: w.Path, Detail: w.Detail, Offset: offset, RunId: runID, Version: version,
		})
	}
	return dst
}

// resyncMessage says what a thread's state lacks, nil if nothing.
func resyncMessage(t *agui.Thread) *threadsvcv1.StateResync {
	due := t.StateResync()
	if due == nil {
		return nil
	}
	return &threadsvcv1.StateResync{SinceVersion: due.Since, LostEvents: due.Lost}
}

// timestamp translates a time; the zero time is absent.
func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
