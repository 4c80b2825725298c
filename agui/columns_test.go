package agui_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/threadsvc/threadsvc/agui"
)

// drawLog draws entries as they follow each other in logs, in stored form.
func drawLog(t *rapid.T) (stored []byte) {
	offset := rapid.SampledFrom([]uint64{0, 1, 126, math.MaxUint64 - 1}).Draw(t, "first offset")
	for range rapid.IntRange(0, 20).Draw(t, "entries") {
		e := agui.Entry{Kind: agui.KindEvent, Offset: offset}
		switch rapid.IntRange(0, 9).Draw(t, "entry") {
		case 0:
			e.Kind, e.Offset = agui.KindMark, 0
		case 1:
			e.Flags, e.Digest = agui.FlagChunk|agui.FlagDigest, [8]byte{1, 2, byte(offset)}
		case 2:
			e.Flags = agui.FlagInert | 1<<7
		}
		offset += rapid.SampledFrom([]uint64{0, 1, 1, 1, 1, 5}).Draw(t, "step")
		e.Payload = rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "payload")
		stored = e.Append(stored)
	}
	return stored
}

// Entries that were put in columns come back byte for byte.
func TestColumnsRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		stored := drawLog(t)
		columns, ok := agui.AppendColumns([]byte("before"), stored)
		if !ok || !bytes.HasPrefix(columns, []byte("before")) {
			t.Fatalf("%x is not taken, or %q is gone", stored, "before")
		}
		joined, err := agui.JoinColumns(columns[len("before"):], len(stored))
		if err != nil || !bytes.Equal(joined, stored) {
			t.Fatalf("%x became %x, %v", stored, joined, err)
		}
	})
}

// What would be longer than it may is refused before it takes memory: a byte of columns may stand for an entry of many.
func TestColumnsAreBounded(t *testing.T) {
	t.Parallel()
	const n = 1 << 20
	columns := append(binary.AppendUvarint(nil, n), byte(agui.KindEvent), 0)
	columns = binary.AppendUvarint(columns, math.MaxUint64-n)
	columns = append(columns, make([]byte, n+1)...) // the lengths, all 0, and the end of the groups
	if _, err := agui.JoinColumns(columns, 13*n-1); !errors.Is(err, agui.ErrColumnsCorrupt) {
		t.Errorf("%d bytes became too many: %v", len(columns), err)
	}
	if stored, err := agui.JoinColumns(columns, 13*n); err != nil || len(stored) != 13*n {
		t.Errorf("%d bytes became %d, %v", len(columns), len(stored), err)
	}
	wrong := binary.AppendUvarint([]byte{2, 1, 0, 0}, math.MaxUint64)
	if _, err := agui.JoinColumns(append(wrong, 0, 0), math.MaxInt); !errors.Is(err, agui.ErrColumnsCorrupt) {
		t.Errorf("a length beyond all: %v", err)
	}
}

// Consecutive entries of one kind take their lengths besides the payloads, and nothing else that grows.
func TestColumnsAreShort(t *testing.T) {
	t.Parallel()
	var stored []byte
	payload := []byte(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"x"}`)
	const n = 1000
	for i := range uint64(n) {
		e := agui.Entry{Kind: agui.KindEvent, Offset: 1<<20*(1+i/500) + i, Payload: payload}
		stored = e.Append(stored)
	}
	columns, ok := agui.AppendColumns(nil, stored)
	if most := n*(len(payload)+1) + 2*8 + 1; !ok || len(columns) > most {
		t.Errorf("%d bytes became %d, more than %d; %v", len(stored), len(columns), most, ok)
	}
}

// What Entry.Append would not have written is left alone: it would not come back as it was.
func TestColumnsTakeNothingElse(t *testing.T) {
	t.Parallel()
	e := agui.Entry{Kind: agui.KindEvent, Offset: 3, Payload: []byte("{}")}
	stored := e.Append(nil)
	for name, other := range map[string][]byte{
		"cut":                  stored[:len(stored)-1],
		"more":                 append(bytes.Clone(stored), 1),
		"a longer offset":      {1, 0, 0x83, 0, 2, '{', '}'},
		"a longer length":      {1, 0, 3, 0x82, 0, '{', '}'},
		"a digest that is cut": {1, byte(agui.FlagDigest), 3, 1, 2},
	} {
		if got, ok := agui.AppendColumns([]byte("x"), other); ok || string(got) != "x" {
			t.Errorf("%s: %x, %v", name, got, ok)
		}
	}
}

func FuzzJoinColumns(f *testing.F) {
	e := agui.Entry{Kind: agui.KindEvent, Flags: agui.FlagDigest, Digest: [8]byte{9}, Offset: 300, Payload: []byte(`{"type":"CUSTOM"}`)}
	stored := e.Append(nil)
	e.Offset++
	columns, _ := agui.AppendColumns(nil, e.Append(stored))
	f.Add(columns)
	f.Add([]byte{0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1, 4, 0})
	f.Add([]byte{2, 1, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 0, 'a'})
	f.Fuzz(func(t *testing.T, columns []byte) {
		stored, err := agui.JoinColumns(columns, 1<<20)
		if err != nil {
			if !errors.Is(err, agui.ErrColumnsCorrupt) || stored != nil {
				t.Fatalf("%x and %v", stored, err)
			}
			return
		}
		if len(stored) > 24*len(columns) {
			t.Fatalf("%d bytes became %d", len(columns), len(stored))
		}
		again, ok := agui.AppendColumns(nil, stored)
		if !ok {
			t.Fatalf("%x became %x, which is no log", columns, stored)
		}
		if joined, err := agui.JoinColumns(again, len(stored)); err != nil || !bytes.Equal(joined, stored) {
			t.Fatalf("%x became %x, %v", stored, joined, err)
		}
	})
}
