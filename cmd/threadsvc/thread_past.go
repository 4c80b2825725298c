package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

func newThreadChanges(flags *threadFlags) *cobra.Command {
	var limit int
	var pruned uint64
	var from, to string
	c := &cobra.Command{Use: "changes THREAD POINTER", Short: "List what changed a value of the state, newest first", Args: cobra.ExactArgs(2)}
	c.Flags().IntVar(&limit, "limit", 50, "`number` of changes at most, 0 for all")
	c.Flags().StringVar(&from, "from", "", "only changes after this `moment` (default all)")
	c.Flags().StringVar(&to, "to", "", "only changes up to this `moment` (default now)")
	return flags.runs(c, func(ctx context.Context, c *threadCall, args []string) error {
		if limit < 0 {
			return c.usage(errLimit)
		}
		begin, end, err := c.moments(from, to)
		if err != nil {
			return err
		}
		rows := [][]cell{heading("VERSION", "TIME", "RUN", "BY", "OPERATION", "FROM", "TO")}
		more, err := pages(limit, func(size int32, token string) ([]*threadsvcv1.StateChange, string, error) {
			resp, err := c.history.ListStateChanges(ctx, &threadsvcv1.ListStateChangesRequest{
				Thread: c.name(args[0]), Pointer: args[1], From: begin, To: end, PageSize: size, PageToken: token})
			pruned = resp.GetPrunedVersion()
			return resp.GetChanges(), resp.GetNextPageToken(), err
		}, func(change *threadsvcv1.StateChange) error {
			view := viewChange(change)
			if c.json {
				return c.out.json(view)
			}
			rows = append(rows, c.out.change(&view))
			return nil
		})
		if err != nil {
			return err
		}
		if !c.json {
			c.out.table(rows)
			c.more(more, limit)
		}
		return c.prunedChanges(pruned)
	})
}

// sourceCells are the columns of an entry that something comes from.
func sourceCells(e *sourceView) []cell {
	if e == nil {
		return []cell{{dim, "0"}, {dim, "-"}, {dim, "-"}, {dim, "(as it began)"}}
	}
	by := e.Type
	if by == "" || e.Kind != "event" {
		by = e.Kind
	}
	run := e.Run
	if run == "" {
		run = "-"
	}
	return []cell{plain("%d", e.Version), {dim, when(e.CommitTime)}, {"", short(run, 0, 20)}, {"", by}}
}

// change is a row of changes.
func (s *screen) change(v *changeView) []cell {
	operation := v.Operation
	if v.PathBefore != v.Path && v.PathBefore != "" {
		operation += " from " + short(v.PathBefore, 0, 24)
	}
	return append(sourceCells(v.Source), cell{"", operation}, cell{red, v.Before.text(36)}, cell{green, v.After.text(36)})
}

func newThreadBlame(flags *threadFlags) *cobra.Command {
	var limit int
	var at string
	c := &cobra.Command{Use: "blame THREAD [POINTER]", Short: "Show for each value of the state which entry gave it", Args: cobra.RangeArgs(1, 2)}
	c.Flags().IntVar(&limit, "limit", 500, "`number` of values at most, 0 for all")
	c.Flags().StringVar(&at, "at", "", "the state at this `moment` (default now)")
	return flags.runs(c, func(ctx context.Context, c *threadCall, args []string) error {
		if limit < 0 {
			return c.usage(errLimit)
		}
		moment, err := c.moment(at)
		if err != nil {
			return err
		}
		pointer := append(args, "")[1]
		rows := [][]cell{heading("PATH", "VERSION", "TIME", "RUN", "BY", "VALUE")}
		more, err := pages(limit, func(size int32, token string) ([]*threadsvcv1.BlamedLeaf, string, error) {
			resp, err := c.history.BlameState(ctx, &threadsvcv1.BlameStateRequest{
				Thread: c.name(args[0]), Moment: moment, Pointer: pointer, PageSize: size, PageToken: token})
			return resp.GetLeaves(), resp.GetNextPageToken(), err
		}, func(leaf *threadsvcv1.BlamedLeaf) error {
			view := viewLeaf(leaf)
			if c.json {
				return c.out.json(view)
			}
			rows = append(rows, append(append([]cell{{bold, short(view.Path, 0, 40)}}, leafCells(&view)...), cell{"", view.Value.text(40)}))
			return nil
		})
		if err != nil || c.json {
			return err
		}
		c.out.table(rows)
		c.more(more, limit)
		return c.out.err
	})
}

func newThreadContext(flags *threadFlags) *cobra.Command {
	var at string
	var pointer string
	c := &cobra.Command{Use: "context THREAD", Short: "Print what a run is given at a moment, as JSON", Args: cobra.ExactArgs(1)}
	c.Flags().StringVar(&at, "at", "", "`moment` (default now)")
	c.Flags().StringVar(&pointer, "state", "", "only the value at this JSON `pointer` of the state; / is the whole state (default the RunAgentInput)")
	return flags.runs(c, func(ctx context.Context, c *threadCall, args []string) error {
		moment, err := c.moment(at)
		if err != nil {
			return err
		}
		read := func() ([]byte, error) { return c.input(ctx, args[0], moment) }
		if pointer != "" {
			read = func() ([]byte, error) { return c.state(ctx, args[0], moment, pointer) }
		}
		text, err := read()
		if err != nil {
			return err
		}
		shown := string(text)
		if c.out.terminal {
			shown = visibleJSON(shown)
		}
		c.out.write(shown + "\n")
		return c.out.err
	})
}

// input reads a RunAgentInput.
func (c *threadCall) input(ctx context.Context, id string, moment *threadsvcv1.Moment) ([]byte, error) {
	stream, err := c.api.GetContext(ctx, &threadsvcv1.GetContextRequest{Thread: c.name(id), Moment: moment})
	if err != nil {
		return nil, err
	}
	return collect(func() ([]byte, error) {
		msg, err := stream.Recv()
		return msg.GetInputChunk(), err
	})
}

// state reads the state, or a value in it.
func (c *threadCall) state(ctx context.Context, id string, moment *threadsvcv1.Moment, pointer string) ([]byte, error) {
	if pointer == "/" {
		pointer = ""
	}
	stream, err := c.history.GetState(ctx, &threadsvcv1.GetStateRequest{Thread: c.name(id), Moment: moment, Pointer: pointer})
	if err != nil {
		return nil, err
	}
	first, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	if !first.GetInfo().GetFound() {
		return nil, fmt.Errorf("the state of version %d has no value at %q", first.GetInfo().GetVersion(), pointer)
	}
	text, err := collect(func() ([]byte, error) {
		msg, err := stream.Recv()
		return msg.GetChunk(), err
	})
	if err == nil && uint64(len(text)) != first.GetInfo().GetSize() {
		return nil, io.ErrUnexpectedEOF
	}
	return text, err
}
