// Package embedded runs a private PostgreSQL server (14 or newer) for people
// who have none running.
//
// The server belongs to one process. It listens on a unix socket in a
// directory that only its owner can enter, never on TCP, and trusts whoever
// gets there. It ends with the process: by Stop, on Linux also when the process
// is killed, and elsewhere at the latest when the next Start on the same
// directory finds it. Committed data survives all of these.
//
// Under root the server runs as the account postgres, or nobody where that is
// missing, because Postgres refuses root.
//
// A directory holds:
//
//	threadsvc.lock    locked by the owning process
//	data/             the data directory of Postgres
//	socket/           the unix socket, unless the path is too long for one
//	postgres.log      what the server wrote since its start, at most about 16 MiB
//	postgres.log.old  the log before
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	superuser = "postgres" // and the database that always exists
	port      = "5432"     // only names the socket
	// maxSocketPath fits the smallest sun_path, 104 bytes with the final NUL.
	maxSocketPath = 103
	// orphanWait is how long backends may outlive a killed postmaster.
	orphanWait = 10 * time.Second
)

// Options say where and how a server runs. The zero value is a durable server
// in a temporary directory.
type Options struct {
	// Dir keeps the server's files; it is made if missing, and must be empty or
	// from an earlier Start. Empty: a temporary directory that Stop removes.
	Dir string
	// TempParent is where a temporary directory is made, os.TempDir if empty.
	// Tests are several times faster in memory, see MemoryDir.
	TempParent string
	// BinDir has the programs initdb and postgres. Empty: as FindBinaries.
	BinDir string
	// NoSync turns fsync, synchronous commit and full page writes off. A crash
	// of the system, not of a process, can then destroy the data: for tests.
	NoSync bool
	// Settings are further settings of postgresql.conf. Those that decide about
	// access and places are refused.
	Settings map[string]string
	// StandbyOf makes a new directory a copy of this server, which must run, and the server its hot standby (see Promote). A
	// directory that has data is used as it is.
	StandbyOf *Server
	// Logger gets what happens to the server outside of calls. Nil: nothing.
	Logger *slog.Logger
}

// Server is a running PostgreSQL server. Its methods may be called from
// several goroutines.
type Server struct {
	opts        Options
	log         *slog.Logger
	home        *home
	account     account
	bin         binaries
	compression map[string]string
	socket      string
	socketHome  *home // holds socket when Dir is too long for one

	life    sync.Mutex // held while the server starts or ends
	stopped bool
	current atomic.Pointer[process] // nil while there is none
	watcher sync.WaitGroup

	connMu sync.Mutex
	conn   *pgx.Conn
}

// Start makes the directory and the database cluster where needed, ends a
// server that a killed process left there, and returns when the server accepts
// connections, recovery included. ctx bounds only the start.
//
// Errors: ErrNoBinaries, ErrInUse, ErrForeignDir, ErrUnreachableDir,
// ErrNoAccount, ErrBadSetting, a *StartError, or the end of ctx; nothing is
// left running then.
func Start(ctx context.Context, opts Options) (*Server, error) {
	if err := checkSettings(opts.Settings); err != nil {
		return nil, err
	}
	s := &Server{opts: opts, log: opts.Logger}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	err := s.prepare(ctx)
	if err == nil {
		err = s.launch(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.release())
	}
	return s, nil
}

// URL is the connection URL of a database on this server. It needs no
// password and stays the same as long as the server is not stopped.
func (s *Server) URL(database string) string {
	query := url.Values{"host": {s.socket}, "port": {port}, "sslmode": {"disable"}}
	u := url.URL{Scheme: "postgres", User: url.User(superuser), Path: "/" + database, RawQuery: query.Encode()}
	return u.String()
}

// PID is the process number of the postmaster, 0 while there is none.
func (s *Server) PID() int {
	if p := s.current.Load(); p != nil && p.alive() {
		return p.pid()
	}
	return 0
}

// Running tells whether there is a postmaster.
func (s *Server) Running() bool { return s.PID() != 0 }

// Done is closed when the postmaster of this moment has ended, for whatever
// reason. Restart brings another one.
func (s *Server) Done() <-chan struct{} {
	if p := s.current.Load(); p != nil {
		return p.done
	}
	ended := make(chan struct{})
	close(ended)
	return ended
}

// Stop shuts the server down: transactions in progress are rolled back, the
// rest is on disk when it returns. It removes a temporary directory. When ctx
// ends first the server is shut down at once, and the error says so; also then
// no process is left. Stopping again does nothing.
func (s *Server) Stop(ctx context.Context) error {
	s.life.Lock()
	defer s.life.Unlock()
	if s.stopped {
		return nil
	}
	s.stopped = true
	return errors.Join(s.halt(ctx, syscall.SIGINT), s.release())
}

// Crash ends the server as a crash would, without writing anything back
// (PostgreSQL: immediate shutdown). Restart then recovers from the write-ahead
// log. The directory stays ours.
func (s *Server) Crash(ctx context.Context) error {
	s.life.Lock()
	defer s.life.Unlock()
	return s.halt(ctx, syscall.SIGQUIT)
}

