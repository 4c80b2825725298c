package service

import (
	"context"
	"encoding/base64"
	"encoding/json"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/agui/history"
	"github.com/threadsvc/threadsvc/agui/jsondoc"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
)

// windowBytes bounds the stretch of a log that is held in memory at once, by the entries that did something to the state.
const windowBytes = 16 << 20

// scan goes back over a thread's log, window by window, and counts what that costs.
type scan struct {
	service  *Service
	head     *store.Head
	first    uint64        // the version before which nothing is looked at
	at       history.Place // what lies before it is still to be looked at
	replayed int           // bytes of log
}

// more reports whether there is something left that the call may look at.
func (c *scan) more() bool { return !c.done() && c.replayed < c.service.cfg.ScanBytes }

// done reports whether everything was looked at.
func (c *scan) done() bool { return c.last() <= c.first }

// last is the last version that is not wholly looked at.
func (c *scan) last() uint64 {
	if c.at.Step > 0 {
		return c.at.Version
	}
	return c.at.Version - 1
}

// window is the stretch before the place, from the nearest checkpoint on, which the scan then stands before. If that is
// more than fits, it is the last part of it.
func (c *scan) window(ctx context.Context) (*history.Window, error) {
	last := c.last()
	thread, err := c.service.checkpointAt(ctx, c.head.Key, c.head.ThreadID, max(last-1, c.first))
	if err != nil {
		return nil, err
	}
	if thread.Version() < c.first {
		if err := c.service.advance(ctx, c.head.Key, thread, c.first, replayEntry(thread)); err != nil {
			return nil, err
		}
	}
	start := thread.Version()
	w, err := history.NewWindow(thread)
	if err != nil {
		return nil, err
	}
	err = c.service.advance(ctx, c.head.Key, thread, last, func(segment *store.Segment, entry *agui.Entry, stored []byte) error {
		c.replayed += len(stored)
		if w.Size() > windowBytes {
			next, err := history.NewWindow(w.Thread())
			if err != nil {
				return err
			}
			start, w = w.Version(), next
		}
		version := w.Version() + 1
		return w.Replay(history.Source{RunID: segment.RunID, CommittedAt: segment.CommitTime(version)}, entry, stored)
	})
	if err != nil {
		return nil, err
	}
	w.BackTo(c.at)
	c.at = history.After(start)
	return w, nil
}

// sourceMessage translates a source.
func sourceMessage(s *history.Source) *threadsvcv1.EntrySource {
	return &threadsvcv1.EntrySource{
		Version: s.Version, CommitTime: timestamp(s.CommittedAt), RunId: s.RunID, SubagentRunId: s.SubagentRunID,
		Kind: kinds[s.Kind], EventType: string(s.EventType), Offset: s.Offset,
	}
}

// scanToken is the page token of a scan. Pointers are bytes, since their keys may have lone surrogates.
type scanToken struct {
	Version uint64 `json:"v"` // where the scan ends
	At      uint64 `json:"a"` // the place it has reached
	Step    int    `json:"s,omitempty"`
	Pointer []byte `json:"p,omitempty"` // where the value is there

	After *[]byte     `json:"l,omitempty"` // of a blame: the last leaf that was begun with; absent before the first
	Open  []openToken `json:"o,omitempty"` // those of them that are not found
}

// openToken is a leaf whose entry was not found yet: where it is at the end and where it was at the place reached.
type openToken struct {
	End []byte `json:"e"`
	At  []byte `json:"a"`
}

func (t *scanToken) write() string {
	text, err := json.Marshal(t)
	if err != nil { // cannot happen: it has nothing that JSON lacks
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// readScanToken reads a token, which anybody may have written, for a thread at a version; nil for the first page.
func readScanToken(page pageRequest, head *store.Head) (*scanToken, error) {
	if page.GetPageSize() < 0 {
		return nil, errField("page_size", "must not be negative")
	}
	if page.GetPageToken() == "" {
		return nil, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(page.GetPageToken())
	t := &scanToken{}
	if err == nil {
		err = json.Unmarshal(text, t)
	}
	beyond := t.At > t.Version+1 || t.At > t.Version && t.Step > 0
	if err != nil || t.Version > head.Version || t.At < 1 || beyond || t.Step < 0 || len(t.Open) > maxScanPage {
		return nil, errField("page_token", "is not one of this list")
	}
	return t, checkKept(head, t.Version)
}

// maxScanPage is the size of the largest page of a scan.
const maxScanPage = 500

// tokenPointer reads a pointer of a token.
func tokenPointer(text []byte) (jsondoc.Pointer, error) {
	pointer, err := jsondoc.ParsePointer(string(text))
	if err != nil {
		return pointer, errField("page_token", "is not one of this list")
	}
	return pointer, nil
}
