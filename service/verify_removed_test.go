package service_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// removingStore removes checkpoints once the evidence of a thread is read, as the merge of a run does.
type removingStore struct {
	store.Store
	t      testing.TB
	db     *pgx.Conn
	remove string
}

func (r *removingStore) Evidence(ctx context.Context, key store.Key) (*store.Evidence, error) {
	evidence, err := r.Store.Evidence(ctx, key)
	execSQL(r.t, r.db, r.remove)
	return evidence, err
}

// Checkpoints that are removed while a thread is verified are no damage, whether older ones are left or none.
func TestVerifyWhileCheckpointsAreRemoved(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{CheckpointBytes: 1 << 10})
	for i := range 6 {
		h.record(fmt.Sprint("r", i), stateSnapshot(`{"v":"`+storetest.Noise(i, 2000)+`"}`))
	}
	h.waitFor("checkpoints", `SELECT count(*) > 1 FROM checkpoints`)
	db := openStore(t, h.url)
	t.Cleanup(db.Close)
	for _, remove := range []string{
		`DELETE FROM checkpoints WHERE version > (SELECT min(version) FROM checkpoints)`,
		`DELETE FROM checkpoints`,
	} {
		st := &removingStore{db, t, h.db, remove}
		if findings := verify(t, st, store.KeyOf("test", h.thread)); len(findings) > 0 {
			t.Errorf("after %s: %v", remove, findings)
		}
	}
}