// Restart starts the server again on the same directory and URL, after Crash
// or when the postmaster died; one that runs is shut down first. It fails as
// Start does, and with ErrStopped after Stop.
func (s *Server) Restart(ctx context.Context) error {
	s.life.Lock()
	defer s.life.Unlock()
	if s.stopped {
		return ErrStopped
	}
	if err := s.halt(ctx, syscall.SIGINT); err != nil {
		return err
	}
	return s.launch(ctx)
}

func (s *Server) data() string { return s.home.path(dataName) }

// prepare does everything but running the server.
func (s *Server) prepare(ctx context.Context) (err error) {
	if s.account, err = pickAccount(); err != nil {
		return err
	}
	tempParent := s.opts.TempParent
	if tempParent == "" {
		tempParent = os.TempDir()
	}
	if s.home, err = openHome(s.opts.Dir, tempParent, s.log); err != nil {
		return err
	}
	major, err := dataMajor(s.data())
	if err != nil {
		return err
	}
	fixed := s.opts.BinDir
	if fixed == "" {
		fixed = os.Getenv(BinEnv)
	}
	if s.bin, err = findBinaries(ctx, fixed, major); err != nil {
		return err
	}
	if err := s.account.reach(ctx, s.home.dir, s.bin.path("postgres")); err != nil {
		return err
	}
	if major == 0 {
		fill := s.runInitdb
		if s.opts.StandbyOf != nil {
			fill = s.runBackup
		}
		if err := s.initialise(ctx, fill); err != nil {
			return err
		}
	}
	if err := s.probe(ctx); err != nil {
		return err
	}
	return s.makeSocketDir()
}

// makeSocketDir falls back to a short temporary directory when the path does
// not fit a socket address, or has what separates several hosts in a URL.
func (s *Server) makeSocketDir() (err error) {
	s.socket = s.home.path("socket")
	if !fitsSocket(s.socket) {
		parent := os.TempDir()
		if !fitsSocket(filepath.Join(parent, tempPrefix+"0123456789", "socket")) {
			parent = "/tmp"
		}
		if s.socketHome, err = tempHome(parent); err != nil {
			return err
		}
		s.socket = s.socketHome.path("socket")
	}
	err = os.Mkdir(s.socket, 0o700)
	if errors.Is(err, os.ErrExist) {
		err = os.Chmod(s.socket, 0o700)
	}
	if err == nil {
		err = s.account.own(s.socket)
	}
	if err != nil {
		return fmt.Errorf("embedded: make socket directory: %w", err)
	}
	return nil
}

func fitsSocket(dir string) bool {
	return len(filepath.Join(dir, ".s.PGSQL."+port)) <= maxSocketPath && !strings.ContainsAny(dir, `,"`)
}

// launch needs life, or a server nobody else knows yet. After an unclean end
// it tries again while backends may still hold the shared memory.
func (s *Server) launch(ctx context.Context) error {
	unclean, err := s.takeOver(ctx)
	if err != nil {
		return err
	}
	for end := time.Now().Add(orphanWait); ; {
		err := s.launchOnce(ctx)
		if err == nil || !unclean || ctx.Err() != nil || time.Now().After(end) {
			return err
		}
		if err := pause(ctx, 10*pollEvery); err != nil {
			return fmt.Errorf("embedded: start again: %w", err)
		}
	}
}

func (s *Server) launchOnce(ctx context.Context) error {
	log, err := s.openLog()
	if err != nil {
		return err
	}
	args := append([]string{"-D", s.data()}, arguments(s.settings())...)
	cmd := s.account.command(s.data(), s.bin.path("postgres"), args...)
	cmd.Stdout, cmd.Stderr = log, log
	p, err := spawn(cmd)
	if err != nil {
		return errors.Join(&StartError{Program: "postgres", Err: err}, log.Close())
	}
	if err := s.ready(ctx, p); err != nil {
		p.quit()
		return errors.Join(&StartError{Program: "postgres", Log: s.logTail(), Err: err}, log.Close())
	}
	s.current.Store(p)
	s.watcher.Go(func() { s.watch(p, log) })
	return nil
}

// ready waits until the postmaster says in its pid file that it accepts
// connections.
func (s *Server) ready(ctx context.Context, p *process) error {
	for {
		file, err := readPidFile(s.data())
		if err == nil && file.pid == p.pid() && file.status == "ready" {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("it ended: %w", p.err)
		default:
		}
		if err := pause(ctx, pollEvery); err != nil {
			return err
		}
	}
}

// halt needs life.
func (s *Server) halt(ctx context.Context, sig syscall.Signal) error {
	p := s.current.Load()
	if p == nil {
		return nil
	}
	err := p.stop(ctx, sig)
	s.watcher.Wait()
	s.current.Store(nil)
	s.disconnect(ctx)
	return err
}

// release gives the directories up.
func (s *Server) release() error {
	var errs []error
	for _, h := range []*home{s.socketHome, s.home} {
		if h != nil {
			errs = append(errs, h.close())
		}
	}
	return errors.Join(errs...)
}
