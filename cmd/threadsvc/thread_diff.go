package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

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
		return c.out.diff(view)
	})
}

// present is the thread's version now, as a moment.
func (c *threadCall) present(ctx context.Context, id string) (*threadsvcv1.Moment, error) {
	resp, err := c.api.GetThread(ctx, &threadsvcv1.GetThreadRequest{Thread: c.name(id)})
	return &threadsvcv1.Moment{At: &threadsvcv1.Moment_Version{Version: resp.GetThread().GetVersion()}}, err
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

// diff writes a difference.
func (s *screen) diff(d *diffView) error {
	s.line(styled(bold, "version %d → %d", d.FromVersion, d.ToVersion))
	var patch []patchOperation
	if err := json.Unmarshal(d.StatePatch, &patch); err != nil {
		return fmt.Errorf("the patch of the state: %w", err)
	}
	s.line(cell{"", "state" + nothing(len(patch))})
	for i := range patch {
		s.operation(&patch[i])
	}
	s.line(cell{"", "messages" + nothing(len(d.Messages))})
	for i := range d.Messages {
		s.message(&d.Messages[i])
	}
	return s.err
}

func nothing(n int) string {
	if n == 0 {
		return ": no difference"
	}
	return ""
}

// patchOperation is an operation of a JSON Patch.
type patchOperation struct {
	Op, Path, From string
	Value          json.RawMessage
}

// operation writes one operation. The path of the whole state is empty.
func (s *screen) operation(op *patchOperation) {
	path, sign := op.Path, changed
	if path == "" {
		path = "(whole state)"
	}
	text := short(string(op.Value), uint64(len(op.Value)), s.width-len(path)-8)
	switch op.Op {
	case "add":
		sign = added
	case "remove":
		sign = removed
	case "move", "copy":
		text = op.Op + " from " + op.From
	}
	s.line(sign, cell{bold, path}, plain("  %s", text))
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
	return short(strings.TrimSpace(m.Role+": "+*m.Content), 0, width)
}
