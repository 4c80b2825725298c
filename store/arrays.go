package store

import (
	"context"
	"encoding/binary"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// arrayCodec is pgx' codec of an array, except that it encodes a []T at once. pgx' own boxes every element, and takes memory
// again and again for what a group of commits writes.
type arrayCodec[T any] struct {
	*pgtype.ArrayCodec
	element uint32                 // the type of the elements
	size    func(T) int            // in bytes, -1 for null
	put     func([]byte, T) []byte // appends an element that is not null
}

// registerTypes makes a new connection encode arrays by arrayCodec.
func registerTypes(_ context.Context, conn *pgx.Conn) error {
	registerArrays(conn.TypeMap())
	return nil
}

func registerArrays(types *pgtype.Map) {
	registerArray(types, pgtype.ByteaArrayOID, pgtype.ByteaOID, sizeOfBytes, func(buf, e []byte) []byte { return append(buf, e...) })
	registerArray(types, pgtype.TextArrayOID, pgtype.TextOID, func(e string) int { return len(e) },
		func(buf []byte, e string) []byte { return append(buf, e...) })
	registerArray(types, pgtype.Int8ArrayOID, pgtype.Int8OID, func(int64) int { return 8 },
		func(buf []byte, e int64) []byte { return binary.BigEndian.AppendUint64(buf, uint64(e)) })
	registerArray(types, pgtype.Int2ArrayOID, pgtype.Int2OID, func(int16) int { return 2 },
		func(buf []byte, e int16) []byte { return binary.BigEndian.AppendUint16(buf, uint16(e)) })
	registerArray(types, pgtype.BoolArrayOID, pgtype.BoolOID, func(bool) int { return 1 }, appendBool)
	registerArray(types, pgtype.UUIDArrayOID, pgtype.UUIDOID, sizeOfUUID,
		func(buf []byte, e pgtype.UUID) []byte { return append(buf, e.Bytes[:]...) })
}

func registerArray[T any](types *pgtype.Map, oid, element uint32, size func(T) int, put func([]byte, T) []byte) {
	array, ok := types.TypeForOID(oid)
	if !ok {
		return
	}
	if codec, ok := array.Codec.(*pgtype.ArrayCodec); ok {
		types.RegisterType(&pgtype.Type{Name: array.Name, OID: oid, Codec: arrayCodec[T]{codec, element, size, put}})
	}
}

func sizeOfBytes(e []byte) int {
	if e == nil {
		return -1
	}
	return len(e)
}

func sizeOfUUID(e pgtype.UUID) int {
	if !e.Valid {
		return -1
	}
	return len(e.Bytes)
}

func appendBool(buf []byte, e bool) []byte {
	if e {
		return append(buf, 1)
	}
	return append(buf, 0)
}

// PlanEncode implements pgtype.Codec.
func (c arrayCodec[T]) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.([]T); ok && format == pgtype.BinaryFormatCode {
		return c
	}
	return c.ArrayCodec.PlanEncode(m, oid, format, value)
}

// Encode implements pgtype.EncodePlan. The form is that of array_send in Postgres: the number of dimensions, whether
// there are nulls, the type of the elements; for each dimension its length and lower bound; then the elements, each
// after its length, which is -1 for a null.
func (c arrayCodec[T]) Encode(value any, buf []byte) ([]byte, error) {
	elements := value.([]T)
	if elements == nil {
		return nil, nil
	}
	const header = 20
	size, nulls := header, uint32(0)
	for _, e := range elements {
		n := c.size(e)
		size += 4 + max(n, 0)
		if n < 0 {
			nulls = 1
		}
	}
	buf = slices.Grow(buf, size)
	for _, n := range []uint32{1, nulls, c.element, uint32(len(elements)), 1} {
		buf = binary.BigEndian.AppendUint32(buf, n)
	}
	for _, e := range elements {
		n := c.size(e)
		buf = binary.BigEndian.AppendUint32(buf, uint32(int32(n)))
		if n >= 0 {
			buf = c.put(buf, e)
		}
	}
	return buf, nil
}
