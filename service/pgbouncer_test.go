package service_test

import (
	"fmt"
	"testing"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// A thread's whole life through a real PgBouncer in transaction mode, while every table gets another column.
func TestLifeBehindPgBouncer(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a while")
	}
	t.Parallel()
	direct := storetest.Database(t)
	c := converse(t, serveDatabase(t, storetest.Pooler(t, direct), service.Config{}), "t1")
	db := connect(t, direct)
	c.open("r1", textStart("m"))
	follower := c.follow(0)
	for i, table := range []string{"threads", "log_segments", "runs", "folds", "message_blocks", "states", "state_patches", "warnings"} {
		c.append(textDelta("m", fmt.Sprint(i)))
		execSQL(t, db, fmt.Sprintf(`ALTER TABLE %s ADD COLUMN later text`, table))
		c.append(stateSnapshot(fmt.Sprintf(`{"n":%d}`, i)))
	}
	c.append(textEnd("m"), runFinished("t1", "r1"))
	log := c.log()
	c.until(follower, uint64(len(log)))
	ok(t, follower.same(log))
	c.wantState(`{"n":7}`)
	c.stillWorks()
	must(c.client.DeleteThread(t.Context(), &threadsvcv1.DeleteThreadRequest{Thread: threadName("t1")}))(t)
}
