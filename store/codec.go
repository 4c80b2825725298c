package store

import (
	"bytes"
	"fmt"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// How a payload column is stored. The numbers are stored: they never change.
const (
	codecPlain int16 = 0
	codecZstd  int16 = 1
	// codecOutlined is added for segments some of whose payloads are references (outline.go).
	codecOutlined int16 = 2
	// codecS2 is that of folds: read as a whole at every load, in many small pieces. S2 leaves them up to a fifth longer than
	// zstd, which reads pieces of a few hundred bytes twenty times slower; the log, which is what grows, has zstd.
	codecS2 int16 = 4
)

const (
	// minCompress is the size below which compression gains nothing.
	minCompress = 100
	// maxDecoded bounds what a stored payload may expand to.
	maxDecoded = 512 << 20
)

// The encoder and the decoder are safe for concurrent use by EncodeAll and DecodeAll, and start no goroutines for them.
var (
	encoder = must(zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(true)))
	decoder = must(zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxDecoded), zstd.WithDecoderConcurrency(0)))
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // the options above are wrong
	}
	return v
}

// pack returns the form to store a payload in. The result may alias it.
func pack(plain []byte) (int16, []byte) {
	if len(plain) <= minCompress || len(plain) > maxDecoded {
		return codecPlain, plain
	}
	if packed := encoder.EncodeAll(plain, make([]byte, 0, len(plain)/4)); len(packed) < len(plain) {
		return codecZstd, packed
	}
	return codecPlain, plain
}

// packFold is pack for what belongs to a fold.
func packFold(plain []byte) (int16, []byte) {
	if len(plain) <= minCompress || len(plain) > maxDecoded {
		return codecPlain, plain
	}
	if packed := s2.EncodeBetter(nil, plain); len(packed) < len(plain) {
		return codecS2, bytes.Clone(packed) // what it was written to is as long as it might have become
	}
	return codecPlain, plain
}

// packAll packs the payloads of one row that share a codec. Nil stays nil.
func packAll(plain ...[]byte) (int16, [][]byte) {
	packed := make([][]byte, len(plain))
	before, after := 0, 0
	for i, p := range plain {
		if p != nil {
			packed[i] = encoder.EncodeAll(p, nil)
		}
		before, after = before+len(p), after+len(packed[i])
	}
	if before <= minCompress || after >= before {
		return codecPlain, plain
	}
	return codecZstd, packed
}

// unpack reverses pack, packFold and packEntries. Nil stays nil. The error is ErrCorrupt.
func unpack(codec int16, stored []byte) (plain []byte, err error) {
	switch {
	case stored == nil || codec == codecPlain:
		return stored, nil
	case codec == codecZstd:
		plain, err = decoder.DecodeAll(stored, nil)
	case codec == codecS2:
		plain, err = unpackS2(stored)
	case codec == codecColumns:
		plain, err = unpackColumns(stored)
	default:
		err = fmt.Errorf("codec %d is unknown", codec)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return plain, nil
}

func unpackS2(stored []byte) ([]byte, error) {
	if n, err := s2.DecodedLen(stored); err != nil || n > maxDecoded {
		return nil, fmt.Errorf("%d bytes would expand to %d: %w", len(stored), n, s2.ErrTooLarge)
	}
	return s2.Decode(nil, stored)
}

// unpackCopy is unpack for what the driver will overwrite.
func unpackCopy(codec int16, stored []byte) ([]byte, error) {
	if codec == codecPlain {
		return bytes.Clone(stored), nil
	}
	return unpack(codec, stored)
}

// unpackAll unpacks in place.
func unpackAll(codec int16, stored ...*[]byte) (err error) {
	for _, s := range stored {
		if *s, err = unpack(codec, *s); err != nil {
			return err
		}
	}
	return nil
}
