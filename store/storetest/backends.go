package storetest

import (
	"context"

	"github.com/jackc/pgx/v5"
)

const sqlTerminate = `
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND pid % $1 = $2`

// TerminateBackends ends one of so many parts of the connections to a database, as an administrator may.
func TerminateBackends(ctx context.Context, url string, parts, part int) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, sqlTerminate, parts, part)
	return err
}
