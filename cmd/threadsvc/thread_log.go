package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/threadsvc/threadsvc/client"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

func newThreadLog(flags *threadFlags) *cobra.Command {
	var from uint64
	var limit int
	var follow bool
	c := &cobra.Command{Use: "log THREAD", Short: "Show a thread's log, one line for each entry", Args: cobra.ExactArgs(1)}
	c.Flags().Uint64Var(&from, "from", 0, "first `version` (default where the log begins)")
	c.Flags().IntVar(&limit, "limit", 0, "`number` of entries at most, 0 for all")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what comes, until interrupted (default false)")
	flags.runs(c, func(ctx context.Context, c *threadCall, args []string) error {
		if limit < 0 {
			return c.usage(errLimit)
		}
		// A server that is not there is told at once; one that goes away later is waited for.
		resp, err := c.api.GetThread(ctx, &threadsvcv1.GetThreadRequest{Thread: c.name(args[0])})
		if err != nil {
			return err
		}
		first := from
		if first == 0 {
			first = c.logBegin(resp.GetThread())
		}
		read := c.threads.ReadLog
		if follow {
			read = c.threads.Follow
		}
		left := limit
		for record, err := range read(ctx, c.name(args[0]), first) {
			if err != nil {
				return err
			}
			if record.Entry == nil && record.Unreadable == nil {
				continue
			}
			if err := c.record(record); err != nil {
				return err
			}
			if left--; left == 0 {
				break
			}
		}
		return c.out.err
	})
	c.PreRun = func(c *cobra.Command, _ []string) {
		if follow && !c.Flags().Changed("timeout") {
			flags.timeout = 0
		}
	}
	return c
}

// record writes one line of the log.
func (c *threadCall) record(record client.Record) error {
	view := entryView{}
	if u := record.Unreadable; u != nil {
		view.Version, view.UnreadableTo = u.GetFirstVersion(), u.GetLastVersion()
	} else {
		view = viewEntry(record.Entry)
	}
	if c.json {
		return c.out.json(view)
	}
	c.out.entry(&view)
	return c.out.err
}

// logColumns are the widths of version, time, run and type. They are fixed, since a log is written as it comes.
var logColumns = []int{6, 23, 12, 26, 0}

// entry writes an entry of the log.
func (s *screen) entry(e *entryView) {
	if e.UnreadableTo > 0 {
		s.line(styled(red, "%d-%d cannot be read", e.Version, e.UnreadableTo))
		return
	}
	what, style := e.Type, ""
	switch {
	case what == "" || e.Kind != "event":
		what, style = strings.TrimSuffix(strings.ToUpper(e.Kind)+" "+e.Type, " "), bold
	case strings.HasPrefix(what, "RUN_"):
		style = bold
	}
	text := summary(e.Payload, s.width-75)
	if e.Inert {
		text = "(changed nothing) " + text
	}
	s.padded(logColumns, []cell{plain("%6d", e.Version), {dim, when(*e.CommitTime)}, {"", short(e.Run, 0, 12)}, {style, short(what, 0, 26)}, {"", text}})
}

// redundant are the members of a payload that are shown otherwise.
var redundant = map[string]bool{"type": true, "threadId": true, "runId": true, "timestamp": true}

// summary is what a payload says, in one line: its members in their order, each cut.
func summary(payload []byte, width int) string {
	width = max(width, 30)
	decoder := json.NewDecoder(bytes.NewReader(payload))
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return short(string(payload), uint64(len(payload)), width)
	}
	var parts []string
	for decoder.More() {
		name, err := decoder.Token()
		var value json.RawMessage
		if err != nil || decoder.Decode(&value) != nil {
			break
		}
		if text := fmt.Sprint(name); !redundant[text] {
			parts = append(parts, member(text, value, width))
		}
	}
	return short(strings.Join(parts, "  "), 0, width)
}

// member is one member of a payload: identifiers without quotes, messages as what was said last, patches as their operations, the rest as JSON.
func member(name string, value json.RawMessage, width int) string {
	var id string
	if strings.HasSuffix(name, "Id") && json.Unmarshal(value, &id) == nil {
		return name + "=" + short(id, 0, 40)
	}
	var messages []json.RawMessage
	if name == "messages" && json.Unmarshal(value, &messages) == nil && len(messages) > 0 {
		last := messages[len(messages)-1]
		said := (&valueView{Value: last, Size: uint64(len(last))}).said(width)
		if len(messages) == 1 {
			return said
		}
		return fmt.Sprintf("%d messages, the last: %s", len(messages), said)
	}
	var ops []struct{ Op, Path string }
	if json.Unmarshal(value, &ops) == nil && len(ops) > 0 && ops[0].Op != "" {
		var all []string
		for _, op := range ops {
			all = append(all, op.Op+" "+op.Path)
		}
		return short(strings.Join(all, ", "), 0, width)
	}
	return name + "=" + short(string(value), uint64(len(value)), max(width/2, 24))
}
