package service

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
)

// maxRetention bounds the age of a policy, so that times stay within what databases have.
const maxRetention = 100 * 365 * 24 * time.Hour

// errVersionPruned tells that a version is before the first that is kept; it is empty if a time was asked for.
func errVersionPruned(first uint64, version string) *refusal {
	return refuse(threadsvcv1.ErrorReason_ERROR_REASON_VERSION_PRUNED, "the log before the first version was pruned",
		"first_version", number(first), "version", version)
}

// checkKept refuses a version that cannot be read as a moment any more.
func checkKept(head *store.Head, version uint64) error {
	if version < head.FirstVersion {
		return errVersionPruned(head.FirstVersion, number(version))
	}
	return nil
}

// checkEntryKept refuses an entry that is not in the log any more.
func checkEntryKept(head *store.Head, version uint64) error {
	if version <= head.FirstVersion {
		return errVersionPruned(head.FirstVersion, number(version))
	}
	return nil
}

// GetRetentionPolicy implements the contract.
func (s *Service) GetRetentionPolicy(ctx context.Context, req *threadsvcv1.GetRetentionPolicyRequest) (*threadsvcv1.GetRetentionPolicyResponse, error) {
	policy, err := s.policy(ctx, req.GetTenant())
	if errors.Is(err, store.ErrNotFound) {
		return &threadsvcv1.GetRetentionPolicyResponse{}, nil
	}
	if err != nil {
		return nil, statusOf(err, s.cfg.Logger).Err()
	}
	return &threadsvcv1.GetRetentionPolicyResponse{Policy: policyMessage(&policy)}, nil
}

func (s *Service) policy(ctx context.Context, tenant string) (store.Policy, error) {
	if err := checkOptionalID("tenant", tenant); err != nil {
		return store.Policy{}, err
	}
	ctx, cancel := s.storeContext(ctx)
	defer cancel()
	return s.store.Policy(ctx, tenant)
}

// UpdateRetentionPolicy implements the contract.
func (s *Service) UpdateRetentionPolicy(ctx context.Context, req *threadsvcv1.UpdateRetentionPolicyRequest) (*threadsvcv1.UpdateRetentionPolicyResponse, error) {
	policy, err := readPolicy(req.GetPolicy())
	if err == nil {
		storeCtx, cancel := s.storeContext(ctx)
		defer cancel()
		policy, err = s.store.SetPolicy(storeCtx, policy)
	}
	if err != nil {
		return nil, statusOf(err, s.cfg.Logger).Err()
	}
	return &threadsvcv1.UpdateRetentionPolicyResponse{Policy: policyMessage(&policy)}, nil
}

func readPolicy(m *threadsvcv1.RetentionPolicy) (p store.Policy, err error) {
	if err := checkOptionalID("policy.tenant", m.GetTenant()); err != nil {
		return p, err
	}
	if m.GetMaxAge() != nil && m.GetMaxAge().CheckValid() != nil {
		return p, errField("policy.max_age", "is not a duration")
	}
	age := m.GetMaxAge().AsDuration()
	switch {
	case age < 0 || age > maxRetention || age%time.Microsecond != 0:
		return p, errField("policy.max_age", "must be whole microseconds, not negative, and at most 100 years")
	case m.GetMaxRuns() < 0:
		return p, errField("policy.max_runs", "must not be negative")
	case m.GetMaxBytes() < 0:
		return p, errField("policy.max_bytes", "must not be negative")
	case age == 0 && m.GetMaxRuns() == 0 && m.GetMaxBytes() == 0:
		return p, errField("policy", "must limit something")
	}
	keep := store.Keep{MaxAge: age, MaxRuns: m.GetMaxRuns(), MaxBytes: m.GetMaxBytes()}
	return store.Policy{Tenant: m.GetTenant(), Keep: keep}, nil
}

func policyMessage(p *store.Policy) *threadsvcv1.RetentionPolicy {
	m := &threadsvcv1.RetentionPolicy{
		Tenant: p.Tenant, MaxRuns: p.Keep.MaxRuns, MaxBytes: p.Keep.MaxBytes, UpdateTime: timestamp(p.UpdatedAt),
	}
	if p.Keep.MaxAge > 0 {
		m.MaxAge = durationpb.New(p.Keep.MaxAge)
	}
	return m
}

// DeleteRetentionPolicy implements the contract.
func (s *Service) DeleteRetentionPolicy(ctx context.Context, req *threadsvcv1.DeleteRetentionPolicyRequest) (*threadsvcv1.DeleteRetentionPolicyResponse, error) {
	err := checkOptionalID("tenant", req.GetTenant())
	if err == nil {
		storeCtx, cancel := s.storeContext(ctx)
		defer cancel()
		err = s.store.DeletePolicy(storeCtx, req.GetTenant())
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, statusOf(err, s.cfg.Logger).Err()
	}
	return &threadsvcv1.DeleteRetentionPolicyResponse{}, nil
}

// PruneThread implements the contract.
func (s *Service) PruneThread(ctx context.Context, req *threadsvcv1.PruneThreadRequest) (*threadsvcv1.PruneThreadResponse, error) {
	resp, err := s.pruneThread(ctx, req)
	if err != nil {
		return nil, statusOf(err, s.cfg.Logger).Err()
	}
	return resp, nil
}

func (s *Service) pruneThread(ctx context.Context, req *threadsvcv1.PruneThreadRequest) (*threadsvcv1.PruneThreadResponse, error) {
	key, err := threadKey(req.GetThread(), "thread")
	if err != nil {
		return nil, err
	}
	head, err := s.head(ctx, key)
	if err != nil {
		return nil, err
	}
	keep := store.Keep{Before: req.GetBeforeVersion()}
	if keep.Before > head.Version {
		return nil, errVersionNotFound(head.FirstVersion, head.Version)
	}
	if keep.Before == 0 {
		policy, err := s.policy(ctx, head.Tenant)
		if errors.Is(err, store.ErrNotFound) {
			return nil, errField("before_version", "is required, since the tenant has no retention policy")
		}
		if err != nil {
			return nil, err
		}
		keep = policy.Keep
	}
	return s.pruneNow(ctx, key, keep)
}

// pruneNow prunes a thread, again if somebody else has changed it meanwhile, and removes what garbage it can.
func (s *Service) pruneNow(ctx context.Context, key store.Key, keep store.Keep) (*threadsvcv1.PruneThreadResponse, error) {
	for attempt := 1; ; attempt++ {
		plan, err := s.prune(ctx, key, keep)
		if errors.Is(err, store.ErrConflict) && attempt < maxAttempts {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := s.sweep(ctx, key); err != nil { // which goes on in the background
			s.cfg.Logger.Warn("removing pruned log failed", "thread_key", key.String(), "error", err)
		}
		resp := &threadsvcv1.PruneThreadResponse{FirstVersion: plan.Head.FirstVersion}
		if plan.Cut.Version > 0 {
			resp.FirstVersion, resp.PrunedRuns = plan.Cut.Version, plan.Cut.Run-plan.Head.PrunedRuns
		}
		return resp, nil
	}
}
