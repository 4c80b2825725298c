package yardstick

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/threadsvc/threadsvc/store"
)

// Reader reads contexts straight from Postgres, on one connection, by one statement and one round trip of pgx each. Its
// methods must not be called concurrently.
type Reader struct {
	conn *pgx.Conn
}

// Reader connects. The caller closes the reader.
func (d *DB) Reader(ctx context.Context) (*Reader, error) {
	conns, err := d.connect(ctx, 1)
	if err != nil {
		return nil, err
	}
	return &Reader{conns[0]}, nil
}

// Close closes the connection.
func (r *Reader) Close() { closeAll([]*pgx.Conn{r.conn}) }

// Put stores a text, uncompressed, as one row.
func (r *Reader) Put(ctx context.Context, id int, text []byte) error {
	const put = `INSERT INTO threadsvc_bench.texts (id, body) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET body = excluded.body`
	if _, err := r.conn.Exec(ctx, put, id, text); err != nil {
		return fmt.Errorf("yardstick: store a text: %w", err)
	}
	return nil
}

// Text reads a text that was put, which must have a length of want.
func (r *Reader) Text(ctx context.Context, id, want int) (time.Duration, error) {
	started := time.Now()
	var body []byte
	err := r.conn.QueryRow(ctx, `SELECT body FROM threadsvc_bench.texts WHERE id = $1`, id).Scan(&body)
	took := time.Since(started)
	if err == nil && len(body) != want {
		err = fmt.Errorf("%d bytes came back, not %d", len(body), want)
	}
	if err != nil {
		return 0, fmt.Errorf("yardstick: read a text: %w", err)
	}
	return took, nil
}

const sqlRows = `
SELECT body FROM message_blocks WHERE thread_key = $1
UNION ALL
SELECT doc FROM states WHERE thread_key = $1
UNION ALL
SELECT patch FROM state_patches WHERE thread_key = $1`

// Rows reads the rows that a thread's context is made of from threadsvc's own tables, as they are stored: compressed, the
// patches of the state beside it, and in no order.
func (r *Reader) Rows(ctx context.Context, key store.Key) (time.Duration, error) {
	started := time.Now()
	rows, err := r.conn.Query(ctx, sqlRows, [16]byte(key))
	if err == nil {
		_, err = pgx.CollectRows(rows, pgx.RowTo[[]byte])
	}
	if err != nil {
		return 0, fmt.Errorf("yardstick: read a context's rows: %w", err)
	}
	return time.Since(started), nil
}
