package service_test

import (
	"context"
	"io"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
)

// runReadStore does something once the last run of a thread is read.
type runReadStore struct {
	store.Store
	last int64
	once sync.Once
	then func()
}

func (s *runReadStore) Runs(ctx context.Context, key store.Key, before int64, limit int) ([]store.Run, error) {
	runs, err := s.Store.Runs(ctx, key, before, limit)
	if before == s.last+1 {
		s.once.Do(s.then)
	}
	return runs, err
}

// An export during which the thread is pruned does not pass for a whole one: its warnings may be gone already.
func TestExportOfAThreadThatIsPrunedMeanwhile(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{PruneInterval: -1})
	for _, run := range []string{"r1", "r2", "r3"} {
		h.record(run, event("UNKNOWN"))
	}
	st := &runReadStore{Store: openStore(t, h.url), last: 3, then: func() { h.prune(h.runEnd("r2")) }}
	conn := connection(t, startNode(t, st, service.Config{PruneInterval: -1}).address)
	stream, err := threadsvcv1.NewHistoryServiceClient(conn).ExportThread(t.Context(), &threadsvcv1.ExportThreadRequest{Thread: threadName(h.thread)})
	for err == nil {
		_, err = stream.Recv()
	}
	if err == io.EOF {
		t.Fatal("an export without the warnings that were pruned passes for a whole one")
	}
	wantReason(t, err, codes.OutOfRange, "VERSION_PRUNED")
}
