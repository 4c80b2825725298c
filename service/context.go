package service

import (
	"context"

	"github.com/threadsvc/threadsvc/agui"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
)

// chunkSize is the length of the pieces in which large texts are streamed; measured to be the fastest.
const chunkSize = 256 << 10

// sendChunks sends a text in pieces.
func sendChunks(text []byte, send func(chunk []byte) error) error {
	for len(text) > 0 {
		n := min(chunkSize, len(text))
		if err := send(text[:n]); err != nil {
			return err
		}
		text = text[n:]
	}
	return nil
}

// snapshot reads a thread as it is committed now. The caller owns it.
func (s *Service) snapshot(ctx context.Context, name *threadsvcv1.ThreadName) (*agui.Thread, *store.Loaded, error) {
	key, err := threadKey(name, "thread")
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := s.storeContext(ctx)
	defer cancel()
	loaded, err := s.store.Load(ctx, key)
	if err != nil {
		return nil, nil, err
	}
	thread, unreadable, err := restore(name.GetThreadId(), loaded, s.cfg.Limits)
	for _, err := range unreadable {
		s.cfg.Logger.Error("stored entry passed over", "thread_key", key.String(), "error", err)
	}
	return thread, loaded, err
}

// contextOf reads what a thread's context is made of. Of a thread that nobody is writing to that is the stored fold, without
// what no context has; the log after the fold, or the input of an open run, are read if there are any.
func (s *Service) contextOf(ctx context.Context, name *threadsvcv1.ThreadName) (*agui.Thread, error) {
	key, err := threadKey(name, "thread")
	if err != nil {
		return nil, err
	}
	storeCtx, cancel := s.storeContext(ctx)
	folded, err := s.store.Folded(storeCtx, key, agui.RoleActivity)
	cancel()
	if err != nil {
		return nil, err
	}
	if folded.Current() {
		thread, err := agui.Restore(name.GetThreadId(), folded.Fold, folded.Hash, s.cfg.Limits)
		if err != nil || !thread.Running() {
			return thread, err
		}
	}
	thread, _, err := s.snapshot(ctx, name)
	return thread, err
}

// contextAt is contextOf for a moment, which is now if there is none.
func (s *Service) contextAt(ctx context.Context, name *threadsvcv1.ThreadName, moment *threadsvcv1.Moment) (*agui.Thread, error) {
	if moment == nil {
		return s.contextOf(ctx, name)
	}
	return s.readAt(ctx, name, moment)
}

// GetContext implements the contract.
func (s *Service) GetContext(req *threadsvcv1.GetContextRequest, stream threadsvcv1.ThreadService_GetContextServer) error {
	thread, err := s.contextAt(stream.Context(), req.GetThread(), req.GetMoment())
	if err != nil {
		return statusOf(err, s.cfg.Logger).Err()
	}
	lent := lend(thread.InputSize())
	input := thread.AppendRunInput((*lent.memory)[:0], false)
	hash := thread.Hash()
	info := &threadsvcv1.ContextInfo{
		Version:                     thread.Version(),
		InputSize:                   uint64(len(input.Text)),
		PendingToolCalls:            thread.PendingToolCalls(),
		OpenInterrupts:              interrupts(thread),
		StateTouchedByIncompleteRun: thread.TouchedByIncompleteRun(),
		LogHash:                     hash[:],
		StateResyncDue:              resyncMessage(thread),
	}
	first := &threadsvcv1.GetContextResponse{Part: &threadsvcv1.GetContextResponse_Info{Info: info}}
	if err := stream.Send(first); err != nil {
		return err
	}
	return lent.send(input.Text, stream.SendMsg)
}

func interrupts(thread *agui.Thread) [][]byte {
	var list [][]byte
	for _, interrupt := range thread.OpenInterrupts() {
		list = append(list, interrupt)
	}
	return list
}
