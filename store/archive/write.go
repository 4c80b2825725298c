package archive

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"hash"
	"hash/crc32"
	"io"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Writer writes an archive: the head first, then the log, the runs, the warnings, and the end. After an error it is done.
type Writer struct {
	out   io.Writer
	sum   hash.Hash
	frame []byte

	group   entries // being gathered
	stored  []byte
	offset  uint64 // the next of the stream
	stream  string
	version uint64
}

// NewWriter begins an archive.
func NewWriter(out io.Writer, head Head) (*Writer, error) {
	w := &Writer{out: out, sum: sha256.New()}
	if err := w.put([]byte(magic)); err != nil {
		return nil, err
	}
	return w, w.object(kindHead, head)
}

// Fold writes the fold at the first version of a log that was cut. It comes before the log.
func (w *Writer) Fold(f *agui.Fold) error {
	w.version = f.Version
	return w.write(kindFold, f.Append(make([]byte, 0, f.Size())))
}

func (w *Writer) put(b []byte) error {
	w.sum.Write(b)
	_, err := w.out.Write(b)
	return err
}

func (w *Writer) object(kind byte, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return w.write(kind, text)
}

func (w *Writer) write(kind byte, payload ...[]byte) error {
	size := 0
	sum := crc32.Update(0, castagnoli, []byte{kind})
	for _, p := range payload {
		size += len(p)
		sum = crc32.Update(sum, castagnoli, p)
	}
	w.frame = binary.AppendUvarint(append(w.frame[:0], kind), uint64(size))
	for _, p := range payload {
		w.frame = append(w.frame, p...)
	}
	w.frame = binary.BigEndian.AppendUint32(w.frame, sum)
	return w.put(w.frame)
}

// Segment adds the entries of a segment up to a version, those that were not added before.
func (w *Writer) Segment(s *store.Segment, until uint64) error {
	if s.Err != nil {
		return s.Err
	}
	version := s.FirstVersion - 1
	return agui.EachEntry(s.Entries, func(e *agui.Entry, stored []byte) error {
		if version++; version <= w.version || version > until {
			return nil
		}
		return w.entry(s, version, e, stored)
	})
}

func (w *Writer) entry(s *store.Segment, version uint64, e *agui.Entry, stored []byte) error {
	at := s.CommitTime(version).UnixMicro()
	g := &w.group
	fits := len(w.stored) < cutBytes && g.RunID == s.RunID && g.StreamID == s.StreamID && g.CommittedAt == at
	if len(w.stored) > 0 && !fits {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if s.StreamID != w.stream {
		w.stream, w.offset = s.StreamID, 0
	}
	if len(w.stored) == 0 {
		*g = entries{FirstVersion: version, RunID: s.RunID, StreamID: s.StreamID, FirstOffset: w.offset, CommittedAt: at}
	}
	if e.Kind == agui.KindEvent || e.Flags&agui.FlagDigest != 0 { // what was received; what closes a run was not
		w.offset = max(w.offset, e.Offset+1)
	}
	w.stored = append(w.stored, stored...)
	g.LastVersion, g.NextOffset, w.version = version, w.offset, version
	return nil
}

func (w *Writer) flush() error {
	if len(w.stored) == 0 {
		return nil
	}
	text, err := json.Marshal(w.group)
	if err != nil {
		return err
	}
	err = w.write(kindEntries, binary.AppendUvarint(nil, uint64(len(text))), text, w.stored)
	w.stored = w.stored[:0]
	return err
}

// Run adds a run.
func (w *Writer) Run(r *store.Run) error {
	if err := w.flush(); err != nil {
		return err
	}
	return w.object(kindRun, runOf(r))
}

// Warning adds a warning.
func (w *Writer) Warning(row *store.Warning) error {
	if err := w.flush(); err != nil {
		return err
	}
	return w.object(kindWarning, warningOf(row))
}

// Close writes the end.
func (w *Writer) Close() error {
	if err := w.flush(); err != nil {
		return err
	}
	return w.write(kindEnd, w.sum.Sum(nil))
}
