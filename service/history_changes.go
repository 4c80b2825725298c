package service

import (
	"context"

	"github.com/threadsvc/threadsvc/agui/history"
	"github.com/threadsvc/threadsvc/agui/jsondoc"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// ListStateChanges implements the contract.
func (s *Service) ListStateChanges(ctx context.Context, req *threadsvcv1.ListStateChangesRequest) (*threadsvcv1.ListStateChangesResponse, error) {
	resp, err := s.listStateChanges(ctx, req)
	if err != nil {
		return nil, statusOf(err, s.cfg.Logger).Err()
	}
	return resp, nil
}

func (s *Service) listStateChanges(ctx context.Context, req *threadsvcv1.ListStateChangesRequest) (*threadsvcv1.ListStateChangesResponse, error) {
	l, err := s.changeLister(ctx, req)
	if err != nil {
		return nil, err
	}
	more := true
	for more && !l.full() && l.scan.more() {
		w, err := l.scan.window(ctx)
		if err != nil {
			return nil, err
		}
		l.at, more = w.Changes(l.at, l.take)
	}
	if more && (l.stopped || !l.scan.done()) {
		at := l.scan.at
		token := scanToken{Version: l.end, At: at.Version, Step: at.Step, Pointer: []byte(l.at.String())}
		l.resp.NextPageToken = token.write()
	} else if more && req.GetFrom() == nil {
		l.resp.PrunedVersion = l.scan.first
	}
	return l.resp, nil
}

// changeLister gathers one page of changes.
type changeLister struct {
	scan    scan
	end     uint64          // the version at which the range ends
	at      jsondoc.Pointer // where the value is at the place that the scan has reached
	limit   int
	size    int // bytes of values that were looked at
	filled  int // bytes of the page
	resp    *threadsvcv1.ListStateChangesResponse
	stopped bool // in the midst of a window
}

func (s *Service) changeLister(ctx context.Context, req *threadsvcv1.ListStateChangesRequest) (*changeLister, error) {
	key, err := threadKey(req.GetThread(), "thread")
	if err != nil {
		return nil, err
	}
	pointer, err := readPointer("pointer", req.GetPointer())
	if err != nil {
		return nil, err
	}
	head, err := s.head(ctx, key)
	if err != nil {
		return nil, err
	}
	first := head.FirstVersion
	if req.GetFrom() != nil {
		if first, err = s.versionOf(ctx, &head, req.GetFrom(), "from"); err != nil {
			return nil, err
		}
	}
	l := &changeLister{at: pointer, limit: pageSize(req.GetPageSize(), 50, maxScanPage), resp: &threadsvcv1.ListStateChangesResponse{}}
	token, err := readScanToken(req, &head)
	if err != nil {
		return nil, err
	}
	if token == nil {
		l.end, err = s.versionOf(ctx, &head, req.GetTo(), "to")
		token = &scanToken{At: l.end + 1}
	} else {
		l.end = token.Version
		l.at, err = tokenPointer(token.Pointer)
	}
	l.scan = scan{service: s, head: &head, first: first, at: history.Place{Version: token.At, Step: token.Step}}
	return l, err
}

// full reports whether the page has enough: changes, bytes, or bytes that were compared for it.
func (l *changeLister) full() bool {
	return len(l.resp.Changes) == l.limit || l.filled > pageBytes || l.size > l.scan.service.cfg.ScanBytes
}

// take adds a change to the page, and reports whether there is room for another.
func (l *changeLister) take(c *history.Change) bool {
	change := &threadsvcv1.StateChange{
		Source: sourceMessage(&c.Source), Operation: c.Op, OperationIndex: int32(c.Index),
		Path: shown(c.Path.String()), PathBefore: shown(c.Before.String()),
		Before: valueText(c.Old, maxValueText), After: valueText(c.New, maxValueText),
	}
	l.resp.Changes = append(l.resp.Changes, change)
	l.size += len(c.Old) + len(c.New)
	l.filled += len(change.Path) + len(change.PathBefore) + len(change.GetBefore().GetText()) + len(change.GetAfter().GetText())
	if l.stopped = l.full(); l.stopped {
		l.scan.at = c.Place
	}
	return !l.stopped
}
