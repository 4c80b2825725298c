package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const (
	// sqlSynchronous makes the primary acknowledge what its standbys have, as production would have it set.
	sqlSynchronous = `ALTER SYSTEM SET synchronous_standby_names = '*'`
	sqlReload      = `SELECT pg_reload_conf()`
	sqlSyncState   = `SELECT count(*) > 0 FROM pg_stat_replication WHERE sync_state = 'sync'`
	sqlPromote     = `SELECT pg_promote(true, 60)`
)

var errNotPromoted = errors.New("embedded: the server was not promoted within a minute")

// runBackup makes the data directory a copy of the primary, which it then follows.
func (s *Server) runBackup(ctx context.Context, dir string) error {
	primary := s.opts.StandbyOf
	return s.runProgram(ctx, dir, "pg_basebackup", "-D", dir, "-h", primary.socket, "-p", port, "-U", superuser,
		"--no-password", "--checkpoint=fast", "--wal-method=stream", "--write-recovery-conf", "--no-sync")
}

// Synchronous makes the server acknowledge a commit only when a standby has it too, and returns once one does so. Until
// the server has another standby after that one is gone, commits wait.
func (s *Server) Synchronous(ctx context.Context) error {
	for _, sql := range []string{sqlSynchronous, sqlReload} {
		if err := s.exec(ctx, sql); err != nil {
			return err
		}
	}
	for {
		following, err := s.ask(ctx, sqlSyncState)
		if err != nil || following {
			return err
		}
		if err := pause(ctx, pollEvery); err != nil {
			return fmt.Errorf("embedded: wait for a standby: %w", err)
		}
	}
}

// Promote makes a standby a primary, and returns when it takes writes.
func (s *Server) Promote(ctx context.Context) error {
	promoted, err := s.ask(ctx, sqlPromote)
	if err == nil && !promoted {
		return errNotPromoted
	}
	return err
}

// Demote makes a server that was crashed or stopped come back, by Restart, as a read-only standby that follows nobody: a
// former primary.
func (s *Server) Demote() error {
	path := filepath.Join(s.data(), "standby.signal")
	err := os.WriteFile(path, nil, 0o600)
	if err == nil {
		err = s.account.own(path)
	}
	if err != nil {
		return fmt.Errorf("embedded: demote: %w", err)
	}
	return nil
}

func (s *Server) exec(ctx context.Context, sql string) error {
	s.connMu.Lock()
	defer s.connMu.Unlock()
	if err := s.connect(ctx); err != nil {
		return err
	}
	if _, err := s.conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("embedded: %w", err)
	}
	return nil
}

func (s *Server) ask(ctx context.Context, sql string) (answer bool, err error) {
	s.connMu.Lock()
	defer s.connMu.Unlock()
	if err := s.connect(ctx); err != nil {
		return false, err
	}
	if err := s.conn.QueryRow(ctx, sql).Scan(&answer); err != nil {
		return false, fmt.Errorf("embedded: %w", err)
	}
	return answer, nil
}
