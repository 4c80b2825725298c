package store

import (
	"context"
	"encoding/binary"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// byteaArrays is pgx' codec of bytea[], which takes the memory for a whole array at once. pgx' own grows with every
// element, and so copies several times what a group of commits writes.
type byteaArrays struct{ *pgtype.ArrayCodec }

// registerTypes makes a new connection use byteaArrays.
func registerTypes(_ context.Context, conn *pgx.Conn) error {
	types := conn.TypeMap()
	if array, ok := types.TypeForOID(pgtype.ByteaArrayOID); ok {
		if codec, ok := array.Codec.(*pgtype.ArrayCodec); ok {
			types.RegisterType(&pgtype.Type{Name: array.Name, OID: array.OID, Codec: byteaArrays{codec}})
		}
	}
	return nil
}

// PlanEncode implements pgtype.Codec.
func (b byteaArrays) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.([][]byte); ok && format == pgtype.BinaryFormatCode {
		return encodeByteas{}
	}
	return b.ArrayCodec.PlanEncode(m, oid, format, value)
}

type encodeByteas struct{}

// Encode implements pgtype.EncodePlan. The form is that of array_send in Postgres: the number of dimensions, whether
// there are nulls, the type of the elements; for each dimension its length and lower bound; then the elements, each
// after its length, which is -1 for a null.
func (encodeByteas) Encode(value any, buf []byte) ([]byte, error) {
	elements := value.([][]byte)
	if elements == nil {
		return nil, nil
	}
	const header = 20
	size, nulls := header, uint32(0)
	for _, e := range elements {
		size += 4 + len(e)
		if e == nil {
			nulls = 1
		}
	}
	buf = slices.Grow(buf, size)
	for _, n := range []uint32{1, nulls, pgtype.ByteaOID, uint32(len(elements)), 1} {
		buf = binary.BigEndian.AppendUint32(buf, n)
	}
	for _, e := range elements {
		if e == nil {
			buf = binary.BigEndian.AppendUint32(buf, 0xffffffff)
			continue
		}
		buf = append(binary.BigEndian.AppendUint32(buf, uint32(len(e))), e...)
	}
	return buf, nil
}
