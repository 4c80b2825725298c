package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// MaxSSEEvent bounds one event of a text/event-stream, in bytes; that is also the largest event a server accepts unless it
// was told otherwise.
const MaxSSEEvent = 4 << 20

// ErrSSETooLarge is returned for an event of more than MaxSSEEvent bytes.
var ErrSSETooLarge = errors.New("threadsvc: an event of the event stream is too large")

// AppendSSE appends the events of a text/event-stream body, as AG-UI agents answer with: the data of each. It returns
// when the body ends. A body that breaks off within an event is io.ErrUnexpectedEOF, after the events before it were
// appended; one that ends right after a complete event, without the empty line, is in order. Reading obeys the body, not
// the context: that of an HTTP response ends with the context of its request.
func (w *Writer) AppendSSE(ctx context.Context, body io.Reader) error {
	events := newSSEReader(body, MaxSSEEvent)
	for {
		event, err := events.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = w.Append(ctx, event)
		}
		if err != nil {
			return err
		}
	}
}

// sseReader reads a text/event-stream as the HTML standard defines it (9.2.6): lines end with CRLF, LF or CR; those that
// begin with a colon are comments; the data lines of an event are joined; an empty line ends it. Other fields do not matter
// here. Events without data are passed over.
type sseReader struct {
	r     *bufio.Reader
	limit int

	line    []byte
	afterCR bool // the last line ended with CR, and an LF that follows belongs to it
	started bool // the first line was read
}

func newSSEReader(r io.Reader, limit int) *sseReader {
	return &sseReader{r: bufio.NewReaderSize(r, 64<<10), limit: limit}
}

// next returns the data of the next event, io.EOF after the last.
func (s *sseReader) next() ([]byte, error) {
	var data []byte
	lines := 0
	for {
		err := s.readLine()
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if value, ok := dataOf(s.line); ok {
			if len(data)+len(value) > s.limit {
				return nil, fmt.Errorf("%w: more than %d bytes", ErrSSETooLarge, s.limit)
			}
			if lines++; lines > 1 {
				data = append(data, '\n')
			}
			data = append(data, value...)
		}
		switch {
		case err != nil:
			return lastEvent(data, len(s.line) > 0 && s.line[0] != ':')
		case len(s.line) == 0 && len(data) > 0:
			return data, nil
		case len(s.line) == 0:
			lines = 0
		}
	}
}

// lastEvent is what the end of the body leaves. An object that is cut off is not valid JSON.
func lastEvent(data []byte, cut bool) ([]byte, error) {
	switch {
	case len(data) == 0 && !cut:
		return nil, io.EOF
	case json.Valid(data):
		return data, nil
	}
	return nil, io.ErrUnexpectedEOF
}

// dataOf is the value of a data line.
func dataOf(line []byte) ([]byte, bool) {
	value, ok := bytes.CutPrefix(line, []byte("data"))
	if !ok || len(value) > 0 && value[0] != ':' {
		return nil, false
	}
	value = bytes.TrimPrefix(value, []byte(":"))
	return bytes.TrimPrefix(value, []byte(" ")), true
}

// readLine reads a line, without its end, into s.line. If the body ends first that is io.EOF.
func (s *sseReader) readLine() error {
	s.line = s.line[:0]
	for {
		if _, err := s.r.Peek(1); err != nil {
			return err
		}
		chunk, _ := s.r.Peek(s.r.Buffered())
		if s.afterCR && chunk[0] == '\n' {
			s.afterCR = false
			_, _ = s.r.Discard(1)
			continue
		}
		s.afterCR = false
		end := bytes.IndexAny(chunk, "\r\n")
		if end < 0 {
			s.line = append(s.line, chunk...)
			_, _ = s.r.Discard(len(chunk))
		} else {
			s.line = append(s.line, chunk[:end]...)
			s.afterCR = chunk[end] == '\r'
			_, _ = s.r.Discard(end + 1)
		}
		if len(s.line) > s.limit+len("data: ") {
			return fmt.Errorf("%w: a line of more than %d bytes", ErrSSETooLarge, s.limit)
		}
		if end >= 0 {
			s.dropBOM()
			return nil
		}
	}
}

// dropBOM takes the byte order mark from the first line.
func (s *sseReader) dropBOM() {
	if !s.started {
		s.line = bytes.TrimPrefix(s.line, []byte("\ufeff"))
	}
	s.started = true
}
