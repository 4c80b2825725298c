package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/threadsvc/threadsvc/store"
)

// verifyBar shows in one line of a terminal how far a verification is; on anything else it shows nothing. Threads are
// verified in the order of their keys, which are spread evenly, so the key of one says how many are done.
type verifyBar struct {
	out   io.Writer // nil if nothing is shown
	shown time.Time
	most  float64
}

func newVerifyBar(out io.Writer) *verifyBar {
	if file, ok := out.(*os.File); ok {
		if info, err := file.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return &verifyBar{out: out}
		}
	}
	return &verifyBar{}
}

// show says that a thread is done. It writes five times a second at most.
func (b *verifyBar) show(key store.Key, threads, entries uint64) {
	b.most = max(b.most, float64(binary.BigEndian.Uint64(key[:8]))/math.MaxUint64)
	if b.out == nil || time.Since(b.shown) < 200*time.Millisecond {
		return
	}
	b.shown = time.Now()
	fmt.Fprint(b.out, "\r\x1b[K", b.line(threads, entries))
}

func (b *verifyBar) line(threads, entries uint64) string {
	const width = 30
	full := int(b.most * width)
	return fmt.Sprintf("verifying  [%s%s] %d%%  %d threads, %d entries", strings.Repeat("#", full), strings.Repeat(".", width-full),
		int(b.most*100), threads, entries)
}

// clear removes the line, so that something else can be written.
func (b *verifyBar) clear() {
	if b.out != nil && !b.shown.IsZero() {
		fmt.Fprint(b.out, "\r\x1b[K")
	}
}

// end removes the line for good.
func (b *verifyBar) end() { b.clear() }
