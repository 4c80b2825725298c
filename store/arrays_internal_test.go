package store

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
)

// Arrays are encoded as pgx encodes them.
func TestArraysAreThoseOfPgx(t *testing.T) {
	theirs, ours := pgtype.NewMap(), pgtype.NewMap()
	registerArrays(ours)
	for oid, values := range map[uint32][]any{
		pgtype.ByteaArrayOID: {[][]byte(nil), [][]byte{}, [][]byte{{}}, [][]byte{nil}, [][]byte{{1, 2}, nil, {}, bytes.Repeat([]byte{7}, 5000)}},
		pgtype.TextArrayOID:  {[]string(nil), []string{}, []string{""}, []string{"a", "", strings.Repeat("ä", 3000)}},
		pgtype.Int8ArrayOID:  {[]int64(nil), []int64{}, []int64{0, 1, -1, 1 << 62, -1 << 63}},
		pgtype.Int2ArrayOID:  {[]int16(nil), []int16{}, []int16{0, 1, -1, 1 << 14, -1 << 15}},
		pgtype.BoolArrayOID:  {[]bool(nil), []bool{}, []bool{true, false, true}},
		pgtype.UUIDArrayOID:  {[]pgtype.UUID(nil), []pgtype.UUID{}, []pgtype.UUID{{Bytes: [16]byte{1, 15: 2}, Valid: true}, {}}},
	} {
		for _, value := range values {
			want, err := theirs.Encode(oid, pgtype.BinaryFormatCode, value, []byte("before"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := ours.Encode(oid, pgtype.BinaryFormatCode, value, []byte("before"))
			if err != nil || !bytes.Equal(got, want) || (got == nil) != (want == nil) {
				t.Errorf("%T of %d: % x and %v, want % x", value, reflect.ValueOf(value).Len(), got, err, want)
			}
			array, _ := ours.TypeForOID(oid)
			plan := array.Codec.PlanEncode(ours, oid, pgtype.BinaryFormatCode, value)
			if _, ok := plan.(pgtype.Codec); !ok {
				t.Errorf("%T is not encoded by arrayCodec", value)
			}
		}
	}
}

// The memory of an array is taken at once.
func TestArraysTakeMemoryOnce(t *testing.T) {
	types := pgtype.NewMap()
	registerArrays(types)
	large := make([][]byte, 1000)
	for i := range large {
		large[i] = make([]byte, 1000)
	}
	array, _ := types.TypeForOID(pgtype.ByteaArrayOID)
	plan := array.Codec.PlanEncode(types, pgtype.ByteaArrayOID, pgtype.BinaryFormatCode, large)
	// One for the memory; the race detector adds one or two. Growing to a megabyte would take more than ten.
	if n := testing.AllocsPerRun(10, func() { _, _ = plan.Encode(large, nil) }); n > 4 {
		t.Errorf("%.0f allocations for an array", n)
	}
}
