package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	"github.com/threadsvc/threadsvc/agui"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// lineWidth is the width that the demo's output keeps to, in characters.
const lineWidth = 100

// Styles, as the parameters of the SGR sequence (ECMA-48, 8.3.117).
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
)

// printer lays the demo's output out. Write errors are left to the terminal: there is nobody to tell.
type printer struct {
	w      io.Writer
	colour bool
}

// isTerminal tells whether to use colour on a file: only on a terminal that can, and not against NO_COLOR
// (https://no-color.org).
func isTerminal(f *os.File) bool {
	return term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

func (p *printer) printf(format string, args ...any) { _, _ = fmt.Fprintf(p.w, format, args...) }

func (p *printer) style(style, text string) string {
	if !p.colour || text == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// title prints a heading with its explanation.
func (p *printer) title(name, text string) { p.printf("%s: %s\n\n", p.style(bold, name), text) }

// row prints a labelled line.
func (p *printer) row(label, format string, args ...any) {
	p.printf("  %s %s\n", p.style(dim, fmt.Sprintf("%-10s", label)), fmt.Sprintf(format, args...))
}

// run opens the part of one run.
func (p *printer) run(number int, run *scriptedRun) {
	p.printf("\n%s: %s\n", p.style(bold, fmt.Sprintf("Run %d", number)), run.shows)
	for _, message := range run.messages {
		var m shownMessage
		_ = json.Unmarshal([]byte(message), &m) // the script's own text
		p.row("customer", "%s", m.text())
	}
	if run.statePatch != "" {
		p.row("app", "%s", run.statePatch)
	}
}

// input shows what the agent was given.
func (p *printer) input(input []byte) {
	var in struct{ Messages []json.RawMessage }
	_ = json.Unmarshal(input, &in) // shown, not used
	p.row("agent gets", "a RunAgentInput of %d bytes with %s", len(input), count(len(in.Messages), "message"))
}

// outcome prints the table of one run.
func (p *printer) outcome(sent int, run *threadsvcv1.Run) {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(table, "EVENTS SENT\tLOG ENTRIES\tVERSIONS\tSTATUS\tWARNINGS")
	_, _ = fmt.Fprintf(table, "%d\t%d\t%d-%d\t%s\t%d\n", sent, run.GetLastVersion()-run.GetFirstVersion()+1,
		run.GetFirstVersion(), run.GetLastVersion(), statusName(run.GetStatus()), run.GetWarningCount())
	_ = table.Flush()
	head, values, _ := strings.Cut(strings.TrimSuffix(b.String(), "\n"), "\n")
	p.row("", "%s", p.style(dim, head))
	p.row("outcome", "%s", values)
}

func statusName(s threadsvcv1.RunStatus) string { return strings.TrimPrefix(s.String(), "RUN_STATUS_") }

func (p *printer) warning(w *threadsvcv1.Warning) {
	note := ""
	if w.GetCode() == string(agui.PatchNotApplied) {
		note = "; nothing of the patch was applied"
	}
	p.row("warning", "%s event %d, %s: %s%s", p.style(yellow, w.GetCode()), w.GetOffset(), w.GetPath(), w.GetDetail(), note)
}

// refusal prints an error with its reason and metadata.
func (p *printer) refusal(err error) {
	reason, meta := reasonOf(err)
	p.row("refused", "%s %s: %s", p.style(red, reason), status.Code(err), status.Convert(err).Message())
	for _, name := range slices.Sorted(maps.Keys(meta)) {
		p.row("", "%s = %s", name, meta[name])
	}
}

// reasonOf returns the reason and the metadata of an error's ErrorInfo.
func reasonOf(err error) (string, map[string]string) {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.GetReason(), info.GetMetadata()
		}
	}
	return "", nil
}

// shownMessage is what the demo shows of an AG-UI message.
type shownMessage struct {
	ID, Role, EncryptedValue, ActivityType string
	Content                                json.RawMessage
	ToolCalls                              []struct {
		ID       string
		Function struct{ Name, Arguments string }
	}
}

// text is the content for people: a string without its quotes, anything else as it is.
func (m *shownMessage) text() string {
	var s string
	if json.Unmarshal(m.Content, &s) != nil {
		return string(m.Content)
	}
	return s
}

// messages prints the thread's messages, one line for each message and tool call.
func (p *printer) messages(all []shownMessage) {
	p.printf("\n%s\n", p.style(bold, "The thread's messages"))
	for i := range all {
		m := &all[i]
		label, note := m.Role, ""
		if m.ActivityType != "" {
			note = m.ActivityType + " "
		}
		if m.EncryptedValue != "" {
			note = "(with an encrypted value) "
		}
		p.row(label, "%-9s %s", m.ID, cut(note+m.text(), lineWidth-25))
		for _, call := range m.ToolCalls {
			p.row("", "%-9s %s", call.ID, cut(call.Function.Name+"("+call.Function.Arguments+")", lineWidth-25))
		}
	}
}

// verdict prints one checked claim.
func (p *printer) verdict(name, text string, err error) {
	if err != nil {
		p.printf("  %s %-10s %v\n", p.style(red, "FAIL"), name, err)
		return
	}
	p.printf("  %s   %-10s %s\n", p.style(green, "ok"), name, text)
}

func (p *printer) farewell(took time.Duration) {
	p.printf("\nDone in %s; everything is stopped and removed.\nGo on with README.md; %s runs a server that keeps its data.\n",
		seconds(took), p.style(bold, "threadsvc serve"))
}

// cut shortens a text to a number of characters, on one line.
func cut(text string, width int) string {
	runes := []rune(strings.ReplaceAll(text, "\n", " "))
	if len(runes) <= width {
		return string(runes)
	}
	return string(runes[:width-1]) + "…"
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
