package archive_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
	"time"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/archive"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 123_000, time.UTC)

// sample is a log of one run, cut into segments of so many entries.
func sample(cut int) []store.Segment {
	var segments []store.Segment
	for i := range 12 {
		entry := agui.Entry{Kind: agui.KindEvent, Offset: uint64(i), Payload: []byte(`{"type":"X"}`)}
		version := uint64(i + 1)
		if i%cut == 0 {
			segments = append(segments, store.Segment{FirstVersion: version, RunID: "r", StreamID: "r", FirstOffset: uint64(i)})
		}
		s := &segments[len(segments)-1]
		s.Entries, s.LastVersion, s.NextOffset = entry.Append(s.Entries), version, uint64(i+1)
		s.Times = append(s.Times, store.TimeSpan{LastVersion: version, CommittedAt: noon.Add(time.Duration(i/4) * time.Second)})
		s.CommittedAt = s.Times[0].CommittedAt
	}
	return segments
}

func write(t *testing.T, segments []store.Segment) []byte {
	t.Helper()
	var file bytes.Buffer
	w, err := archive.NewWriter(&file, archive.HeadOf(&store.Head{ThreadID: "t", Version: 12, CreatedAt: noon, LastRunAt: noon}))
	for i := range segments {
		err = errors.Join(err, w.Segment(&segments[i], 12))
	}
	run := store.Run{RunID: "r", Ordinal: 1, StreamID: "r", FirstVersion: 1, Status: store.RunActive, StartedAt: noon, InputHash: [32]byte{1}, Result: agui.Value(`"\ud800"`)}
	warning := store.Warning{Version: 3, Warning: agui.Warning{Code: "C", Path: "/\xed\xa0\x80", Removed: agui.Value(`1e400`)}, RaisedAt: noon}
	if err := errors.Join(err, w.Run(&run), w.Warning(&warning), w.Close()); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func read(file io.Reader) (parts []any, err error) {
	r := archive.NewReader(file, 1<<20)
	for {
		part, err := r.Next()
		if errors.Is(err, io.EOF) {
			return parts, nil
		}
		if err != nil {
			return parts, err
		}
		parts = append(parts, part)
	}
}

// However a log is cut, it gives the same file, which gives the same values, also byte by byte.
func TestTheSameThreadGivesTheSameFile(t *testing.T) {
	t.Parallel()
	file := write(t, sample(1))
	for _, cut := range []int{2, 3, 5, 12} {
		if other := write(t, sample(cut)); !bytes.Equal(file, other) {
			t.Errorf("cut into %d: another file", cut)
		}
	}
	parts, err := read(iotest.OneByteReader(bytes.NewReader(file)))
	if err != nil || len(parts) != 6 {
		t.Fatalf("%d parts: %v", len(parts), err)
	}
	for i, last := range []uint64{4, 8, 12} { // as they were committed
		s := parts[i+1].(*store.Segment)
		if s.LastVersion != last || s.NextOffset != last || s.RunID != "r" || !s.CommittedAt.Equal(noon.Add(time.Duration(i)*time.Second)) {
			t.Errorf("segment %+v", s)
		}
	}
	run, warning := parts[4].(*store.Run), parts[5].(*store.Warning)
	if string(run.Result) != `"\ud800"` || run.InputHash != [32]byte{1} || !run.StartedAt.Equal(noon) || !run.EndedAt.IsZero() || run.Outcome != nil {
		t.Errorf("run %+v", run)
	}
	if warning.Path != "/\xed\xa0\x80" || string(warning.Removed) != `1e400` {
		t.Errorf("warning %+v", warning)
	}
}

// Whatever is cut off, altered or put elsewhere is found.
func TestWhatIsNotWholeIsFound(t *testing.T) {
	t.Parallel()
	file := write(t, sample(4))
	for n := range file {
		if _, err := read(bytes.NewReader(file[:n])); !errors.Is(err, archive.ErrInvalid) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
		altered := bytes.Clone(file)
		altered[n] ^= 1 << (n % 8)
		if _, err := read(bytes.NewReader(altered)); !errors.Is(err, archive.ErrInvalid) {
			t.Fatalf("byte %d altered: %v", n, err)
		}
	}
	if _, err := read(bytes.NewReader(append(bytes.Clone(file), 'H'))); !errors.Is(err, archive.ErrInvalid) {
		t.Errorf("something follows: %v", err)
	}
	if _, err := archive.NewReader(bytes.NewReader(file), 10).Next(); !errors.Is(err, archive.ErrInvalid) {
		t.Errorf("a frame that is too large: %v", err)
	}
	broken := errors.New("broken")
	if _, err := read(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("an error of the reader: %v", err)
	}
	unreadable := []store.Segment{{FirstVersion: 1, LastVersion: 2, Err: broken}}
	var out bytes.Buffer
	w, _ := archive.NewWriter(&out, archive.Head{})
	if err := w.Segment(&unreadable[0], 2); !errors.Is(err, broken) {
		t.Errorf("a segment that cannot be read was written: %v", err)
	}
}
