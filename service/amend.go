package service

import (
	"context"
	"encoding/binary"
	"errors"
	"unicode/utf8"

	"github.com/threadsvc/threadsvc/agui"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
)

// maxAmendReason bounds the reason that AmendThread is given, in bytes.
const maxAmendReason = 1024

// politeAttempts is how many attempts to amend a thread may fail, because of what its run writes on another node, before
// the head is held.
const politeAttempts = 2

// amendCall is a call of AmendThread.
type amendCall struct {
	key       store.Key
	req       *threadsvcv1.AmendThreadRequest
	amendment agui.Amendment
	warnings  []agui.Warning
}

// AmendThread implements the contract.
func (s *Service) AmendThread(ctx context.Context, req *threadsvcv1.AmendThreadRequest) (*threadsvcv1.AmendThreadResponse, error) {
	resp, err := s.amendThread(ctx, req)
	if err != nil {
		return nil, statusOf(err, s.cfg.Logger).Err()
	}
	return resp, nil
}

func (s *Service) amendThread(ctx context.Context, req *threadsvcv1.AmendThreadRequest) (*threadsvcv1.AmendThreadResponse, error) {
	call, err := s.readAmendment(req)
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		amend := s.amendQueued
		if attempt > politeAttempts {
			amend = s.amendPatiently
		}
		resp, err := amend(ctx, call)
		if !overtaken(err) || attempt == maxAttempts {
			return resp, err
		}
	}
}

// readAmendment checks what the thread is amended by, messages by the rules for a RunAgentInput.
func (s *Service) readAmendment(req *threadsvcv1.AmendThreadRequest) (*amendCall, error) {
	key, err := threadKey(req.GetThread(), "thread")
	if err != nil {
		return nil, err
	}
	if err := checkID("amendment_id", req.GetAmendmentId()); err != nil {
		return nil, err
	}
	if reason := req.GetReason(); len(reason) > maxAmendReason || !utf8.ValidString(reason) {
		return nil, errField("reason", "must be UTF-8 of at most 1,024 bytes")
	}
	if len(req.GetMessages()) == 0 && len(req.GetStatePatch()) == 0 {
		return nil, errField("messages", "must not be empty unless there is a state_patch")
	}
	input := inputText{depth: s.cfg.Limits.Depth}
	input.string("threadId", req.GetThread().GetThreadId())
	input.string("runId", "unused") // a RunAgentInput has one
	input.list("messages", req.GetMessages())
	decoded, warnings, err := s.decodeInput(&input)
	if err != nil {
		return nil, err
	}
	amendment := agui.Amendment{ID: req.GetAmendmentId(), Digest: amendmentDigest(req), Reason: req.GetReason(), Input: decoded}
	if len(req.GetStatePatch()) > 0 {
		amendment.StatePatch = req.GetStatePatch()
	}
	return &amendCall{key, req, amendment, warnings}, nil
}

// amendmentDigest identifies what a thread is amended by. Every field has its number and its length.
func amendmentDigest(req *threadsvcv1.AmendThreadRequest) [8]byte {
	var text []byte
	field := func(number uint64, value []byte) {
		text = binary.AppendUvarint(binary.AppendUvarint(text, number), uint64(len(value)))
		text = append(text, value...)
	}
	for _, message := range req.GetMessages() {
		field(1, message)
	}
	field(2, req.GetStatePatch())
	field(3, []byte(req.GetReason()))
	return agui.DigestOf(text)
}

// amendQueued amends the thread behind whatever is queued here: an active run goes on meanwhile.
func (s *Service) amendQueued(ctx context.Context, call *amendCall) (*threadsvcv1.AmendThreadResponse, error) {
	resp, commit, err := s.tryAmend(ctx, call)
	if commit != nil {
		if failed := commit.outcome(ctx); failed != nil {
			return nil, failed
		}
	}
	return resp, err
}

