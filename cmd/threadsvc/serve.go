package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
)

const (
	// migrateTimeout bounds the migrations at the start, the wait for another server's included.
	migrateTimeout = 5 * time.Minute
	// pingTimeout bounds how long the database may take to answer at the start.
	pingTimeout = 15 * time.Second
)

// msgServing is logged once calls are accepted, with the address. The demo waits for it.
const msgServing = "serving"

// serveFlags are the flags of serve.
type serveFlags struct {
	listen, debugAddress, databaseURL, dataDir string
	maxEvent, maxState, maxContext, cacheBytes byteSize
	leaseTTL, reapInterval, drainTimeout       time.Duration
	pruneInterval, pruneGrace                  time.Duration
	maxConns                                   int32
	migrate                                    bool
	log                                        logFlags
}

func newServe() *cobra.Command {
	var flags serveFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the server",
		Long: "Run the gRPC server on the database of --database-url, or, without one, on a private Postgres\n" +
			"that is started here and keeps its data in --data-dir." + envHelp,
		Example: "  threadsvc serve\n" +
			"  threadsvc serve --listen 0.0.0.0:8980 --database-url postgres://app@db.internal/threads",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := fromEnv(c); err != nil {
				return err
			}
			if err := flags.check(); err != nil {
				return &usageError{c.CommandPath(), err}
			}
			return serve(c.Context(), flags, flags.log.logger(c.ErrOrStderr()))
		},
	}
	flags.add(c.Flags())
	return c
}

func (s *serveFlags) add(f *pflag.FlagSet) {
	limits := agui.DefaultLimits()
	f.SortFlags = false
	f.StringVar(&s.listen, "listen", "127.0.0.1:8980", "TCP `address` to listen on, host:port; port 0 takes a free one")
	f.StringVar(&s.debugAddress, "debug-address", "", "TCP `address` at which Go's profiler answers, for trusted people only; empty for none (default empty)")
	f.StringVar(&s.databaseURL, "database-url", "", "Postgres connection `URL`; empty starts a private Postgres (default empty)")
	f.StringVar(&s.dataDir, "data-dir", "", "`directory` of the private Postgres (default "+dataDirHelp+")")
	f.BoolVar(&s.migrate, "migrate", true, "bring the schema up to date at the start; several servers may do so at once")
	f.Int32Var(&s.maxConns, "max-conns", 16, "most connections to the database, a `number`")
	sizeVar(f, &s.maxEvent, "max-event-bytes", int64(limits.Event), "largest event accepted, in bytes of JSON (KiB, MiB, GiB)")
	sizeVar(f, &s.maxState, "max-state-bytes", int64(limits.State), "largest state of a thread, in bytes of JSON")
	sizeVar(f, &s.maxContext, "max-context-bytes", int64(limits.Context), "most that a thread's state and messages may take together, in bytes of JSON")
	sizeVar(f, &s.cacheBytes, "cache-bytes", 256<<20, "memory for idle threads and open streams, in bytes")
	f.DurationVar(&s.leaseTTL, "lease-ttl", 30*time.Second, "how long a run's lease lasts without an append, a `duration` up to 1h")
	f.DurationVar(&s.reapInterval, "reap-interval", 5*time.Second, "how often runs whose lease has ended are looked for and closed, a `duration`; below 0 means never")
	f.DurationVar(&s.pruneInterval, "prune-interval", time.Minute, "how often threads are looked for that a retention policy prunes, a `duration`; below 0 means never")
	f.DurationVar(&s.pruneGrace, "prune-grace", time.Hour, "how long the log of a run is kept after its end whatever a policy says, so that its producer can send again, a `duration`; below 0 means not at all")
	f.DurationVar(&s.drainTimeout, "drain-timeout", 20*time.Second, "how long a shutdown waits for calls under way, a `duration`")
	s.log.add(f)
}

// check finds what a flag's type cannot.
func (s *serveFlags) check() error {
	switch {
	case s.maxConns < 1:
		return fmt.Errorf("--max-conns is %d, want 1 or more", s.maxConns)
	case s.leaseTTL <= 0 || s.leaseTTL > time.Hour:
		return fmt.Errorf("--lease-ttl is %v, want more than 0 and at most 1h", s.leaseTTL)
	case s.drainTimeout <= 0:
		return fmt.Errorf("--drain-timeout is %v, want more than 0", s.drainTimeout)
	case s.maxEvent > 1<<30:
		return fmt.Errorf("--max-event-bytes is %s, want at most 1GiB", &s.maxEvent)
	}
	return nil
}

func (s *serveFlags) limits() agui.Limits {
	limits := agui.DefaultLimits()
	limits.Event, limits.State, limits.Context = int(s.maxEvent), int(s.maxState), int(s.maxContext)
	return limits
}

// serve runs the server until the context ends or its database does.
func serve(ctx context.Context, flags serveFlags, log *slog.Logger) (err error) {
	listener, err := listen(ctx, flags.listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	stopDebug, err := serveDebug(ctx, flags.debugAddress, log)
	if err != nil {
		return err
	}
	defer stopDebug()
	db, err := openDatabase(ctx, flags, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	if err := prepare(ctx, flags, db); err != nil {
		return err
	}
	ctx, cancel := db.watch(ctx)
	defer cancel()
	log.Info(msgServing, "address", listener.Addr().String(), "data", db.place, "version", programVersion())
	if err := serveOn(ctx, listener, flags, db, log); err != nil {
		return err
	}
	if cause := context.Cause(ctx); errors.Is(cause, errDatabaseEnded) {
		return cause
	}
	log.Info("stopped")
	return nil
}

func listen(ctx context.Context, address string) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s is taken by another program; choose an address with --listen: %w", address, err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %q: %w", address, err)
	}
	return listener, nil
}

// prepare makes the schema fit and the database answer.
func prepare(ctx context.Context, flags serveFlags, db *database) error {
	if flags.migrate {
		migrateCtx, cancel := context.WithTimeout(ctx, migrateTimeout)
		defer cancel()
		if err := store.Migrate(migrateCtx, db.url); err != nil {
			return &databaseError{db.place, err}
		}
	}
	if err := db.open(ctx, flags.maxConns); err != nil {
		return err
	}
	pingCtx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	err := db.store.Ping(pingCtx)
	if errors.Is(err, store.ErrSchema) {
		return fmt.Errorf("%w; run 'threadsvc migrate up' or start with --migrate", &databaseError{db.place, err})
	}
	if err != nil {
		return &databaseError{db.place, err}
	}
	return nil
}

// serveOn returns when the context has ended and everything under way with it.
func serveOn(ctx context.Context, listener net.Listener, flags serveFlags, db *database, log *slog.Logger) error {
	svc := service.New(db.store, service.Config{
		Limits: flags.limits(), LeaseTTL: flags.leaseTTL, CacheBytes: int64(flags.cacheBytes), Logger: log,
		Reads: max(1, int(flags.maxConns)/2), Writes: max(1, int(flags.maxConns)/8), ReapInterval: flags.reapInterval,
		PruneInterval: flags.pruneInterval, PruneGrace: flags.pruneGrace,
	})
	defer svc.Close()
	defer boundMemory(int64(flags.cacheBytes))()
	defer context.AfterFunc(ctx, func() { log.Info("draining", "timeout", flags.drainTimeout) })()
	// A request has room for one event of the largest size, whatever that is.
	server := service.NewServer(svc, service.ServerConfig{
		MaxRequestBytes: max(32<<20, int(flags.maxEvent)+1<<20), DrainTimeout: flags.drainTimeout,
	})
	return server.Serve(ctx, listener)
}
