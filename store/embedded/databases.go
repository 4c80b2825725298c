package embedded

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	maxNameBytes            = 63 // NAMEDATALEN - 1: longer names are cut silently
	sqlstateDuplicate       = "42P04"
	sqlstateUniqueViolation = "23505" // two creations of one name at the same time
)

// CreateDatabase makes an empty database; one that exists is left as it is.
func (s *Server) CreateDatabase(ctx context.Context, name string) error {
	err := s.admin(ctx, "CREATE DATABASE %s", name)
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok &&
		(pgErr.Code == sqlstateDuplicate || pgErr.Code == sqlstateUniqueViolation) {
		return nil
	}
	return err
}

// CloneDatabase makes name a copy of the database template, to which nobody
// may be connected. It fails when name exists.
func (s *Server) CloneDatabase(ctx context.Context, template, name string) error {
	statement := "CREATE DATABASE %s TEMPLATE %s"
	if s.bin.major >= 15 { // the only way before
		statement += " STRATEGY file_copy"
	}
	return s.admin(ctx, statement, name, template)
}

// DropDatabase removes a database and closes the connections to it; a missing
// one is no error.
func (s *Server) DropDatabase(ctx context.Context, name string) error {
	return s.admin(ctx, "DROP DATABASE IF EXISTS %s WITH (FORCE)", name)
}

// admin runs a statement about databases on a connection kept for that; calls
// follow one another.
func (s *Server) admin(ctx context.Context, format string, names ...string) error {
	quoted := make([]any, len(names))
	for i, name := range names {
		if name == "" || len(name) > maxNameBytes || strings.ContainsRune(name, 0) {
			return fmt.Errorf("%w: %.70q", ErrBadName, name)
		}
		quoted[i] = pgx.Identifier{name}.Sanitize()
	}
	s.connMu.Lock()
	defer s.connMu.Unlock()
	if err := s.connect(ctx); err != nil {
		return err
	}
	if _, err := s.conn.Exec(ctx, fmt.Sprintf(format, quoted...)); err != nil {
		return fmt.Errorf("embedded: database %q: %w", names[0], err)
	}
	return nil
}

// connect needs connMu.
func (s *Server) connect(ctx context.Context) error {
	if !s.Running() {
		return ErrStopped
	}
	if s.conn != nil && !s.conn.IsClosed() {
		return nil
	}
	conn, err := pgx.Connect(ctx, s.URL(superuser))
	if err != nil {
		return fmt.Errorf("embedded: connect: %w", err)
	}
	s.conn = conn
	return nil
}

// disconnect is for after the server's end, which has ended any statement.
func (s *Server) disconnect(ctx context.Context) {
	s.connMu.Lock()
	defer s.connMu.Unlock()
	if s.conn != nil {
		_ = s.conn.Close(ctx) // the other side is gone
		s.conn = nil
	}
}
