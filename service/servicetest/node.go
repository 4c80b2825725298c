// Package servicetest runs servers within a test's process.
package servicetest

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// Node is a server within the test's process.
type Node struct {
	Address string
	Service *service.Service
	// Stop stops the server and returns what Serve did, when nothing of it runs any more. It is called when the test ends,
	// if it was not before.
	Stop func() error
}

// Start serves a store, which it takes over, on a free port.
func Start(t testing.TB, db store.Store, cfg service.Config) *Node {
	t.Helper()
	node, err := Serve(db, cfg, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := node.Stop(); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return node
}

// Serve is Start outside of a test, on an address of the caller's choice: who calls it must call Stop.
func Serve(db store.Store, cfg service.Config, address string) (*Node, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	s := service.New(db, cfg)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	server := service.NewServer(s, service.ServerConfig{DrainTimeout: 5 * time.Second, HealthInterval: 50 * time.Millisecond})
	go func() { served <- server.Serve(ctx, listener) }()
	stop := sync.OnceValue(func() error {
		cancel()
		err := <-served
		s.Close()
		db.Close()
		return err
	})
	return &Node{Address: listener.Addr().String(), Service: s, Stop: stop}, nil
}

// OpenStore opens a database that storetest.Database made. The store is the caller's.
func OpenStore(t testing.TB, url string) *store.Postgres {
	t.Helper()
	db, err := store.Open(t.Context(), store.Options{URL: url, MaxConns: 8})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// New serves a database of the test's own.
func New(t testing.TB, cfg service.Config) *Node {
	t.Helper()
	return Start(t, OpenStore(t, storetest.Database(t)), cfg)
}