// tryAmend returns the commit to wait for. What is refused, or known already, was judged by what others have queued, or else
// must be judged by what is committed.
func (s *Service) tryAmend(ctx context.Context, call *amendCall) (*threadsvcv1.AmendThreadResponse, *pending, error) {
	l, err := s.acquire(ctx, call.key, call.req.GetThread().GetThreadId())
	if err != nil {
		return nil, nil, err
	}
	defer s.letGo(l)
	busy, before := l.busy(), l.head
	resp, err := l.amend(call)
	switch {
	case err == nil && !resp.GetRepeatedRequest():
		return resp, l.queued, nil
	case busy != nil:
		s.committer.hasten(l)
		return resp, busy, err
	}
	if stale := s.checkCurrent(ctx, l, &before); stale != nil {
		return nil, nil, stale
	}
	return resp, nil, err
}

// amend folds an amendment and queues its entry, unless the thread has it already. The lock must be held.
func (l *live) amend(call *amendCall) (*threadsvcv1.AmendThreadResponse, error) {
	if !l.exists {
		return nil, errThreadNotFound
	}
	if known, ok := l.thread.Amended(call.amendment.ID); ok {
		if !known.Is(call.amendment.Digest) {
			return nil, refuse(threadsvcv1.ErrorReason_ERROR_REASON_AMENDMENT_EXISTS,
				"the amendment id was used before with other contents", "version", number(known.Version))
		}
		return &threadsvcv1.AmendThreadResponse{Version: known.Version, RepeatedRequest: true}, nil
	}
	if want := call.req.ExpectedVersion; want != nil && *want != l.head.Version {
		return nil, errVersion(l.head.Version)
	}
	applied, err := l.thread.Amend(call.amendment)
	if err != nil {
		return nil, errInput(err)
	}
	applied.Warnings = call.warnings
	l.queueAmendment(&applied)
	return &threadsvcv1.AmendThreadResponse{
		Version: l.head.Version, Warnings: appendWarnings(nil, call.warnings, 0, "", l.head.Version),
	}, nil
}

// queueAmendment queues an amendment's entry between those of the stream that may append, whose place does not change. By
// itself it does not renew the lease of the run.
func (l *live) queueAmendment(applied *agui.Applied) {
	earlier := l.queued
	keepLease := earlier == nil || earlier.commit.KeepLease
	p := l.pend()
	p.commit.KeepLease = keepLease
	p.wantsFold = p.wantsFold || !l.awaiting()
	warned := len(p.commit.Warnings)
	l.add(p, applied, l.head.NextOffset, l.head.NextOffset)
	for i := range p.commit.Warnings[warned:] {
		p.commit.Warnings[warned+i].Offset = 0 // no event raised them
	}
	l.seal(p)
	l.delay(0, earlier)
}

// errKnown says that the thread has been amended by the same request before.
var errKnown = errors.New("service: the thread has the amendment")

// amendPatiently is amendHeld once nobody else holds the head for long.
func (s *Service) amendPatiently(ctx context.Context, call *amendCall) (resp *threadsvcv1.AmendThreadResponse, err error) {
	err = s.patiently(ctx, call.key, func() error {
		resp, err = s.amendHeld(ctx, call)
		return err
	})
	return resp, err
}

// amendHeld amends a thread that another node keeps writing: with its head held, it catches up and commits before anybody
// else can. What is in memory of the thread is dropped then, since the run is elsewhere.
func (s *Service) amendHeld(ctx context.Context, call *amendCall) (resp *threadsvcv1.AmendThreadResponse, err error) {
	l, err := s.acquireSettled(ctx, call.key, call.req.GetThread().GetThreadId())
	if err != nil {
		return nil, err
	}
	defer s.letGo(l)
	defer s.cache.drop(l)
	ctx, cancel := s.storeContext(ctx)
	defer cancel()
	var commit *store.Commit
	result := s.store.CommitHeld(ctx, l.key, l.head.Version, catchUpBytes, func(news *store.Loaded) (*store.Commit, error) {
		if !l.exists || !l.follow(news) {
			return nil, errStale
		}
		if resp, err = l.amend(call); err != nil {
			return nil, err
		}
		if resp.GetRepeatedRequest() {
			return nil, errKnown
		}
		commit = l.take(s.cfg.FoldBytes)
		return commit, nil
	})
	l.inflight = nil
	switch {
	case errors.Is(result.Err, errKnown):
		return resp, nil
	case result.Err != nil:
		return nil, result.Err
	}
	s.tails.committed(l.head.CreatedAt, commit, result.CommittedAt)
	return resp, nil
}
