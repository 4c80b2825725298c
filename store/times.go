package store

import (
	"encoding/binary"
	"time"
)

// encodeTimes is the stored form of the spans of a merged segment, which begins at version first; at is its first commit. It is
// a codec in one byte, and, for each run of spans with the same number of versions, that number, how many spans there are, and
// for each the microseconds since the one before; the numbers as uvarints. A time before that of its predecessor, after a clock
// was set back, becomes the same, and those that follow stay what they are.
func encodeTimes(spans []TimeSpan, first uint64, at time.Time) []byte {
	if len(spans) == 0 {
		return nil
	}
	var text []byte
	for len(spans) > 0 {
		versions := spans[0].LastVersion + 1 - first
		n := 1
		for n < len(spans) && spans[n].LastVersion-spans[n-1].LastVersion == versions {
			n++
		}
		text = binary.AppendUvarint(binary.AppendUvarint(text, versions), uint64(n))
		for _, s := range spans[:n] {
			since := max(0, s.CommittedAt.Sub(at).Microseconds())
			text = binary.AppendUvarint(text, uint64(since))
			at = at.Add(time.Duration(since) * time.Microsecond)
		}
		first, spans = spans[n-1].LastVersion+1, spans[n:]
	}
	codec, packed := codecPlain, text
	if len(text) > minCompress {
		codec, packed = packDense(text)
	}
	return append([]byte{byte(codec)}, packed...)
}

// decodeTimes reverses encodeTimes; nil for a text that is none.
func decodeTimes(text []byte, first uint64, at time.Time) (spans []TimeSpan) {
	if len(text) == 0 {
		return nil
	}
	text, err := unpack(int16(text[0]), text[1:])
	if err != nil {
		return nil
	}
	r := uvarints{rest: text}
	for len(r.rest) > 0 {
		versions, n := r.next(), r.next()
		for ; n > 0 && !r.bad; n-- {
			first, at = first+versions, at.Add(time.Duration(r.next())*time.Microsecond)
			spans = append(spans, TimeSpan{LastVersion: first - 1, CommittedAt: at})
		}
		if r.bad {
			return nil
		}
	}
	return spans
}

// uvarints reads numbers. After one that is none it reads zeros.
type uvarints struct {
	rest []byte
	bad  bool
}

func (r *uvarints) next() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || r.bad {
		r.bad = true
		return 0
	}
	r.rest = r.rest[size:]
	return n
}
