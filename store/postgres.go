package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/threadsvc/threadsvc/migrations"
)

// Options say how to reach a Postgres database.
type Options struct {
	// URL is a connection URL or a keyword/value string, as libpq has them. Of several hosts the one is used that takes
	// writes, whichever that is at the time: target_session_attrs is read-write unless the URL says otherwise.
	//
	// Behind PgBouncer in transaction mode add default_query_exec_mode=exec: prepared statements do not outlive a
	// transaction there. Nothing else here depends on the state of a database session.
	URL string
	// MaxConns bounds the connections, whatever pool_max_conns in the URL says; 0 means 16. A call beyond waits for one, within its context.
	MaxConns int32
	// ConnectTimeout bounds the making of one connection to one host if the URL sets no connect_timeout; 0 means 5 s, or 2 s
	// if there are several.
	ConnectTimeout time.Duration
	// Logger gets what no caller is told. Nil: nothing.
	Logger *slog.Logger

	tracer pgx.QueryTracer
}

// Postgres is a Store on a Postgres database of version 14 or newer. It owns a pool of connections.
type Postgres struct {
	pool *pgxpool.Pool
	log  *slog.Logger

	current atomic.Pointer[pgxpool.Pool] // the pool, for its own callbacks, which may run before it is made
}

var _ Store = (*Postgres)(nil)

// Open makes the pool. It does not wait for the database: Ping tells whether it can serve. The error is about the URL.
func Open(ctx context.Context, opts Options) (*Postgres, error) {
	p := &Postgres{log: opts.Logger}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	config, err := p.poolConfig(opts)
	if err != nil {
		return nil, fmt.Errorf("store: the database URL: %w", err)
	}
	if p.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	p.current.Store(p.pool)
	return p, nil
}

// Close implements Store. It waits for the calls in progress.
func (p *Postgres) Close() { p.pool.Close() }

const sqlRevision = `
SELECT version, dirty, pg_is_in_recovery(), current_setting('transaction_read_only')::boolean FROM schema_migrations`

// Ping implements Store. Its error is ErrSchema if the schema is older than this program or half migrated, and
// ErrUnavailable if the database does not answer or takes no writes. A newer schema is in order: migrations keep the
// program before them working.
func (p *Postgres) Ping(ctx context.Context) error {
	var revision int64
	var dirty, standby, readOnly bool
	err := retry(ctx, safeRead, func() error {
		return p.pool.QueryRow(ctx, sqlRevision).Scan(&revision, &dirty, &standby, &readOnly)
	})
	want := int64(migrations.Latest())
	if standby || readOnly {
		p.renew() // there may be a primary elsewhere by now
	}
	switch {
	case errors.Is(err, pgx.ErrNoRows) || sqlState(err) == undefinedTable:
		return fmt.Errorf("%w: it is empty, and has to be migrated to revision %d", ErrSchema, want)
	case err != nil:
		return classify(err)
	case dirty:
		return fmt.Errorf("%w: the migration to revision %d was left half done", ErrSchema, revision)
	case revision < want:
		return fmt.Errorf("%w: it has revision %d, and has to be migrated to %d", ErrSchema, revision, want)
	case standby:
		return fmt.Errorf("%w: it is a standby, which takes no writes", ErrUnavailable)
	case readOnly:
		return fmt.Errorf("%w: it is read-only", ErrUnavailable)
	}
	return nil
}

const (
	sqlBeginSnapshot = `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`
	sqlEndSnapshot   = `COMMIT`
)

// snapshot runs the reads that are queued in one transaction that sees one moment, and in one round trip, its beginning and
// its end included. If one of them fails, the pool closes the connection, which still is in the transaction.
func (p *Postgres) snapshot(ctx context.Context, queue func(*pgx.Batch)) error {
	batch := &pgx.Batch{}
	batch.Queue(sqlBeginSnapshot)
	queue(batch)
	batch.Queue(sqlEndSnapshot)
	return p.pool.SendBatch(ctx, batch).Close()
}

// query runs one reading statement, again if that is safe, and collects its rows.
func query[T any](ctx context.Context, p *Postgres, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	var all []T
	err := retry(ctx, safeRead, func() error {
		rows, err := p.pool.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, scan)
		return err
	})
	return all, classify(err)
}

// queryOne is query for one row, with ErrNotFound if there is none.
func queryOne[T any](ctx context.Context, p *Postgres, scan pgx.RowToFunc[T], sql string, args ...any) (one T, err error) {
	all, err := query(ctx, p, scan, sql, args...)
	if err != nil {
		return one, err
	}
	if len(all) == 0 {
		return one, ErrNotFound
	}
	return all[0], nil
}
