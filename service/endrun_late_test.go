package service_test

import (
	"context"
	"sync"
	"testing"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// lateRunStore is a store in which something happens before a certain run is first looked up.
type lateRunStore struct {
	store.Store
	run   string
	first func()
}

func (s lateRunStore) Run(ctx context.Context, key store.Key, runID string) (store.Run, error) {
	if runID == s.run {
		s.first()
	}
	return s.Store.Run(ctx, key, runID)
}

// TestRunThatStartsMeanwhileIsEnded ends a run that does not exist yet and is started by another server before the answer is
// made: the answer must not be that the run, which is active then, was ended.
func TestRunThatStartsMeanwhileIsEnded(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	other := converse(t, serveDatabase(t, url, service.Config{}), "t1")
	other.record("r1")
	late := lateRunStore{openStore(t, url), "r2", sync.OnceFunc(func() { other.start("r2") })}
	c := converse(t, dial(t, startNode(t, late, service.Config{}).address), "t1")

	ended := c.end("r2", "it hangs")
	run := other.wantStatus("r2", threadsvcv1.RunStatus_RUN_STATUS_TRUNCATED)
	if ended.GetRun().GetStatus() != run.GetStatus() || ended.GetVersion() != run.GetLastVersion() {
		t.Errorf("answered with %v, the run is %v", ended, run)
	}
}
