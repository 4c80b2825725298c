package service

import (
	"context"
	"testing"
	"time"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// An erasure that waits for its turn does not have the thread meanwhile: who has the turn may need it, as an amendment does
// that is made with the head held.
func TestErasureLetsTheThreadGoUntilItIsItsTurn(t *testing.T) {
	t.Parallel()
	s := New(storetest.NewMemory(), Config{StoreTimeout: time.Minute})
	defer s.Close()
	name := &threadsvcv1.ThreadName{Tenant: "acme", ThreadId: "t1"}
	if _, err := s.CreateThread(t.Context(), &threadsvcv1.CreateThreadRequest{Thread: name}); err != nil {
		t.Fatal(err)
	}
	key := store.KeyOf("acme", "t1")
	leave, err := s.turns.take(t.Context(), key, nil)
	if err != nil {
		t.Fatal(err)
	}
	deleted := make(chan error, 1)
	go func() {
		_, err := s.DeleteThread(t.Context(), &threadsvcv1.DeleteThreadRequest{Thread: name})
		deleted <- err
	}()
	for s.turns.users(key) < 2 {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	l, err := s.acquireSettled(ctx, key, "t1")
	if err != nil {
		t.Fatalf("the thread is not to be had: %v", err)
	}
	s.letGo(l)
	leave()
	if err := <-deleted; err != nil {
		t.Fatal(err)
	}
	if _, err := s.head(t.Context(), key); err == nil {
		t.Error("the thread is still there")
	}
}

// users is how many have a thread's turn or wait for it.
func (t *turns) users(key store.Key) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if mine := t.queue[key]; mine != nil {
		return mine.users
	}
	return 0
}
