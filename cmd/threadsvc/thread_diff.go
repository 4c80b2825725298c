package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/spf13/cobra"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// diffView is a difference; messages have before, after, or both.
type diffView struct {
	FromVersion uint64              `json:"from_version"`
	ToVersion   uint64              `json:"to_version"`
	StatePatch  json.RawMessage     `json:"state_patch"`
	Messages    []messageChangeView `json:"messages"`
}

// messageChangeView is how one message differs.
type messageChangeView struct {
	ID     string     `json:"message"`
	Before *valueView `json:"before,omitempty"`
	After  *valueView `json:"after,omitempty"`
}

func newThreadDiff(flags *threadFlags) *cobra.Command {
	c := &cobra.Command{Use: "diff THREAD FROM [TO]", Short: "Show how state and messages differ between two moments", Args: cobra.RangeArgs(2, 3)}
	return flags.runs(c, func(ctx context.Context, c *threadCall, args []string) error {
		from, to, err := c.moments(args[1], append(args, "")[2])
		if err != nil {
			return err
		}
		if from == nil { // an absent FROM is the beginning, to the service
			if from, err = c.present(ctx, args[0]); err != nil {
				return err
			}
		}
		view, err := readDiff(ctx, c.history, &threadsvcv1.DiffContextRequest{Thread: c.name(args[0]), From: from, To: to})
		if err != nil {
			return err
		}
		if c.json {
			return c.out.json(view)
		}
		return c.showDiff(ctx, args[0], view)
	})
}

// showDiff writes a difference for people, who want to see what was as well: the patch has only what is to be.
func (c *threadCall) showDiff(ctx context.Context, id string, view *diffView) error {
	before, err := c.state(ctx, id, atVersion(view.FromVersion), "/")
	if err != nil {
		return err
	}
	after, err := c.state(ctx, id, atVersion(view.ToVersion), "/")
	if err != nil {
		return err
	}
	c.out.diff(view, before, after)
	return c.out.err
}

func atVersion(version uint64) *threadsvcv1.Moment {
	return &threadsvcv1.Moment{At: &threadsvcv1.Moment_Version{Version: version}}
}

// present is the thread's version now, as a moment.
func (c *threadCall) present(ctx context.Context, id string) (*threadsvcv1.Moment, error) {
	resp, err := c.api.GetThread(ctx, &threadsvcv1.GetThreadRequest{Thread: c.name(id)})
	return atVersion(resp.GetThread().GetVersion()), err
}

// readDiff reads a whole difference. One that breaks off is an error.
func readDiff(ctx context.Context, history threadsvcv1.HistoryServiceClient, req *threadsvcv1.DiffContextRequest) (*diffView, error) {
	stream, err := history.DiffContext(ctx, req)
	if err != nil {
		return nil, err
	}
	var info *threadsvcv1.DiffInfo
	view := &diffView{Messages: []messageChangeView{}}
	for {
		msg, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		switch part := msg.GetPart().(type) {
		case *threadsvcv1.DiffContextResponse_Info:
			info = part.Info
		case *threadsvcv1.DiffContextResponse_StatePatchChunk:
			view.StatePatch = append(view.StatePatch, part.StatePatchChunk...)
		case *threadsvcv1.DiffContextResponse_Message:
			m := part.Message
			view.Messages = append(view.Messages, messageChangeView{m.GetMessageId(), viewValue(m.GetBefore()), viewValue(m.GetAfter())})
		}
	}
	view.FromVersion, view.ToVersion = info.GetFromVersion(), info.GetToVersion()
	if uint64(len(view.StatePatch)) != info.GetStatePatchSize() || uint64(len(view.Messages)) != info.GetMessages() {
		return nil, io.ErrUnexpectedEOF
	}
	return view, nil
}

// Signs of what was added, removed and changed, with their styles.
var (
	added   = cell{green, "  + "}
	removed = cell{red, "  - "}
	changed = cell{yellow, "  ~ "}
)

// diff writes a difference, with the states at its two ends.
func (s *screen) diff(d *diffView, before, after []byte) {
	s.line(styled(bold, "version %d → %d", d.FromVersion, d.ToVersion))
	changes := compareValues("", before, after, nil)
	s.line(cell{"", "state" + nothing(len(changes))})
	for i := range changes {
		s.value(&changes[i])
	}
	s.line(cell{"", "messages" + nothing(len(d.Messages))})
	for i := range d.Messages {
		s.message(&d.Messages[i])
	}
}

func nothing(n int) string {
	if n == 0 {
		return ": no difference"
	}
	return ""
}

// value writes how one value differs. The path of the whole state is empty.
func (s *screen) value(v *valueChange) {
	path := v.path
	if path == "" {
		path = "(whole state)"
	}
	width := max(s.width-len(path)-8, 20)
	text := func(value []byte, width int) string { return short(string(value), uint64(len(value)), width) }
	switch {
	case v.before == nil:
		s.line(added, cell{bold, path}, plain("  %s", text(v.after, width)))
	case v.after == nil:
		s.line(removed, cell{bold, path}, plain("  %s", text(v.before, width)))
	default:
		s.line(changed, cell{bold, path}, plain("  %s → %s", text(v.before, width/2), text(v.after, width/2)))
	}
}

// message writes how a message differs: what was, and what is.
func (s *screen) message(m *messageChangeView) {
	width := s.width - len(m.ID) - 8
	switch {
	case m.Before == nil:
		s.line(added, cell{bold, m.ID}, plain("  %s", m.After.said(width)))
	case m.After == nil:
		s.line(removed, cell{bold, m.ID}, plain("  %s", m.Before.said(width)))
	default:
		s.line(changed, cell{bold, m.ID})
		s.line(cell{red, "      - "}, cell{"", m.Before.text(s.width - 10)})
		s.line(cell{green, "      + "}, cell{"", m.After.text(s.width - 10)})
	}
}

// said is a message for people: who, and what; as JSON if it has no content of text.
func (v *valueView) said(width int) string {
	var m struct {
		Role    string
		Content *string
	}
	if json.Unmarshal(v.Value, &m) != nil || m.Content == nil {
		return v.text(width)
	}
	text := m.Role + ": " + *m.Content
	return short(text, uint64(len(text)), width)
}
