package store

import (
	"math"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// of is a row that belongs to a thread.
type of[T any] struct {
	key Key
	row *T
}

// rowsOf lists the rows that get finds in commits.
func rowsOf[T any](commits []*Commit, get func(*Commit) []T) []of[T] {
	var all []of[T]
	for _, c := range commits {
		rows := get(c)
		for i := range rows {
			all = append(all, of[T]{c.Key, &rows[i]})
		}
	}
	return all
}

// column makes the array of one column, for unnest.
func column[R, V any](rows []R, value func(R) V) []V {
	values := make([]V, len(rows))
	for i, row := range rows {
		values[i] = value(row)
	}
	return values
}

func keys[T any](rows []of[T]) []pgtype.UUID {
	return column(rows, func(r of[T]) pgtype.UUID { return uuid(r.key) })
}

func uuid(k Key) pgtype.UUID { return pgtype.UUID{Bytes: k, Valid: true} }

// bigint is n as Postgres has it. What does not fit is beyond everything that is stored.
func bigint(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// hashOrNil is nil for the zero hash.
func hashOrNil(hash [32]byte) []byte {
	if hash == ([32]byte{}) {
		return nil
	}
	return hash[:]
}

func timeOrZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}
