package service_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// While a thread goes on, and its log is merged and gets checkpoints, nothing is found in it, and what is exported is whole.
func TestNothingIsFoundInABusyThread(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{CheckpointBytes: 1 << 10, FoldBytes: 2 << 10})
	db := openStore(t, h.url)
	t.Cleanup(db.Close)
	h.record("r0")
	done := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		defer close(done)
		for i := range 60 {
			run := fmt.Sprint("run", i)
			h.open(run, stateDelta(fmt.Sprintf(`[{"op":"add","path":"/k%d","value":%q}]`, i%5, storetest.Noise(i, 200))), event("UNKNOWN"))
			for _, e := range text("m"+run, "a ", "b ", storetest.Noise(i, 100)) {
				h.append(e)
			}
			h.append(messagesSnapshot(userMessage("u", storetest.Noise(i%3, 6000))), runFinished("t1", run))
		}
	})
	defer writing.Wait()
	for looks := 0; ; looks++ {
		if findings := verify(t, db, store.KeyOf("test", "t1")); len(findings) > 0 {
			t.Errorf("look %d: %v", looks, findings)
			return
		}
		file := export(t, h.history, threadName("t1"))
		if _, err := service.VerifyArchive(bytes.NewReader(file), agui.DefaultLimits()); err != nil {
			t.Errorf("export %d: %v", looks, err)
			return
		}
		select {
		case <-done:
			t.Logf("%d looks", looks)
			return
		default:
		}
	}
}
