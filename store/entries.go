package store

import (
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/threadsvc/threadsvc/agui"
)

// codecColumns is that of log entries: agui.AppendColumns, and zstd. It takes an eighth less than zstd alone, and less time.
const codecColumns int16 = 8

// minColumns is the size below which log entries are stored as they are: one short event gains nothing, and the time it would take
// is a large part of what the service does for it. They are compressed when their run is merged.
const minColumns = 200

// columnsBuffers are for columns on their way to be compressed.
var columnsBuffers = sync.Pool{New: func() any { return new([]byte) }}

// maxPooled is the size beyond which a buffer is not kept.
const maxPooled = 1 << 20

// packEntries is pack for log entries.
func packEntries(entries []byte) (int16, []byte) { return packColumns(encoder, entries) }

// packEntriesDense is packDense for log entries.
func packEntriesDense(entries []byte) (int16, []byte) { return packColumns(merger, entries) }

func packColumns(z *zstd.Encoder, entries []byte) (int16, []byte) {
	if len(entries) < minColumns || len(entries) > maxDecoded {
		return codecPlain, entries
	}
	buffer := columnsBuffers.Get().(*[]byte)
	columns, ok := agui.AppendColumns((*buffer)[:0], entries)
	codec, plain := codecColumns, columns
	if !ok || len(columns) > maxDecoded { // what is no log is reported when it is read
		codec, plain = codecZstd, entries
	}
	packed := z.EncodeAll(plain, make([]byte, 0, len(plain)/4))
	if cap(columns) <= maxPooled {
		*buffer = columns
		columnsBuffers.Put(buffer)
	}
	if len(packed) >= len(entries) {
		return codecPlain, entries
	}
	return codec, packed
}

// unpackColumns reverses packEntries for codecColumns.
func unpackColumns(stored []byte) ([]byte, error) {
	columns, err := decoder.DecodeAll(stored, nil)
	if err != nil {
		return nil, err
	}
	return agui.JoinColumns(columns, maxDecoded)
}
