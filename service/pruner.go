package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/threadsvc/threadsvc/store"
)

const (
	// prunePage is how many threads are listed at once, and sweepRows about how many rows one transaction removes.
	prunePage = 64
	sweepRows = 500
	// pruneRetry is when a thread that could not be pruned is looked at again.
	pruneRetry = time.Hour
)

// pruner prunes threads as the policies of their tenants ask for, in the background and with a pause after each step.
// Several servers may do so at once: whoever comes second to a thread finds nothing to do.
type pruner struct {
	service *Service
	cancel  context.CancelFunc
	done    sync.WaitGroup
}

func newPruner(s *Service) *pruner {
	ctx, cancel := context.WithCancel(context.Background())
	p := &pruner{service: s, cancel: cancel}
	if s.cfg.PruneInterval > 0 {
		p.done.Go(func() { p.run(ctx) })
	}
	return p
}

// close stops the pruner and waits for it.
func (p *pruner) close() {
	p.cancel()
	p.done.Wait()
}

func (p *pruner) run(ctx context.Context) {
	every := p.service.cfg.PruneInterval
	for pause(ctx, every*3/4+rand.N(every/2+1)) {
		for p.round(ctx) {
		}
	}
}

// round goes on with what was begun, then marks what changed policies concern, and then prunes one page of threads. It
// reports whether there may be more to do at once.
func (p *pruner) round(ctx context.Context) bool {
	return p.sweepAll(ctx) && p.spread(ctx) && p.pruneDue(ctx)
}

// sweepAll removes the garbage of one page of threads. That of one that cannot be removed keeps nobody else's from it.
func (p *pruner) sweepAll(ctx context.Context) bool {
	s := p.service
	listCtx, cancel := s.storeContext(ctx)
	keys, err := s.store.Unswept(listCtx, prunePage)
	cancel()
	if err != nil {
		return p.failed(ctx, "", err)
	}
	for _, key := range keys {
		if err := s.sweep(ctx, key); err != nil {
			p.failed(ctx, key.String(), err)
		}
	}
	return ctx.Err() == nil
}

func (p *pruner) spread(ctx context.Context) bool {
	s := p.service
	for more := true; more; {
		storeCtx, cancel := s.storeContext(ctx)
		var err error
		more, err = s.store.SpreadPolicies(storeCtx, sweepRows)
		cancel()
		if err != nil {
			return p.failed(ctx, "", err)
		}
		if !pause(ctx, s.cfg.PrunePause) {
			return false
		}
	}
	return true
}

func (p *pruner) pruneDue(ctx context.Context) bool {
	s := p.service
	listCtx, cancel := s.storeContext(ctx)
	page, err := s.store.Due(listCtx, prunePage)
	cancel()
	if err != nil {
		return p.failed(ctx, "", err)
	}
	for _, due := range page {
		if err := s.pruneOne(ctx, due); err != nil {
			p.failed(ctx, due.Key.String(), err)
		}
		if !pause(ctx, s.cfg.PrunePause) {
			return false
		}
	}
	return len(page) == prunePage
}

func (p *pruner) failed(ctx context.Context, threadKey string, err error) bool {
	if ctx.Err() == nil {
		p.service.cfg.Logger.Warn("pruning failed", "thread_key", threadKey, "error", err)
	}
	return false
}

// pruneOne prunes a thread and notes when it is to be looked at next.
func (s *Service) pruneOne(ctx context.Context, due store.DueThread) error {
	keep := due.Policy.Keep
	keep.Grace = max(s.cfg.PruneGrace, 0)
	plan, err := s.prune(ctx, due.Key, keep)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case errors.Is(err, store.ErrConflict) || isRefusal(err): // somebody is busy with it: it stays due
		return nil
	case err != nil:
		plan.Next = time.Now().Add(pruneRetry)
	}
	storeCtx, cancel := s.storeContext(ctx)
	defer cancel()
	err = errors.Join(err, s.store.SetDue(storeCtx, due, plan.Head.Runs, plan.Next))
	if plan.Cut.Version > 0 {
		err = errors.Join(err, s.sweep(ctx, due.Key))
	}
	return err
}

func isRefusal(err error) bool {
	var refused *refusal
	return errors.As(err, &refused)
}

// prune cuts a thread where what is to be kept begins, if there is a place. What lies before is garbage then.
func (s *Service) prune(ctx context.Context, key store.Key, keep store.Keep) (store.Plan, error) {
	storeCtx, cancel := s.storeContext(ctx)
	plan, err := s.store.PlanCut(storeCtx, key, keep)
	cancel()
	if err != nil {
		return plan, err
	}
	if plan.Head.ActiveRun != "" {
		return plan, errRunActive(&plan.Head)
	}
	if plan.Cut.Version == 0 {
		return plan, nil
	}
	checkpoint, err := s.layCut(ctx, &plan)
	if err != nil {
		return plan, err
	}
	storeCtx, cancel = s.storeContext(ctx)
	defer cancel()
	return plan, s.store.Cut(storeCtx, key, plan.Cut, checkpoint.Hash)
}

// layCut lays the checkpoint of a cut, and checks it by reading it again. A log that cannot be read is not cut: what it
// was could not be told any more.
func (s *Service) layCut(ctx context.Context, plan *store.Plan) (store.Checkpoint, error) {
	key := plan.Head.Key
	thread, err := s.foldAt(ctx, key, plan.Head.ThreadID, plan.Cut.Version)
	if err != nil {
		return store.Checkpoint{}, err
	}
	c := store.Checkpoint{Fold: thread.Fold(), Hash: thread.Hash()}
	if c.Hash == ([32]byte{}) || thread.Running() {
		return c, fmt.Errorf("%w: the log up to version %d", store.ErrCorrupt, plan.Cut.Version)
	}
	storeCtx, cancel := s.storeContext(ctx)
	err = s.store.PutCut(storeCtx, key, c)
	cancel()
	if err != nil {
		return c, err
	}
	storeCtx, cancel = s.storeContext(ctx)
	defer cancel()
	kept, err := s.store.CheckpointAt(storeCtx, key, plan.Cut.Version)
	if errors.Is(err, store.ErrNotFound) || err == nil && kept.Fold.Version != plan.Cut.Version {
		return c, store.ErrConflict // somebody has cut the thread beyond, and removed it
	}
	if err == nil && (kept.Hash != c.Hash || !bytes.Equal(kept.Fold.Append(nil), c.Fold.Append(nil))) {
		err = fmt.Errorf("%w: the checkpoint of version %d", store.ErrCorrupt, plan.Cut.Version)
	}
	return c, err
}

// sweep removes a thread's garbage, step by step.
func (s *Service) sweep(ctx context.Context, key store.Key) error {
	for more := true; more; {
		storeCtx, cancel := s.storeContext(ctx)
		var err error
		more, err = s.store.Sweep(storeCtx, key, sweepRows)
		cancel()
		if err != nil {
			return err
		}
		if more && !pause(ctx, s.cfg.PrunePause) {
			return ctx.Err()
		}
	}
	return nil
}
