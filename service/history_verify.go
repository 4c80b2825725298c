package service

import (
	"context"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// VerifyThread implements the contract.
func (s *Service) VerifyThread(req *threadsvcv1.VerifyThreadRequest, stream threadsvcv1.HistoryService_VerifyThreadServer) error {
	if err := s.verifyThread(stream.Context(), req, stream.Send); err != nil {
		return statusOf(err, s.cfg.Logger).Err()
	}
	return nil
}

func (s *Service) verifyThread(ctx context.Context, req *threadsvcv1.VerifyThreadRequest, send func(*threadsvcv1.VerifyThreadResponse) error) error {
	key, err := threadKey(req.GetThread(), "thread")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	tell := func(resp *threadsvcv1.VerifyThreadResponse) {
		if err := send(resp); err != nil {
			cancel(err)
		}
	}
	findings := uint64(0)
	head, err := Verify(ctx, s.store, key, Verification{
		Timeout: s.cfg.StoreTimeout,
		Found: func(f Finding) {
			findings++
			tell(&threadsvcv1.VerifyThreadResponse{Part: &threadsvcv1.VerifyThreadResponse_Finding{Finding: findingMessage(&f)}})
		},
		Progress: func(version, last uint64) {
			progress := &threadsvcv1.VerifyProgress{Version: version, LastVersion: last}
			tell(&threadsvcv1.VerifyThreadResponse{Part: &threadsvcv1.VerifyThreadResponse_Progress{Progress: progress}})
		},
	})
	if err != nil {
		return err
	}
	result := &threadsvcv1.VerifyResult{Version: head.Version, LogHash: head.Hash[:], Findings: findings}
	return send(&threadsvcv1.VerifyThreadResponse{Part: &threadsvcv1.VerifyThreadResponse_Result{Result: result}})
}

func findingMessage(f *Finding) *threadsvcv1.Finding {
	return &threadsvcv1.Finding{
		Kind:         threadsvcv1.FindingKind(threadsvcv1.FindingKind_value["FINDING_KIND_"+string(f.Kind)]),
		FirstVersion: f.FirstVersion, LastVersion: f.LastVersion, Detail: f.Detail,
	}
}
