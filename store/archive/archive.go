// Package archive is the form in which a thread is exported: one file that holds all that cannot be derived, and checks
// itself.
//
// The file is the line "threadsvc-export 1\n" and then frames. A frame is its kind (a byte), the length of its payload (an
// uvarint, as of encoding/binary), the payload, and the CRC-32C of kind and payload (4 bytes, big endian). In their order:
//
//	H  where the thread stands: a JSON object (type Head)
//	F  the stored form of the fold at the first version (agui.Fold.Append), if the log was cut there; the entries begin after it
//	E  entries that were committed together: the length of a JSON object as an uvarint, the object (type entries), and the
//	   stored forms of the entries one after another (agui.Entry.Append); as many frames as it takes
//	R  a run: a JSON object (type run); those of a thread in the order of their ordinals
//	W  a warning: a JSON object (type warning); in the order they were raised
//	Z  the end: the SHA-256 of all bytes before this frame
//
// Bytes within JSON are base64, times are microseconds since 1970. Entries are cut where their time, run or producer stream
// changes, and after 1 MiB, so that the file does not depend on how the log is cut into segments: the same thread gives
// the same bytes. State and messages are not in it: they are the fold of the log, or of that which was cut and the rest.
package archive

import (
	"errors"
	"time"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
)

const (
	magic = "threadsvc-export 1\n"

	kindHead    = 'H'
	kindFold    = 'F'
	kindEntries = 'E'
	kindRun     = 'R'
	kindWarning = 'W'
	kindEnd     = 'Z'

	// cutBytes is the size at which a frame of entries ends.
	cutBytes = 1 << 20
)

// ErrInvalid is returned for what is not a whole archive as it was written.
var ErrInvalid = errors.New("archive: invalid")

// Head is where a thread stands.
type Head struct {
	Tenant     string `json:"tenant"`
	ThreadID   string `json:"threadId"`
	Version    uint64 `json:"version"`
	LogHash    []byte `json:"logHash"`
	Fence      uint64 `json:"fence"`
	StreamID   string `json:"streamId"`
	NextOffset uint64 `json:"nextOffset"`
	ActiveRun  string `json:"activeRun"`
	LeaseTTL   int64  `json:"leaseTtlMs"`
	Runs       int64  `json:"runs"`
	Metadata   []byte `json:"metadata"`
	CreatedAt  int64  `json:"createdAt"`
	LastRunAt  int64  `json:"lastRunAt"`

	// Where the log was cut; absent if it was not.
	FirstVersion uint64 `json:"firstVersion,omitempty"`
	FirstHash    []byte `json:"firstHash,omitempty"`
	FirstAt      int64  `json:"firstAt,omitempty"`
	PrunedRuns   int64  `json:"prunedRuns,omitempty"`
}

// HeadOf describes a head.
func HeadOf(h *store.Head) Head {
	w := Head{
		Tenant: h.Tenant, ThreadID: h.ThreadID, Version: h.Version, LogHash: h.Hash[:], Fence: h.Fence, StreamID: h.StreamID,
		NextOffset: h.NextOffset, ActiveRun: h.ActiveRun, LeaseTTL: h.LeaseTTL.Milliseconds(), Runs: h.Runs,
		Metadata: h.Metadata.Text, CreatedAt: h.CreatedAt.UnixMicro(), LastRunAt: h.LastRunAt.UnixMicro(),
	}
	if h.FirstVersion > 0 {
		w.FirstVersion, w.FirstHash, w.FirstAt, w.PrunedRuns = h.FirstVersion, h.FirstHash[:], h.FirstAt.UnixMicro(), h.PrunedRuns
	}
	return w
}

// Store is the head as a store has it, under another tenant's name perhaps. Labels are not set.
func (h *Head) Store(tenant string) (store.Head, error) {
	cut := h.FirstVersion > 0
	if len(h.LogHash) != 32 || cut != (len(h.FirstHash) == 32) || !cut && (len(h.FirstHash) > 0 || h.FirstAt != 0 || h.PrunedRuns != 0) {
		return store.Head{}, ErrInvalid
	}
	head := store.Head{
		Key: store.KeyOf(tenant, h.ThreadID), Tenant: tenant, ThreadID: h.ThreadID, Version: h.Version, Hash: [32]byte(h.LogHash),
		Fence: h.Fence, StreamID: h.StreamID, NextOffset: h.NextOffset, ActiveRun: h.ActiveRun,
		LeaseTTL: time.Duration(h.LeaseTTL) * time.Millisecond, Runs: h.Runs, Metadata: store.Metadata{Text: h.Metadata},
		CreatedAt: time.UnixMicro(h.CreatedAt).UTC(), LastRunAt: time.UnixMicro(h.LastRunAt).UTC(),
	}
	if cut {
		head.FirstVersion, head.FirstHash, head.PrunedRuns = h.FirstVersion, [32]byte(h.FirstHash), h.PrunedRuns
		head.FirstAt = time.UnixMicro(h.FirstAt).UTC()
	}
	return head, nil
}

