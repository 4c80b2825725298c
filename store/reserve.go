package store

import (
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
)

// reserve makes room for so many bytes in what a connection will send. It is a message of none. The buffer begins with 1 KiB each
// time and would be copied from one twice as large to the next.
type reserve int

var _ pgproto3.FrontendMessage = reserve(0)

// reserveFor makes room for a batch that tx is going to send.
func reserveFor(tx pgx.Tx, batch *pgx.Batch) {
	tx.Conn().PgConn().Frontend().Send(reserve(sizeOf(batch)))
}

// Encode implements pgproto3.FrontendMessage.
func (r reserve) Encode(dst []byte) ([]byte, error) { return slices.Grow(dst, int(r)), nil }

// Decode implements pgproto3.FrontendMessage.
func (reserve) Decode([]byte) error { return errors.ErrUnsupported }

// Frontend implements pgproto3.FrontendMessage.
func (reserve) Frontend() {}

// sizeOf is about what a batch will be as it is sent.
func sizeOf(batch *pgx.Batch) int {
	const perQuery, perElement = 512, 16 // with names, formats, lengths; of a number with its length
	size := 0
	for _, query := range batch.QueuedQueries {
		size += perQuery
		for _, argument := range query.Arguments {
			switch elements := argument.(type) {
			case [][]byte:
				size += sizeOfAll(elements)
			case []string:
				size += sizeOfAll(elements)
			case []int64:
				size += perElement * len(elements)
			case []int16:
				size += perElement * len(elements)
			case []pgtype.UUID:
				size += 2 * perElement * len(elements)
			}
		}
	}
	return size
}

func sizeOfAll[T string | []byte](elements []T) (size int) {
	for _, e := range elements {
		size += 4 + len(e)
	}
	return size
}
