package bench

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// progress shows what is being done in one line of a terminal. On anything else it shows nothing.
type progress struct {
	done atomic.Int64 // events acknowledged

	mu      sync.Mutex
	out     io.Writer // nil if nothing is shown
	before  string
	label   string
	total   int64
	base    int64 // done when the label was set
	started time.Time

	quit chan struct{}
	once sync.Once
	ends sync.WaitGroup
}

func startProgress(out io.Writer) *progress {
	p := &progress{quit: make(chan struct{}), started: time.Now()}
	file, ok := out.(*os.File)
	if !ok {
		return p
	}
	if info, err := file.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return p
	}
	p.out = out
	p.ends.Go(p.run)
	return p
}

func (p *progress) run() {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			fmt.Fprint(p.out, "\r\x1b[K", p.line(time.Now()))
		case <-p.quit:
			fmt.Fprint(p.out, "\r\x1b[K")
			return
		}
	}
}

// line is what is shown at a moment.
func (p *progress) line(now time.Time) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := strings.TrimSpace(p.before + "  " + p.label)
	seconds := now.Sub(p.started).Seconds()
	if p.total == 0 || seconds <= 0 {
		return fmt.Sprintf("%s  %.0f s", text, seconds)
	}
	const width = 30
	done := p.done.Load() - p.base
	full := int(min(width, width*done/p.total))
	return fmt.Sprintf("%s  [%s%s] %d%%  %s events/s", text, strings.Repeat("#", full), strings.Repeat(".", width-full),
		100*done/p.total, number(float64(done)/seconds))
}

// show says what is done now, and how many events that will take; 0 if it cannot be said.
func (p *progress) show(label string, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.label, p.total, p.base, p.started = label, int64(total), p.done.Load(), time.Now()
}

// prefix says which repetition it is.
func (p *progress) prefix(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before = text
}

// stop removes the line. Stopping again does nothing.
func (p *progress) stop() {
	p.once.Do(func() { close(p.quit) })
	p.ends.Wait()
}
