package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/embedded"
)

const (
	// databaseName is the database in a private Postgres.
	databaseName = "threadsvc"
	// rootDataDir keeps root's private Postgres where the account that runs it can get to, unlike root's home.
	rootDataDir = "/var/lib/threadsvc"
	dataDirHelp = rootDataDir + " for root, else $XDG_DATA_HOME/threadsvc or ~/.local/share/threadsvc"
	// stopTimeout is how long the private Postgres may take for an orderly shutdown.
	stopTimeout = 30 * time.Second
)

var (
	// errDatabaseEnded reports that the private Postgres ended while the server was running.
	errDatabaseEnded = errors.New("the private Postgres ended")
	errNoDataDir     = errors.New("there is no home directory for the data; give --data-dir or --database-url")
)

// database is what the server stores in: somebody's Postgres, or a private one that it owns.
type database struct {
	url   string
	place string // for people; never has a password
	log   *slog.Logger

	private *embedded.Server // nil for somebody's
	store   *store.Postgres  // nil until open
}

// openDatabase starts the private Postgres if there is no URL.
func openDatabase(ctx context.Context, flags serveFlags, log *slog.Logger) (*database, error) {
	if flags.databaseURL != "" {
		return &database{url: flags.databaseURL, place: describeURL(flags.databaseURL), log: log}, nil
	}
	dir, err := dataDir(flags.dataDir)
	if err != nil {
		return nil, err
	}
	log.Info("starting a private Postgres", "data", dir)
	// max-conns and what migrations and people with psql need.
	settings := map[string]string{"max_connections": fmt.Sprint(max(100, int(flags.maxConns)+20))}
	private, err := embedded.Start(ctx, embedded.Options{Dir: dir, Settings: settings, Logger: log})
	if err != nil {
		return nil, err
	}
	db := &database{url: private.URL(databaseName), place: dir, private: private, log: log}
	if err := private.CreateDatabase(ctx, databaseName); err != nil {
		return nil, errors.Join(err, db.close())
	}
	return db, nil
}

// dataDir is the directory asked for, or the place where the system keeps such data.
func dataDir(asked string) (string, error) {
	if asked != "" {
		return filepath.Abs(asked)
	}
	if os.Geteuid() == 0 {
		return rootDataDir, nil
	}
	// The XDG base directory specification says to ignore a path that is not absolute.
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "threadsvc"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNoDataDir, err)
	}
	return filepath.Join(home, ".local", "share", "threadsvc"), nil
}

// describeURL names a database without what may be secret: only its host and name are shown.
func describeURL(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Path == "" || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		return "of --database-url"
	}
	host := u.Host
	if host == "" {
		host = u.Query().Get("host")
	}
	return host + u.Path
}

// databaseError is what is wrong with a database, with its name.
type databaseError struct {
	place string
	err   error
}

// Error is one line: a driver that tried several addresses reports each on its own, and often the same of all.
func (e *databaseError) Error() string {
	var parts []string
	for line := range strings.Lines(e.err.Error()) {
		if line = strings.TrimSpace(line); !slices.Contains(parts, line) {
			parts = append(parts, line)
		}
	}
	return "database " + e.place + ": " + strings.Join(parts, " ")
}

func (e *databaseError) Unwrap() error { return e.err }

func (d *database) open(ctx context.Context, maxConns int32) (err error) {
	d.store, err = store.Open(ctx, store.Options{URL: d.url, MaxConns: maxConns, Logger: d.log})
	if err != nil {
		return &databaseError{d.place, err}
	}
	return nil
}

// watch returns a context that also ends, with errDatabaseEnded as its cause, when the private Postgres does.
func (d *database) watch(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if d.private != nil {
		ended := d.private.Done()
		go func() {
			select {
			case <-ended:
				cancel(fmt.Errorf("%w; %s says why", errDatabaseEnded, filepath.Join(d.place, "postgres.log")))
			case <-ctx.Done():
			}
		}()
	}
	return ctx, func() { cancel(nil) }
}

// close gives the connections back and stops the private Postgres.
func (d *database) close() error {
	if d.store != nil {
		d.store.Close()
	}
	if d.private == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return d.private.Stop(ctx)
}
