package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// plainWidth is the width of what is no terminal, in characters.
const plainWidth = 120

// screen is where people read. Whatever is written to it has been made visible first (see visible), so that nothing stored
// in a thread can command a terminal.
type screen struct {
	w        io.Writer
	colour   bool
	terminal bool
	width    int
	now      time.Time
	err      error // of the first write that failed
}

func newScreen(w io.Writer) *screen {
	s := &screen{w: w, width: plainWidth, now: time.Now(), terminal: onTerminal(w)}
	if s.terminal {
		file := w.(*os.File)
		s.colour = isTerminal(file)
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			s.width = max(width, 60)
		}
	}
	return s
}

// cell is a piece of text in a style (empty: plain).
type cell struct{ style, text string }

func plain(format string, args ...any) cell { return cell{"", fmt.Sprintf(format, args...)} }

func styled(style, format string, args ...any) cell { return cell{style, fmt.Sprintf(format, args...)} }

// line writes cells next to each other, as one line.
func (s *screen) line(cells ...cell) { s.padded(nil, cells) }

// padded writes cells as a line, each but the last filled up to its width and followed by two spaces.
func (s *screen) padded(widths []int, cells []cell) {
	var b strings.Builder
	for i, c := range cells {
		text := visible(c.text)
		pad := ""
		if widths != nil && i < len(cells)-1 {
			pad = strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(text))+2)
		}
		if s.colour && c.style != "" && text != "" {
			text = "\x1b[" + c.style + "m" + text + "\x1b[0m"
		}
		b.WriteString(text + pad)
	}
	s.write(strings.TrimRight(b.String(), " ") + "\n")
}

func (s *screen) write(text string) {
	if _, err := io.WriteString(s.w, text); s.err == nil {
		s.err = err
	}
}

// table writes rows in columns. The first row is the heading.
func (s *screen) table(rows [][]cell) {
	var widths []int
	for _, row := range rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(visible(c.text)))
		}
	}
	for _, row := range rows {
		s.padded(widths, row)
	}
}

func heading(names ...string) []cell {
	row := make([]cell, len(names))
	for i, name := range names {
		row[i] = cell{dim, name}
	}
	return row
}

// json writes a value as one line of JSON. What could command a terminal is escaped, which leaves its meaning as it is.
func (s *screen) json(value any) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	s.write(visibleJSON(strings.TrimSuffix(b.String(), "\n")) + "\n")
	return s.err
}

// hidden tells whether a character does not show as itself: controls (C0, DEL and C1), line separators, and those that
// format, such as the ones that turn the direction of text. The joiner of emoji is left alone.
func hidden(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Cf, r) && r != '\u200d'
}

// visible writes hidden characters, and bytes that are none, as the escapes of a Go string.
func visible(text string) string {
	if utf8.ValidString(text) && strings.IndexFunc(text, hidden) < 0 {
		return text
	}
	var b strings.Builder
	for i, size := 0, 0; i < len(text); i += size {
		var r rune
		r, size = utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && size == 1 || hidden(r) {
			quoted := strconv.QuoteToASCII(text[i : i+size])
			b.WriteString(quoted[1 : len(quoted)-1])
			continue
		}
		b.WriteString(text[i : i+size])
	}
	return b.String()
}

// visibleJSON escapes hidden characters in a JSON text. They can only be in strings, once white space is gone.
func visibleJSON(text string) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	if strings.IndexFunc(text, hidden) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case !hidden(r):
			b.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// short cuts a text to a number of characters; what is cut has the size of the whole behind it, unless that is 0.
func short(text string, size uint64, width int) string {
	text = visible(text)
	if utf8.RuneCountInString(text) <= width && uint64(len(text)) >= size {
		return text
	}
	mark := "…"
	if size > 0 {
		mark = "… (" + bytesText(size) + ")"
	}
	runes := []rune(text)
	return string(runes[:min(len(runes), max(width-utf8.RuneCountInString(mark), 8))]) + mark
}

// bytesText is a number of bytes for people.
func bytesText(n uint64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}

// when is a time in local time, to the millisecond.
func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05.000")
}

// ago is how long before now a time was, or how long after.
func (s *screen) ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	d := s.now.Sub(t)
	if d < 0 {
		return "in " + span(-d)
	}
	return span(d) + " ago"
}

func span(d time.Duration) string {
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}} {
		if d >= unit.size {
			return fmt.Sprintf("%d%s", d/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%ds", d/time.Second)
}
