package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Position is how far a thread's log goes. CreatedAt tells the thread from another of the same name that was made after it
// was deleted.
type Position struct {
	Version   uint64
	CreatedAt time.Time
}

const sqlPositions = `
SELECT thread_key, version, created_at
FROM threads
WHERE thread_key = ANY($1::uuid[])`

// positionOf is a thread with its position.
type positionOf struct {
	key Key
	at  Position
}

func scanPosition(row pgx.CollectableRow) (p positionOf, err error) {
	var key pgtype.UUID
	err = row.Scan(&key, &p.at.Version, &p.at.CreatedAt)
	p.key, p.at.CreatedAt = key.Bytes, p.at.CreatedAt.UTC()
	return p, err
}

// Positions implements Store.
func (p *Postgres) Positions(ctx context.Context, keys []Key) (map[Key]Position, error) {
	rows, err := query(ctx, p, scanPosition, sqlPositions, column(keys, uuid))
	if err != nil {
		return nil, err
	}
	positions := make(map[Key]Position, len(rows))
	for _, row := range rows {
		positions[row.key] = row.at
	}
	return positions, nil
}
