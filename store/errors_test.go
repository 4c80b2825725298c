package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/klauspost/compress/zstd"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	state := func(code string) error { return fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code}) }
	other := errors.New("other")
	for _, test := range []struct {
		err                 error
		want                error
		safeWrite, safeRead bool
	}{
		{state("40001"), store.ErrUnavailable, true, true},
		{state("40P01"), store.ErrUnavailable, true, true},
		{state("26000"), nil, true, true},
		{state("0A000"), nil, true, true},
		{state("57P01"), store.ErrUnavailable, false, true},
		{state("08006"), store.ErrUnavailable, false, true},
		{state("53300"), store.ErrUnavailable, false, true},
		{state("25006"), store.ErrUnavailable, true, true},
		{state("55P03"), store.ErrUnavailable, false, true},
		{state("23514"), nil, false, false},
		{state("22021"), nil, false, false},
		{&pgconn.PgError{Code: "23505", ConstraintName: "runs_run_id_unique"}, store.ErrDuplicate, false, false},
		{&pgconn.PgError{Code: "23505", ConstraintName: "runs_pkey"}, nil, false, false},
		{io.ErrUnexpectedEOF, store.ErrUnavailable, false, true},
		{fmt.Errorf("wrapped: %w", pgconn.ErrConnClosed), store.ErrUnavailable, false, true},
		{context.DeadlineExceeded, store.ErrUnavailable, false, false},
		{context.Canceled, store.ErrUnavailable, false, false},
		{store.ErrNotFound, store.ErrNotFound, false, false},
		{store.ErrCorrupt, store.ErrCorrupt, false, false},
		{other, other, false, false},
	} {
		got := store.Classify(test.err)
		if !errors.Is(got, test.err) || (test.want != nil && !errors.Is(got, test.want)) {
			t.Errorf("%v became %v, want %v", test.err, got, test.want)
		}
		if test.want == nil && (errors.Is(got, store.ErrUnavailable) || errors.Is(got, store.ErrDuplicate)) {
			t.Errorf("%v became %v", test.err, got)
		}
		if store.SafeWrite(test.err) != test.safeWrite || store.SafeRead(test.err) != test.safeRead {
			t.Errorf("%v: safe to write again %v, to read again %v", test.err, !test.safeWrite, !test.safeRead)
		}
	}
	if store.Classify(nil) != nil {
		t.Error("no error became one")
	}
}

func TestCodec(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 1000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	for _, test := range []struct {
		plain      []byte
		log, folds int16
	}{
		{nil, 0, 0}, {[]byte{}, 0, 0}, {make([]byte, 100), 0, 0}, {make([]byte, 101), 1, 4}, {noise, 0, 0},
		{make([]byte, 1<<20), 1, 4},
	} {
		for want, pack := range map[*int16]func([]byte) (int16, []byte){&test.log: store.Pack, &test.folds: store.PackFold} {
			codec, stored := pack(test.plain)
			if codec != *want || len(stored) > len(test.plain) {
				t.Errorf("%d bytes are stored as %d with codec %d, want %d", len(test.plain), len(stored), codec, *want)
			}
			if got, err := store.Unpack(codec, stored); err != nil || !slices.Equal(got, test.plain) {
				t.Errorf("%d bytes came back as %d: %v", len(test.plain), len(got), err)
			}
		}
	}
	_, stored := store.Pack(make([]byte, 1000))
	stored[len(stored)-1] ^= 1 // the checksum
	_, cut := store.PackFold(make([]byte, 1000))
	cut = cut[:len(cut)-1]
	for codec, corrupt := range map[int16][]byte{1: stored, 2: stored, 4: cut, -1: nil} {
		if _, err := store.Unpack(codec, corrupt); corrupt != nil && !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("codec %d: %v, want ErrCorrupt", codec, err)
		}
	}
}

// Log entries are stored in columns, which are shorter; what is none is stored as it is, and both come back.
func TestCodecOfEntries(t *testing.T) {
	t.Parallel()
	var entries []byte
	for i := range uint64(100) {
		e := agui.Entry{Kind: agui.KindEvent, Offset: i, Payload: fmt.Appendf(nil, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"%d"}`, i*i%97)}
		entries = e.Append(entries)
	}
	_, rows := store.Pack(entries)
	for name, pack := range map[string]func([]byte) (int16, []byte){"on the way": store.PackEntries, "merged": store.PackEntriesDense} {
		for _, test := range []struct {
			plain []byte
			codec int16
		}{{nil, 0}, {entries[:64], 0}, {entries, 8}, {append(slices.Clone(entries), 1), 1}} {
			codec, stored := pack(test.plain)
			if codec != test.codec {
				t.Errorf("%s: %d bytes are stored with codec %d, want %d", name, len(test.plain), codec, test.codec)
			}
			if codec == 8 && len(stored) > len(rows)*7/8 {
				t.Errorf("%s: columns take %d bytes, entries %d", name, len(stored), len(rows))
			}
			if got, err := store.Unpack(codec, stored); err != nil || !slices.Equal(got, test.plain) {
				t.Errorf("%s: %d bytes came back as %d: %v", name, len(test.plain), len(got), err)
			}
		}
	}
	for _, corrupt := range [][]byte{rows, rows[:len(rows)-1], nil, {}} {
		if _, err := store.Unpack(8, corrupt); corrupt != nil && !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%d bytes: %v, want ErrCorrupt", len(corrupt), err)
		}
	}
}

// A few stored bytes that claim to expand to a terabyte are refused before they do.
func TestDecompressionBomb(t *testing.T) {
	t.Parallel()
	magic, sizeInEightBytes := "\x28\xb5\x2f\xfd", "\xe0" // RFC 8878, section 3.1.1
	bomb := []byte(magic + sizeInEightBytes + "\x00\x00\x00\x00\x00\x01\x00\x00" + "\x03\x00\x00a")
	if _, err := store.Unpack(1, bomb); !errors.Is(err, store.ErrCorrupt) || !errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		t.Errorf("%v, want ErrCorrupt because of the size", err)
	}
}
