package main

import (
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// What --json writes. The names of fields stay; fields may be added. Times are RFC 3339, hashes hexadecimal, sizes in
// bytes. JSON of the thread's own (metadata, payloads, values) is in it as such, with its numbers as they are written.

// threadView is a thread.
type threadView struct {
	Tenant       string          `json:"tenant"`
	Thread       string          `json:"thread"`
	Version      uint64          `json:"version"`
	LogHash      string          `json:"log_hash"`
	CreateTime   time.Time       `json:"create_time"`
	LastRunTime  time.Time       `json:"last_run_time"`
	Runs         int64           `json:"runs"`
	ActiveRun    string          `json:"active_run,omitempty"`
	LeaseExpires *time.Time      `json:"lease_expire_time,omitempty"`
	Metadata     json.RawMessage `json:"metadata,omitempty"`
}

// showView is a thread as show writes it. The first version is the first moment that can be read, and the log goes on after
// it; it is absent unless the thread was pruned.
type showView struct {
	threadView
	FirstVersion     uint64            `json:"first_version,omitempty"`
	Messages         int64             `json:"messages"`
	ContextBytes     int64             `json:"context_bytes"`
	StateBytes       uint64            `json:"state_bytes"`
	PendingToolCalls []string          `json:"pending_tool_calls"`
	OpenInterrupts   []json.RawMessage `json:"open_interrupts"`
	LastRuns         []runView         `json:"last_runs"`
	Warnings         int64             `json:"warnings_of_last_runs"`
	ResyncDue        *resyncView       `json:"state_resync_due,omitempty"`
	Undone           [][2]uint64       `json:"undone"`
	Origin           *originView       `json:"origin,omitempty"`
}

// resyncView says what the state lacks.
type resyncView struct {
	Since uint64 `json:"since_version"`
	Lost  int64  `json:"lost_events"`
}

// originView is where a thread was forked from.
type originView struct {
	Thread  string `json:"thread"`
	Version uint64 `json:"version"`
}

// runView is a run.
type runView struct {
	Run          string     `json:"run"`
	Status       string     `json:"status"`
	FirstVersion uint64     `json:"first_version"`
	LastVersion  uint64     `json:"last_version,omitempty"`
	StartTime    time.Time  `json:"start_time"`
	EndTime      *time.Time `json:"end_time,omitempty"`
	Warnings     int64      `json:"warnings"`
}

// entryView is an entry of the log, or a range that cannot be read (unreadable_to is its last version).
type entryView struct {
	Version      uint64          `json:"version"`
	UnreadableTo uint64          `json:"unreadable_to,omitempty"`
	CommitTime   *time.Time      `json:"commit_time,omitempty"`
	Kind         string          `json:"kind,omitempty"`
	Type         string          `json:"type,omitempty"`
	Run          string          `json:"run,omitempty"`
	Offset       uint64          `json:"offset"`
	Inert        bool            `json:"inert,omitempty"`
	Payload      json.RawMessage `json:"payload,omitempty"`
}

// sourceView is the entry that a value comes from.
type sourceView struct {
	Version    uint64    `json:"version"`
	CommitTime time.Time `json:"commit_time"`
	Run        string    `json:"run,omitempty"`
	Subagent   string    `json:"subagent_run,omitempty"`
	Kind       string    `json:"kind"`
	Type       string    `json:"type,omitempty"`
	Offset     uint64    `json:"offset"`
}

// valueView is a value: whole, or its beginning where it is long, with the hash of the whole.
type valueView struct {
	Value     json.RawMessage `json:"value,omitempty"`
	Beginning string          `json:"beginning,omitempty"`
	Size      uint64          `json:"size"`
	SHA256    string          `json:"sha256,omitempty"`
}

// changeView is a change of a value; before or after is absent if there was, or is, none. If the list ends because the log
// up to a version was pruned, a last line has that version as pruned_version. It is no change: its operation is empty, and
// its source null. Changes have no pruned_version.
type changeView struct {
	Path          string      `json:"path"`
	PathBefore    string      `json:"path_before"`
	Operation     string      `json:"operation"`
	Before        *valueView  `json:"before,omitempty"`
	After         *valueView  `json:"after,omitempty"`
	Source        *sourceView `json:"source"`
	PrunedVersion uint64      `json:"pruned_version,omitempty"`
}

// leafView is a leaf of the state; source is absent for the state that a thread begins with, and for a leaf that has had its
// value since pruned_version at least, so that what gave it was pruned.
type leafView struct {
	Path          string      `json:"path"`
	Value         *valueView  `json:"value"`
	Operation     string      `json:"operation,omitempty"`
	Source        *sourceView `json:"source,omitempty"`
	PrunedVersion uint64      `json:"pruned_version,omitempty"`
}

func viewThread(t *threadsvcv1.Thread) threadView {
	return threadView{
		Tenant: t.GetName().GetTenant(), Thread: t.GetName().GetThreadId(), Version: t.GetVersion(),
		LogHash: hex.EncodeToString(t.GetLogHash()), CreateTime: t.GetCreateTime().AsTime(), LastRunTime: t.GetLastRunTime().AsTime(),
		Runs: t.GetRunCount(), ActiveRun: t.GetActiveRunId(), LeaseExpires: viewTime(t.GetLeaseExpireTime()), Metadata: viewJSON(t.GetMetadata()),
	}
}

// metadata is what the application keeps with the thread, for people; nothing for an empty object.
func (t *threadView) metadata(width int) string {
	if string(t.Metadata) == "{}" {
		return ""
	}
	return short(string(t.Metadata), uint64(len(t.Metadata)), width)
}

func viewRun(r *threadsvcv1.Run) runView {
	return runView{
		Run: r.GetRunId(), Status: statusName(r.GetStatus()), FirstVersion: r.GetFirstVersion(), LastVersion: r.GetLastVersion(),
		StartTime: r.GetStartTime().AsTime(), EndTime: viewTime(r.GetEndTime()), Warnings: r.GetWarningCount(),
	}
}

func viewEntry(e *threadsvcv1.LogEntry) entryView {
	var typed struct{ Type string }
	_ = json.Unmarshal(e.GetPayload(), &typed) // an input has no type
	return entryView{
		Version: e.GetVersion(), CommitTime: viewTime(e.GetCommitTime()), Kind: kindName(e.GetKind()), Type: typed.Type,
		Run: e.GetRunId(), Offset: e.GetOffset(), Inert: e.GetInert(), Payload: viewJSON(e.GetPayload()),
	}
}

func viewSource(s *threadsvcv1.EntrySource) *sourceView {
	if s == nil {
		return nil
	}
	return &sourceView{
		Version: s.GetVersion(), CommitTime: s.GetCommitTime().AsTime(), Run: s.GetRunId(), Subagent: s.GetSubagentRunId(),
		Kind: kindName(s.GetKind()), Type: s.GetEventType(), Offset: s.GetOffset(),
	}
}

func viewChange(c *threadsvcv1.StateChange) changeView {
	return changeView{
		Path: c.GetPath(), PathBefore: c.GetPathBefore(), Operation: c.GetOperation(),
		Before: viewValue(c.GetBefore()), After: viewValue(c.GetAfter()), Source: viewSource(c.GetSource()),
	}
}

func viewLeaf(l *threadsvcv1.BlamedLeaf) leafView {
	return leafView{
		Path: l.GetPath(), Value: viewValue(l.GetValue()), Operation: l.GetOperation(),
		Source: viewSource(l.GetSource()), PrunedVersion: l.GetPrunedVersion(),
	}
}

func viewValue(v *threadsvcv1.ValueText) *valueView {
	if v == nil {
		return nil
	}
	view := &valueView{Size: v.GetSize(), SHA256: hex.EncodeToString(v.GetSha256())}
	if view.Value = viewJSON(v.GetText()); view.Value == nil || view.SHA256 != "" {
		view.Value, view.Beginning = nil, string(v.GetText())
	}
	return view
}

// text is a value for people, at most so many characters of it.
func (v *valueView) text(width int) string {
	if v == nil {
		return "-"
	}
	return short(v.Beginning+string(v.Value), v.Size, width)
}

// viewJSON is a JSON text as it is, and nil for what is none.
func viewJSON(text []byte) json.RawMessage {
	if !json.Valid(text) {
		return nil
	}
	return text
}

func viewTime(t *timestamppb.Timestamp) *time.Time {
	if t == nil {
		return nil
	}
	at := t.AsTime()
	return &at
}

func kindName(k threadsvcv1.EntryKind) string {
	return strings.ToLower(strings.TrimPrefix(k.String(), "ENTRY_KIND_"))
}
