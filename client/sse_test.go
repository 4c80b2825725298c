package client

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// readSSE reads a whole event stream.
func readSSE(r io.Reader, limit int) (events []string, _ error) {
	reader := newSSEReader(r, limit)
	for {
		event, err := reader.next()
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		events = append(events, string(event))
	}
}

func TestSSE(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body string
		want []string
		err  error
	}{
		"nothing":              {"", nil, nil},
		"one":                  {"data: {\"a\":1}\n\n", []string{`{"a":1}`}, nil},
		"no space":             {"data:{}\n\n", []string{`{}`}, nil},
		"two spaces":           {"data:  {}\n\n", []string{` {}`}, nil},
		"CRLF":                 {"data: 1\r\n\r\ndata: 2\r\n\r\n", []string{"1", "2"}, nil},
		"CR":                   {"data: 1\r\rdata: 2\r\r", []string{"1", "2"}, nil},
		"mixed line ends":      {"data: 1\r\n\ndata: 2\n\r\ndata: 3\r\n\r", []string{"1", "2", "3"}, nil},
		"several data lines":   {"data: {\ndata: \"a\":\ndata: 1}\n\n", []string{"{\n\"a\":\n1}"}, nil},
		"comments and fields":  {": hello\nid: 7\nevent: x\nretry: 10\ndata: 1\n: more\n\n:\n\n", []string{"1"}, nil},
		"no data":              {"event: x\n\ndata\n\ndata:\n\ndata: 1\n\n", []string{"1"}, nil},
		"names that begin so":  {"database: 1\ndata2: 2\nDATA: 3\n\ndata: 4\n\n", []string{"4"}, nil},
		"byte order mark":      {"\ufeffdata: 1\n\n", []string{"1"}, nil},
		"mark in the middle":   {"data: 1\n\n\ufeffdata: 2\n\n", []string{"1"}, nil},
		"many empty lines":     {"\n\n\ndata: 1\n\n\n\n\ndata: 2\n\n\n", []string{"1", "2"}, nil},
		"ends after the event": {"data: 1\n\ndata: {\"a\":2}\n", []string{"1", `{"a":2}`}, nil},
		"ends within the line": {"data: 1\n\ndata: {\"a\":2}", []string{"1", `{"a":2}`}, nil},
		"breaks off":           {"data: 1\n\ndata: {\"a\":", []string{"1"}, io.ErrUnexpectedEOF},
		"breaks off early":     {"data: 1\n\nda", []string{"1"}, io.ErrUnexpectedEOF},
		"breaks off in lines":  {"data: 1\n\ndata: {\ndata: \"a\"", []string{"1"}, io.ErrUnexpectedEOF},
		"ends in a comment":    {"data: 1\n\n: stay", []string{"1"}, nil},
		"as large as allowed":  {"data: " + strings.Repeat("1", 100) + "\n\n", []string{strings.Repeat("1", 100)}, nil},
		"too large":            {"data: 1\n\ndata: " + strings.Repeat("1", 101) + "\n\n", []string{"1"}, ErrSSETooLarge},
		"too large in lines":   {strings.Repeat("data: 12345678901234567890\n", 6) + "\n", nil, ErrSSETooLarge},
		"a line without end":   {strings.Repeat("x", 1<<20), nil, ErrSSETooLarge},
	} {
		for _, reader := range []io.Reader{
			strings.NewReader(c.body), iotest.OneByteReader(strings.NewReader(c.body)), iotest.DataErrReader(strings.NewReader(c.body)),
		} {
			events, err := readSSE(reader, 100)
			if !slices.Equal(events, c.want) || !errors.Is(err, c.err) {
				t.Errorf("%s: %.200q, %v; want %.200q, %v", name, events, err, c.want, c.err)
			}
		}
	}
}

// An event is given out as soon as its empty line has come, also if the body stays open.
func TestSSEDoesNotWait(t *testing.T) {
	t.Parallel()
	body, producer := io.Pipe()
	events := newSSEReader(body, 100)
	for _, text := range []string{"data: 1\n\n", "data: 2\r\n\r", "\ndata: 3\r\r"} {
		written := make(chan struct{})
		go func() {
			defer close(written)
			_, _ = producer.Write([]byte(text))
		}()
		if event, err := events.next(); err != nil || !strings.Contains(text, string(event)) {
			t.Fatalf("after %q came %q, %v", text, event, err)
		}
		<-written
	}
	broken := errors.New("the connection broke")
	_ = producer.CloseWithError(broken)
	if _, err := events.next(); !errors.Is(err, broken) {
		t.Errorf("the end: %v", err)
	}
}

func FuzzSSE(f *testing.F) {
	f.Add([]byte("data: {\"a\":1}\r\n\r\n: c\rdata: 1\ndata: 2\n\n"))
	f.Add([]byte("\ufeffdata\n\nid: 1\rdata:x"))
	f.Fuzz(func(t *testing.T, body []byte) {
		whole, err := readSSE(bytes.NewReader(body), 1000)
		pieces, pieceErr := readSSE(iotest.HalfReader(iotest.OneByteReader(bytes.NewReader(body))), 1000)
		if !slices.Equal(whole, pieces) || (err == nil) != (pieceErr == nil) {
			t.Errorf("%q, %v at once, %q, %v in pieces", whole, err, pieces, pieceErr)
		}
		for _, event := range whole {
			if event == "" || len(event) > 1000+len(body) || strings.ContainsRune(event, '\r') {
				t.Errorf("event %q", event)
			}
		}
	})
}
