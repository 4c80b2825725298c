package service_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// The test binary is also the server that crash tests kill: started with these in its environment it serves the database
// at the address, until it is killed.
const (
	envServeDatabase = "THREADSVC_TEST_DATABASE"
	envServeAddress  = "THREADSVC_TEST_ADDRESS"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(envServeDatabase); url != "" {
		if err := serve(url, os.Getenv(envServeAddress)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	fewerChecks()
	storetest.Main(m)
}

// fewerChecks lowers the number of random threads of a property, unless the command line names it: each of them goes through
// gRPC and Postgres here.
func fewerChecks() {
	flag.Parse()
	checks := "30"
	if testing.Short() {
		checks = "8"
	}
	named := false
	flag.Visit(func(f *flag.Flag) { named = named || f.Name == "rapid.checks" })
	if named {
		return
	}
	if err := flag.Set("rapid.checks", checks); err != nil {
		panic(err)
	}
}

func serve(url, address string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	db, err := store.Open(ctx, store.Options{URL: url, MaxConns: 8})
	if err != nil {
		return err
	}
	defer db.Close()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s := service.New(db, service.Config{Logger: log})
	defer s.Close()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("serving")
	return service.NewServer(s, service.ServerConfig{}).Serve(ctx, listener)
}
