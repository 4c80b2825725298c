package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	pgxmigrate "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/threadsvc/threadsvc/migrations"
)

// lockWait bounds how long a migration waits for a lock: that of another migration, or a table's.
const lockWait = time.Minute

// Migrate brings the schema of the database up to this program's revision. Any number of processes may do so at once:
// one works, the others wait for it, up to a minute or the context's deadline, and find nothing left to do. url must
// reach Postgres itself, not a pooler, since the lock belongs to a session.
//
// Errors: ErrSchema if an earlier migration was left half done, ErrUnavailable if the database does not answer.
func Migrate(ctx context.Context, url string) error {
	return withMigrations(ctx, url, func(m *migrate.Migrate) error { return m.Up() })
}

// MigrateDown takes back the newest steps migrations, with the data they made room for. Errors are those of Migrate.
func MigrateDown(ctx context.Context, url string, steps int) error {
	if steps <= 0 {
		return fmt.Errorf("store: the number of migrations to take back is %d, want 1 or more", steps)
	}
	return withMigrations(ctx, url, func(m *migrate.Migrate) error { return m.Steps(-steps) })
}

// SchemaVersion reads the revision of the schema, 0 if there is none, and whether a migration was left half done.
func SchemaVersion(ctx context.Context, url string) (revision uint, dirty bool, err error) {
	err = withMigrations(ctx, url, func(m *migrate.Migrate) error {
		revision, dirty, err = m.Version()
		if errors.Is(err, migrate.ErrNilVersion) {
			return nil
		}
		return err
	})
	return revision, dirty, err
}

func withMigrations(ctx context.Context, url string, do func(*migrate.Migrate) error) (err error) {
	m, err := openMigrations(ctx, url)
	if err != nil {
		return classify(causeOf(err))
	}
	defer func() {
		sourceErr, databaseErr := m.Close()
		err = errors.Join(err, sourceErr, databaseErr)
	}()
	err = do(m)
	if errors.Is(err, migrate.ErrNoChange) {
		return nil
	}
	if dirty, ok := errors.AsType[migrate.ErrDirty](err); ok {
		return fmt.Errorf("%w: the migration to revision %d was left half done; repair the schema by hand and set "+
			"schema_migrations", ErrSchema, dirty.Version)
	}
	return classify(causeOf(err))
}

// causeOf adds the error of the database to one of the migration driver, which does not unwrap.
func causeOf(err error) error {
	if e, ok := errors.AsType[database.Error](err); ok {
		return fmt.Errorf("%w: %w", err, e.OrigErr)
	}
	if e, ok := errors.AsType[*database.Error](err); ok {
		return fmt.Errorf("%w: %w", err, e.OrigErr)
	}
	return err
}

func openMigrations(ctx context.Context, url string) (*migrate.Migrate, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("the database URL: %w", err)
	}
	wait := lockWait
	if deadline, ok := ctx.Deadline(); ok {
		wait = max(min(wait, time.Until(deadline)), time.Millisecond)
	}
	config.RuntimeParams["lock_timeout"] = strconv.FormatInt(wait.Milliseconds(), 10)
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = 5 * time.Second
	}
	db := stdlib.OpenDB(*config)
	if err := db.PingContext(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	driver, err := pgxmigrate.WithInstance(db, &pgxmigrate.Config{})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	source, err := iofs.New(migrations.FS, ".")
	if err != nil {
		return nil, errors.Join(err, driver.Close())
	}
	m, err := migrate.NewWithInstance("iofs", source, "pgx5", driver)
	if err != nil {
		return nil, errors.Join(err, driver.Close())
	}
	m.LockTimeout = wait + time.Second
	return m, nil
}
