package store

import (
	"bytes"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
)

// Arrays are encoded as pgx encodes them, and the memory is taken at once.
func TestByteaArrays(t *testing.T) {
	types := pgtype.NewMap()
	array, _ := types.TypeForOID(pgtype.ByteaArrayOID)
	ours := byteaArrays{array.Codec.(*pgtype.ArrayCodec)}
	for _, value := range [][][]byte{
		nil, {}, {{}}, {nil}, {{1, 2}, nil, {}, bytes.Repeat([]byte{7}, 5000)},
	} {
		want, err := types.Encode(pgtype.ByteaArrayOID, pgtype.BinaryFormatCode, value, []byte("before"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := ours.PlanEncode(types, pgtype.ByteaArrayOID, pgtype.BinaryFormatCode, value).Encode(value, []byte("before"))
		if err != nil || !bytes.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("%d elements: % x and %v, want % x", len(value), got, err, want)
		}
	}
	large := make([][]byte, 1000)
	for i := range large {
		large[i] = make([]byte, 1000)
	}
	plan := ours.PlanEncode(types, pgtype.ByteaArrayOID, pgtype.BinaryFormatCode, large)
	// One for the memory; the race detector adds one or two. Growing to a megabyte would take more than ten.
	if n := testing.AllocsPerRun(10, func() { _, _ = plan.Encode(large, nil) }); n > 4 {
		t.Errorf("%.0f allocations for an array", n)
	}
}
