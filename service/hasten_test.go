package service

import (
	"context"
	"testing"
	"time"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// Whoever needs a thread settled does not wait for a producer's delay, nor does the thread when enough has come.
func TestDelayEnds(t *testing.T) {
	t.Parallel()
	large := make([]byte, gatherBytes)
	for i := range large {
		large[i] = 'x'
	}
	for name, end := range map[string]func(*Service, *writer) error{
		"a start": func(s *Service, w *writer) error {
			l, err := s.acquireSettled(t.Context(), w.key, w.threadID)
			if err == nil {
				s.letGo(l)
			}
			return err
		},
		"another writer": func(s *Service, w *writer) error {
			out, err := s.append(t.Context(), &writer{key: w.key, threadID: w.threadID, streamID: "other"}, batchOf(0, `{}`))
			if err == nil {
				err = out.wait(t.Context())
			}
			return err
		},
		"much to commit": func(s *Service, w *writer) error {
			_, err := s.append(t.Context(), w, batchOf(1, `{"type":"CUSTOM","name":"n","value":"`+string(large)+`"}`))
			return err
		},
		"a batch without delay": func(s *Service, w *writer) error {
			impatient := *w
			impatient.delay = 0
			_, err := s.append(t.Context(), &impatient, batchOf(1, `{"type":"CUSTOM","name":"n","value":1}`))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := New(storetest.NewMemory(), Config{})
			w := &writer{key: store.KeyOf("", "t"), threadID: "t", streamID: "r", delay: time.Hour}
			first, err := s.append(t.Context(), w, batchOf(0, `{"type":"RUN_STARTED","threadId":"t","runId":"r"}`))
			if err != nil || first.refused != nil {
				t.Fatal(err, first.refused)
			}
			if err := end(s, w); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := first.wait(ctx); err != nil {
				t.Errorf("the first batch: %v", err)
			}
		})
	}
}

func batchOf(offset uint64, events ...string) *threadsvcv1.EventBatch {
	batch := &threadsvcv1.EventBatch{Offset: offset}
	for _, event := range events {
		batch.Events = append(batch.Events, []byte(event))
	}
	return batch
}
