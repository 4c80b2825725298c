package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

func newThreadShow(flags *threadFlags) *cobra.Command {
	var runs int
	c := &cobra.Command{Use: "show THREAD", Short: "Show where a thread stands: head, lease, last runs, what is open", Args: cobra.ExactArgs(1)}
	c.Flags().IntVar(&runs, "runs", 5, "`number` of runs that are shown, 1 to 500")
	return flags.runs(c, func(ctx context.Context, c *threadCall, args []string) error {
		if runs < 1 || runs > 500 {
			return c.usage(fmt.Errorf("--runs is %d, want 1 to 500", runs))
		}
		view, err := c.show(ctx, c.name(args[0]), runs)
		if err != nil {
			return err
		}
		if c.json {
			return c.out.json(view)
		}
		c.out.thread(view)
		return c.out.err
	})
}

// show reads where a thread stands. Its parts are read one after the other: a thread at work may be further in later ones.
func (c *threadCall) show(ctx context.Context, name *threadsvcv1.ThreadName, runs int) (*showView, error) {
	resp, err := c.api.GetThread(ctx, &threadsvcv1.GetThreadRequest{Thread: name})
	if err != nil {
		return nil, err
	}
	last, err := c.api.ListRuns(ctx, &threadsvcv1.ListRunsRequest{Thread: name, PageSize: int32(runs)})
	if err != nil {
		return nil, err
	}
	size, err := c.stateSize(ctx, name)
	if err != nil {
		return nil, err
	}
	t := resp.GetThread()
	view := &showView{
		threadView: viewThread(t), FirstVersion: t.GetFirstVersion(), Messages: t.GetMessageCount(), ContextBytes: t.GetContextSize(), StateBytes: size,
		PendingToolCalls: append([]string{}, t.GetPendingToolCalls()...), OpenInterrupts: []json.RawMessage{}, LastRuns: []runView{}, Undone: [][2]uint64{},
	}
	for _, interrupt := range t.GetOpenInterrupts() {
		view.OpenInterrupts = append(view.OpenInterrupts, viewJSON(interrupt))
	}
	for _, r := range last.GetRuns() {
		view.LastRuns = append(view.LastRuns, viewRun(r))
		view.Warnings += r.GetWarningCount()
	}
	if due := t.GetStateResyncDue(); due != nil {
		view.ResyncDue = &resyncView{due.GetSinceVersion(), due.GetLostEvents()}
	}
	for _, u := range t.GetUndone() {
		view.Undone = append(view.Undone, [2]uint64{u.GetFirstVersion(), u.GetLastVersion()})
	}
	if o := t.GetOrigin(); o != nil {
		view.Origin = &originView{o.GetThreadId(), o.GetVersion()}
	}
	return view, nil
}

// stateSize asks for the state, and leaves when its size is known.
func (c *threadCall) stateSize(ctx context.Context, name *threadsvcv1.ThreadName) (uint64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.history.GetState(ctx, &threadsvcv1.GetStateRequest{Thread: name})
	if err != nil {
		return 0, err
	}
	first, err := stream.Recv()
	return first.GetInfo().GetSize(), err
}

// thread writes all of show.
func (s *screen) thread(t *showView) {
	s.field("thread", cell{bold, t.Thread})
	if t.Tenant != "" {
		s.field("tenant", cell{"", t.Tenant})
	}
	s.field("version", plain("%d", t.Version), styled(dim, "   log %.16s", t.LogHash))
	if t.FirstVersion > 0 {
		s.field("pruned", plain("version %d is the first moment that can be read, the log begins with %d", t.FirstVersion, t.FirstVersion+1))
	}
	s.field("created", cell{"", when(t.CreateTime)}, styled(dim, "   %s", s.ago(t.CreateTime)))
	s.field("holds", plain("%s, state %s, together %s", count(int(t.Messages), "message"), bytesText(t.StateBytes), bytesText(uint64(t.ContextBytes))))
	if text := t.metadata(s.width - 14); text != "" {
		s.field("metadata", cell{"", text})
	}
	if o := t.Origin; o != nil {
		s.field("forked", plain("from %s at version %d", o.Thread, o.Version))
	}
	if due := t.ResyncDue; due != nil {
		s.field("snapshot", styled(yellow, "is due: the state lacks %s, lost since version %d", count(int(due.Lost), "change"), due.Since))
	}
	for _, u := range t.Undone {
		s.field("undone", plain("versions %d-%d, by a rewind", u[0], u[1]))
	}
	if t.LeaseExpires != nil && t.ActiveRun != "" {
		s.field("lease", cell{yellow, t.ActiveRun}, plain(" until %s, %s", when(*t.LeaseExpires), s.ago(*t.LeaseExpires)))
	} else {
		s.field("lease", cell{dim, "none: no run is active"})
	}
	s.open(t)
	s.runs(t)
}

func (s *screen) field(label string, cells ...cell) {
	s.line(append([]cell{{dim, fmt.Sprintf("%-10s", label)}}, cells...)...)
}

// open writes what the next run has to answer.
func (s *screen) open(t *showView) {
	if len(t.PendingToolCalls) > 0 {
		s.field("unanswered", cell{yellow, short(strings.Join(t.PendingToolCalls, ", "), 0, s.width-14)})
	}
	for _, text := range t.OpenInterrupts {
		s.field("interrupt", cell{yellow, short(string(text), uint64(len(text)), s.width-14)})
	}
	if t.Warnings > 0 {
		s.field("warnings", styled(yellow, "%d in the runs below", t.Warnings))
	}
}

// runs writes the table of runs, newest first.
func (s *screen) runs(t *showView) {
	if len(t.LastRuns) == 0 {
		return
	}
	rows := [][]cell{heading("RUN", "STATUS", "VERSIONS", "STARTED", "TOOK", "WARNINGS")}
	for _, r := range t.LastRuns {
		last, took := "…", "-"
		if r.EndTime != nil {
			last, took = fmt.Sprint(r.LastVersion), fmt.Sprintf("%.1fs", r.EndTime.Sub(r.StartTime).Seconds())
		}
		rows = append(rows, []cell{{bold, short(r.Run, 0, 40)}, {runStyle(r.Status), r.Status}, plain("%d-%s", r.FirstVersion, last),
			{"", when(r.StartTime)}, {"", took}, plain("%d", r.Warnings)})
	}
	s.line()
	s.table(rows)
}

func runStyle(status string) string {
	switch status {
	case "FINISHED":
		return green
	case "FAILED", "TRUNCATED":
		return red
	}
	return yellow
}