// entries describes a frame of entries.
type entries struct {
	FirstVersion uint64 `json:"firstVersion"`
	LastVersion  uint64 `json:"lastVersion"`
	RunID        string `json:"runId"`
	StreamID     string `json:"streamId"`
	FirstOffset  uint64 `json:"firstOffset"`
	NextOffset   uint64 `json:"nextOffset"`
	CommittedAt  int64  `json:"committedAt"`
}

// run is a run's row.
type run struct {
	RunID           string          `json:"runId"`
	Ordinal         int64           `json:"ordinal"`
	StreamID        string          `json:"streamId"`
	ParentRunID     string          `json:"parentRunId"`
	InputHash       []byte          `json:"inputHash"`
	Fence           uint64          `json:"fence"`
	FirstVersion    uint64          `json:"firstVersion"`
	FirstOffset     uint64          `json:"firstOffset"`
	Status          store.RunStatus `json:"status"`
	LastVersion     uint64          `json:"lastVersion"`
	NextOffset      uint64          `json:"nextOffset"`
	ProtocolVersion []byte          `json:"protocolVersion"`
	Outcome         []byte          `json:"outcome"`
	Result          []byte          `json:"result"`
	Usage           []byte          `json:"usage"`
	Error           []byte          `json:"error"`
	Warnings        int64           `json:"warnings"`
	StartedAt       int64           `json:"startedAt"`
	EndedAt         int64           `json:"endedAt"` // 0 while it is active
}

func runOf(r *store.Run) run {
	w := run{
		RunID: r.RunID, Ordinal: r.Ordinal, StreamID: r.StreamID, ParentRunID: r.ParentRunID, Fence: r.Fence,
		FirstVersion: r.FirstVersion, FirstOffset: r.FirstOffset, Status: r.Status, LastVersion: r.LastVersion,
		NextOffset: r.NextOffset, ProtocolVersion: r.ProtocolVersion, Outcome: r.Outcome, Result: r.Result, Usage: r.Usage,
		Error: r.Error, Warnings: r.Warnings, StartedAt: r.StartedAt.UnixMicro(),
	}
	if r.InputHash != ([32]byte{}) {
		w.InputHash = r.InputHash[:]
	}
	if !r.EndedAt.IsZero() {
		w.EndedAt = r.EndedAt.UnixMicro()
	}
	return w
}

func (w *run) store() (*store.Run, error) {
	r := &store.Run{
		RunID: w.RunID, Ordinal: w.Ordinal, StreamID: w.StreamID, ParentRunID: w.ParentRunID, Fence: w.Fence,
		FirstVersion: w.FirstVersion, FirstOffset: w.FirstOffset, Status: w.Status, LastVersion: w.LastVersion,
		NextOffset: w.NextOffset, ProtocolVersion: w.ProtocolVersion, Outcome: w.Outcome, Result: w.Result, Usage: w.Usage,
		Error: w.Error, Warnings: w.Warnings, StartedAt: time.UnixMicro(w.StartedAt).UTC(),
	}
	if len(w.InputHash) != 0 && len(w.InputHash) != 32 {
		return nil, ErrInvalid
	}
	copy(r.InputHash[:], w.InputHash)
	if w.EndedAt != 0 {
		r.EndedAt = time.UnixMicro(w.EndedAt).UTC()
	}
	return r, nil
}

// warning is a row of the ledger.
type warning struct {
	Version      uint64 `json:"version"`
	Ordinal      int32  `json:"ordinal"`
	RunID        string `json:"runId"`
	Offset       uint64 `json:"offset"`
	Code         string `json:"code"`
	Path         []byte `json:"path"`
	Detail       []byte `json:"detail"`
	Fatal        bool   `json:"fatal"`
	Removed      []byte `json:"removed"`
	RemovedBytes int64  `json:"removedBytes"`
	RaisedAt     int64  `json:"raisedAt"`
}

func warningOf(w *store.Warning) warning {
	return warning{
		Version: w.Version, Ordinal: w.Ordinal, RunID: w.RunID, Offset: w.Offset, Code: string(w.Code), Path: []byte(w.Path),
		Detail: []byte(w.Detail), Fatal: w.Fatal, Removed: w.Removed, RemovedBytes: w.RemovedBytes, RaisedAt: w.RaisedAt.UnixMicro(),
	}
}

func (w *warning) store() *store.Warning {
	return &store.Warning{
		Version: w.Version, Ordinal: w.Ordinal, RunID: w.RunID, Offset: w.Offset, Fatal: w.Fatal, RemovedBytes: w.RemovedBytes,
		Warning:  agui.Warning{Code: agui.Code(w.Code), Path: string(w.Path), Detail: string(w.Detail), Removed: w.Removed},
		RaisedAt: time.UnixMicro(w.RaisedAt).UTC(),
	}
}
