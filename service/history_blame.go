package service

import (
	"context"

	"github.com/threadsvc/threadsvc/agui/history"
	"github.com/threadsvc/threadsvc/agui/jsondoc"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
)

// BlameState implements the contract.
func (s *Service) BlameState(ctx context.Context, req *threadsvcv1.BlameStateRequest) (*threadsvcv1.BlameStateResponse, error) {
	resp, err := s.blameState(ctx, req)
	if err != nil {
		return nil, statusOf(err, s.cfg.Logger).Err()
	}
	return resp, nil
}

func (s *Service) blameState(ctx context.Context, req *threadsvcv1.BlameStateRequest) (*threadsvcv1.BlameStateResponse, error) {
	b, err := s.blamer(ctx, req)
	if err != nil {
		return nil, err
	}
	if err := b.readLeaves(ctx, pageSize(req.GetPageSize(), 50, maxScanPage)); err != nil {
		return nil, err
	}
	for b.open() > 0 && b.scan.more() {
		w, err := b.scan.window(ctx)
		if err != nil {
			return nil, err
		}
		w.Blame(b.leaves)
	}
	return b.answer(), nil
}

// blamer finds the entries for one page of leaves.
type blamer struct {
	scan   scan
	end    uint64
	under  jsondoc.Pointer
	after  *jsondoc.Pointer // the last leaf that was begun with
	last   bool             // there are no more after it
	places []jsondoc.Pointer
	values []*threadsvcv1.ValueText
	leaves []*history.Leaf
	filled int // bytes of the page
	token  *scanToken
}

func (s *Service) blamer(ctx context.Context, req *threadsvcv1.BlameStateRequest) (*blamer, error) {
	key, err := threadKey(req.GetThread(), "thread")
	if err != nil {
		return nil, err
	}
	under, err := readPointer("pointer", req.GetPointer())
	if err != nil {
		return nil, err
	}
	head, err := s.head(ctx, key)
	if err != nil {
		return nil, err
	}
	b := &blamer{under: under}
	if b.token, err = readScanToken(req, &head); err != nil {
		return nil, err
	}
	if b.token == nil {
		b.end, err = s.versionOf(ctx, &head, req.GetMoment(), "moment")
		b.token = &scanToken{Version: b.end, At: b.end + 1}
	}
	if b.token.After != nil && err == nil {
		var after jsondoc.Pointer
		after, err = tokenPointer(*b.token.After)
		b.after = &after
	}
	b.end = b.token.Version
	b.scan = scan{service: s, head: &head, first: head.FirstVersion, at: history.Place{Version: b.token.At, Step: b.token.Step}}
	return b, err
}

// readLeaves finds the leaves that are to be dealt with: those left open by the page before, or else the next ones.
func (b *blamer) readLeaves(ctx context.Context, limit int) error {
	doc, err := b.scan.service.docAt(ctx, b.scan.head, b.end)
	if err != nil {
		return err
	}
	for _, open := range b.token.Open {
		end, err := tokenPointer(open.End)
		if err != nil {
			return err
		}
		at, err := tokenPointer(open.At)
		if err != nil {
			return err
		}
		b.add(doc, end, at)
	}
	b.last = true
	for at := range doc.Leaves(b.under, b.after) {
		if len(b.leaves) == limit || len(b.token.Open) > 0 || b.filled > pageBytes/2 {
			b.last = false
			break
		}
		b.add(doc, at, at)
		b.after = &at
	}
	return nil
}

func (b *blamer) add(doc *jsondoc.Doc, end, at jsondoc.Pointer) {
	text, _ := doc.Find(end)
	b.places, b.values = append(b.places, end), append(b.values, valueText(text, maxValueText))
	b.leaves = append(b.leaves, &history.Leaf{At: at})
	b.filled += len(end.String()) + min(len(text), maxValueText)
}

// open is the number of leaves whose entry is not known.
func (b *blamer) open() (n int) {
	for _, l := range b.leaves {
		if !l.Found {
			n++
		}
	}
	return n
}

// answer tells what was found. What was not is left to the next page, unless all the log that there is was looked at.
func (b *blamer) answer() *threadsvcv1.BlameStateResponse {
	resp := &threadsvcv1.BlameStateResponse{Version: b.end}
	next := scanToken{Version: b.end, At: b.end + 1}
	if b.after != nil {
		after := []byte(b.after.String())
		next.After = &after
	}
	for i, l := range b.leaves {
		if !l.Found && !b.scan.done() {
			next.At, next.Step = b.scan.at.Version, b.scan.at.Step
			next.Open = append(next.Open, openToken{End: []byte(b.places[i].String()), At: []byte(l.At.String())})
			continue
		}
		leaf := &threadsvcv1.BlamedLeaf{Path: shown(b.places[i].String()), Value: b.values[i]}
		switch {
		case !l.Found:
			leaf.PrunedVersion = b.scan.first
		default:
			leaf.Source, leaf.Operation, leaf.OperationIndex = sourceMessage(&l.Source), l.Op, int32(l.Index)
		}
		resp.Leaves = append(resp.Leaves, leaf)
	}
	if len(next.Open) > 0 || !b.last {
		resp.NextPageToken = next.write()
	}
	return resp
}

// docAt is the state at a version.
func (s *Service) docAt(ctx context.Context, head *store.Head, version uint64) (*jsondoc.Doc, error) {
	thread, err := s.foldAt(ctx, head.Key, head.ThreadID, version)
	if err != nil {
		return nil, err
	}
	return jsondoc.Parse(thread.State(nil), storedDocs)
}
