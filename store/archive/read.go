package archive

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"strings"
	"time"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
)

// Reader reads an archive. It checks that it is whole and as it was written; what the frames say is the caller's to judge.
type Reader struct {
	in      *bufio.Reader
	sum     hash.Hash
	most    int
	started bool
	rank    int // of the last frame's kind, -1 before the first
	version uint64
}

// NewReader begins to read an archive whose frames have at most so many bytes.
func NewReader(in io.Reader, most int) *Reader {
	return &Reader{in: bufio.NewReaderSize(in, 64<<10), sum: sha256.New(), most: most, rank: -1}
}

// order ranks the kinds of frames.
var order = string([]byte{kindHead, kindFold, kindEntries, kindRun, kindWarning, kindEnd})

// Next returns what the next frame holds: a *Head, *agui.Fold, *store.Segment, *store.Run or *store.Warning. After the last it is
// io.EOF, if the archive was read to its end and nothing follows; anything wrong is ErrInvalid, or the error of the reader.
func (r *Reader) Next() (any, error) {
	if !r.started {
		line := make([]byte, len(magic))
		if err := r.read(line); err != nil {
			return nil, err
		}
		if string(line) != magic {
			return nil, fmt.Errorf("%w: it does not begin as an export of this version does", ErrInvalid)
		}
		r.started = true
	}
	sum := r.sum.Sum(nil)
	kind, payload, err := r.frame()
	if err != nil {
		return nil, err
	}
	rank := strings.IndexByte(order, kind)
	if rank < r.rank || (rank == 0) != (r.rank < 0) || kind == kindFold && rank == r.rank {
		return nil, fmt.Errorf("%w: a frame of kind %q is out of place", ErrInvalid, kind)
	}
	r.rank = rank
	return r.decode(kind, payload, sum)
}

func (r *Reader) read(b []byte) error {
	_, err := io.ReadFull(r.in, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends too early", ErrInvalid)
	}
	r.sum.Write(b)
	return err
}

func (r *Reader) frame() (kind byte, payload []byte, err error) {
	var head [1]byte
	if err := r.read(head[:]); err != nil {
		return 0, nil, err
	}
	size, err := r.length()
	if err != nil {
		return 0, nil, err
	}
	if size > uint64(r.most) {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes is too large", ErrInvalid, size)
	}
	payload = make([]byte, size)
	if err := r.read(payload); err != nil {
		return 0, nil, err
	}
	var check [4]byte
	if err := r.read(check[:]); err != nil {
		return 0, nil, err
	}
	if crc32.Update(crc32.Update(0, castagnoli, head[:]), castagnoli, payload) != binary.BigEndian.Uint32(check[:]) {
		return 0, nil, fmt.Errorf("%w: a frame of kind %q has another checksum", ErrInvalid, head[0])
	}
	return head[0], payload, nil
}

// length reads an uvarint.
func (r *Reader) length() (uint64, error) {
	var text [binary.MaxVarintLen64]byte
	for n := range text {
		if err := r.read(text[n : n+1]); err != nil {
			return 0, err
		}
		if text[n] < 0x80 {
			if size, m := binary.Uvarint(text[:n+1]); m > 0 {
				return size, nil
			}
			break
		}
	}
	return 0, fmt.Errorf("%w: a length is none", ErrInvalid)
}

func (r *Reader) decode(kind byte, payload, sum []byte) (any, error) {
	switch kind {
	case kindHead:
		h := &Head{}
		return h, object(payload, h)
	case kindFold:
		fold, err := agui.DecodeFold(payload)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		r.version = fold.Version
		return &fold, nil
	case kindEntries:
		return r.segment(payload)
	case kindRun:
		var row run
		if err := object(payload, &row); err != nil {
			return nil, err
		}
		return row.store()
	case kindWarning:
		var row warning
		if err := object(payload, &row); err != nil {
			return nil, err
		}
		return row.store(), nil
	}
	if !bytes.Equal(payload, sum) {
		return nil, fmt.Errorf("%w: it has another checksum", ErrInvalid)
	}
	if _, err := r.in.ReadByte(); err == nil {
		return nil, fmt.Errorf("%w: something follows its end", ErrInvalid)
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return nil, io.EOF
}

func object(text []byte, into any) error {
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// segment reads entries, which must go on where those before ended.
func (r *Reader) segment(payload []byte) (*store.Segment, error) {
	size, n := binary.Uvarint(payload)
	if n <= 0 || size > uint64(len(payload)-n) {
		return nil, fmt.Errorf("%w: a frame of entries is cut", ErrInvalid)
	}
	var e entries
	if err := object(payload[n:n+int(size)], &e); err != nil {
		return nil, err
	}
	if e.FirstVersion != r.version+1 || e.LastVersion < e.FirstVersion || e.NextOffset < e.FirstOffset {
		return nil, fmt.Errorf("%w: versions %d to %d follow version %d", ErrInvalid, e.FirstVersion, e.LastVersion, r.version)
	}
	r.version = e.LastVersion
	return &store.Segment{
		FirstVersion: e.FirstVersion, LastVersion: e.LastVersion, RunID: e.RunID, StreamID: e.StreamID, FirstOffset: e.FirstOffset,
		NextOffset: e.NextOffset, CommittedAt: time.UnixMicro(e.CommittedAt).UTC(), Entries: payload[n+int(size):],
	}, nil
}
