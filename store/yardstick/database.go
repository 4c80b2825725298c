package yardstick

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// DB is a database that threadsvc has migrated, with the yardsticks' tables beside its own. Its methods must not be called
// concurrently.
type DB struct {
	config *pgx.ConnConfig
	conn   *pgx.Conn
	tables []string
}

const sqlSchema = `
DROP SCHEMA IF EXISTS threadsvc_bench CASCADE;
CREATE SCHEMA threadsvc_bench;
CREATE TABLE threadsvc_bench.segments (
    thread_key uuid NOT NULL, first_version bigint NOT NULL, last_version bigint NOT NULL,
    run_id text NOT NULL, stream_id text NOT NULL, first_offset bigint NOT NULL, next_offset bigint NOT NULL,
    codec smallint NOT NULL, entries bytea NOT NULL, size bigint NOT NULL, committed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (thread_key, first_version));
ALTER TABLE threadsvc_bench.segments ALTER COLUMN entries SET STORAGE EXTERNAL;
CREATE TABLE threadsvc_bench.naive_events (
    thread_id text NOT NULL, seq bigint NOT NULL, event jsonb NOT NULL, PRIMARY KEY (thread_id, seq));
CREATE TABLE threadsvc_bench.naive_threads (thread_id text PRIMARY KEY, seq bigint NOT NULL, state jsonb NOT NULL);
CREATE TABLE threadsvc_bench.texts (id bigint PRIMARY KEY, body bytea NOT NULL);
ALTER TABLE threadsvc_bench.texts ALTER COLUMN body SET STORAGE EXTERNAL;`

// Open connects and makes the tables, replacing those that an earlier benchmark left behind.
func Open(ctx context.Context, url string) (*DB, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("yardstick: the database URL: %w", err)
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("yardstick: %w", err)
	}
	d := &DB{config: config, conn: conn}
	if err := d.prepare(ctx); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return d, nil
}

func (d *DB) prepare(ctx context.Context) error {
	rows, err := d.conn.Query(ctx, `
		SELECT c.oid::regclass::text FROM pg_class c
		WHERE c.relkind IN ('r', 'p') AND c.relnamespace = current_schema()::regnamespace AND c.relname <> 'schema_migrations'
		ORDER BY 1`)
	if err == nil {
		d.tables, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err == nil {
		_, err = d.conn.Exec(ctx, sqlSchema)
	}
	if err != nil {
		return fmt.Errorf("yardstick: prepare the database: %w", err)
	}
	return nil
}

// Close drops the yardsticks' tables and closes the connection.
func (d *DB) Close(ctx context.Context) error {
	_, err := d.conn.Exec(ctx, `DROP SCHEMA IF EXISTS threadsvc_bench CASCADE`)
	return errors.Join(err, d.conn.Close(ctx))
}

// connect opens n connections.
func (d *DB) connect(ctx context.Context, n int) (conns []*pgx.Conn, err error) {
	for range n {
		conn, err := pgx.ConnectConfig(ctx, d.config.Copy())
		if err != nil {
			closeAll(conns)
			return nil, fmt.Errorf("yardstick: %w", err)
		}
		conns = append(conns, conn)
	}
	return conns, nil
}

func closeAll(conns []*pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, conn := range conns {
		_ = conn.Close(ctx) // it has nothing under way
	}
}

// Server describes a Postgres server.
type Server struct {
	Version           string `json:"version"`
	Fsync             string `json:"fsync"`
	SynchronousCommit string `json:"synchronous_commit"`
	FullPageWrites    string `json:"full_page_writes"`
	SharedBuffers     string `json:"shared_buffers"`
	// MaxConnections is how many it allows.
	MaxConnections int `json:"max_connections"`
	// BackendPID is the process of one of its backends, 0 if the server is not on this machine.
	BackendPID int `json:"-"`
}

// Server describes the server, by what it says of itself.
func (d *DB) Server(ctx context.Context) (s Server, err error) {
	err = d.conn.QueryRow(ctx, `
		SELECT current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit'),
		       current_setting('full_page_writes'), current_setting('shared_buffers'),
		       current_setting('max_connections')::integer,
		       CASE WHEN inet_server_addr() IS NULL OR inet_server_addr() << '127.0.0.0/8' THEN pg_backend_pid() ELSE 0 END`).
		Scan(&s.Version, &s.Fsync, &s.SynchronousCommit, &s.FullPageWrites, &s.SharedBuffers, &s.MaxConnections, &s.BackendPID)
	if err != nil {
		return s, fmt.Errorf("yardstick: ask for the settings: %w", err)
	}
	return s, nil
}

// WAL is the position in the server's write-ahead log, in bytes. Other writers of the server move it too.
func (d *DB) WAL(ctx context.Context) (int64, error) {
	return d.number(ctx, `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint`)
}

// Checkpoint makes the server write its dirty pages out, so that it does not have to while something is measured. Only
// some roles may; for others it does nothing.
func (d *DB) Checkpoint(ctx context.Context) error {
	_, err := d.conn.Exec(ctx, `CHECKPOINT`)
	if d.conn.IsClosed() {
		return fmt.Errorf("yardstick: checkpoint: %w", err)
	}
	return ctx.Err()
}

// TableBytes is the disk space of threadsvc's tables, with indexes, TOAST, and pages that are free.
func (d *DB) TableBytes(ctx context.Context) (int64, error) {
	return d.number(ctx, `SELECT coalesce(sum(pg_total_relation_size(t::regclass)), 0)::bigint FROM unnest($1::text[]) t`, d.tables)
}

// RowBytes is the size of the rows that threadsvc's tables hold, large values and row headers included; without indexes,
// dead rows and free space, so it does not depend on when the server cleaned up. It reads all of them.
func (d *DB) RowBytes(ctx context.Context) (total int64, err error) {
	for _, table := range d.tables {
		const linePointer = 4
		bytes, err := d.number(ctx, fmt.Sprintf(`SELECT coalesce(sum(pg_column_size(t.*) + %d), 0)::bigint FROM %s t`, linePointer, table))
		if err != nil {
			return 0, err
		}
		total += bytes
	}
	return total, nil
}

func (d *DB) number(ctx context.Context, sql string, args ...any) (n int64, err error) {
	if err := d.conn.QueryRow(ctx, sql, args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("yardstick: measure: %w", err)
	}
	return n, nil
}
