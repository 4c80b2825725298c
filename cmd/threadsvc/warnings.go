package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

var errTime = errors.New("--from and --to are times, or times ago")

// warningFlags say which warnings a command is about.
type warningFlags struct {
	code, from, to string
	metadata       map[string]string
	limit          int
	summary        bool
	by             string
}

func newWarnings() *cobra.Command {
	flags, which := &threadFlags{}, &warningFlags{}
	c := &cobra.Command{Use: "warnings", Short: "List a tenant's warnings, the newest first, or count them", Args: cobra.NoArgs}
	f := c.Flags()
	f.StringVar(&which.code, "code", "", "only warnings of this `code`, such as PATCH_NOT_APPLIED (default any)")
	f.StringToStringVar(&which.metadata, "metadata", nil, "only of threads whose metadata have these `name=value` (default any)")
	f.StringVar(&which.from, "from", "", "only those at or after this `moment` (default any; with --summary 7 days before --to)")
	f.StringVar(&which.to, "to", "", "only those before this `moment` (default any)")
	f.IntVar(&which.limit, "limit", 50, "`number` of warnings at most, 0 for all")
	f.BoolVar(&which.summary, "summary", false, "count them by code instead (default false)")
	f.StringVar(&which.by, "by", "", "with --summary: count apart by this `member` of the metadata, such as agent (default none)")
	flags.register(f)
	return flags.runs(c, func(ctx context.Context, c *threadCall, _ []string) error {
		filter, err := which.filter(c)
		if err != nil {
			return err
		}
		if which.summary {
			return c.summarizeWarnings(ctx, which.by, filter)
		}
		return c.listWarnings(ctx, which.limit, filter)
	})
}

func (f *warningFlags) filter(c *threadCall) (*threadsvcv1.WarningFilter, error) {
	if f.limit < 0 {
		return nil, c.usage(errLimit)
	}
	if f.by != "" && !f.summary {
		return nil, c.usage(errors.New("--by goes with --summary"))
	}
	from, err := c.time(f.from)
	if err != nil {
		return nil, err
	}
	to, err := c.time(f.to)
	return &threadsvcv1.WarningFilter{Code: f.code, Metadata: f.metadata, StartTime: from, EndTime: to}, err
}

// time reads a flag that is a time; empty is nil.
func (c *threadCall) time(text string) (*timestamppb.Timestamp, error) {
	m, err := c.moment(text)
	switch {
	case err != nil:
		return nil, err
	case text == "now":
		return timestamppb.New(c.out.now), nil
	case m != nil && m.GetTime() == nil:
		return nil, c.usage(errTime)
	}
	return m.GetTime(), nil
}

// warningView is a warning as --json has it.
type warningView struct {
	Thread  string          `json:"thread"`
	Time    time.Time       `json:"time"`
	Code    string          `json:"code"`
	Path    string          `json:"path"`
	Detail  string          `json:"detail,omitempty"`
	Run     string          `json:"run,omitempty"`
	Version uint64          `json:"version"`
	Offset  uint64          `json:"offset"`
	Fatal   bool            `json:"fatal"`
	Removed json.RawMessage `json:"removed,omitempty"`
}

func viewWarning(w *threadsvcv1.ThreadWarning) warningView {
	of := w.GetWarning()
	return warningView{
		Thread: w.GetThreadId(), Time: of.GetRaiseTime().AsTime(), Code: of.GetCode(), Path: of.GetPath(), Detail: of.GetDetail(),
		Run: of.GetRunId(), Version: of.GetVersion(), Offset: of.GetOffset(), Fatal: of.GetFatal(), Removed: viewJSON(of.GetRemoved()),
	}
}

func (c *threadCall) listWarnings(ctx context.Context, limit int, filter *threadsvcv1.WarningFilter) error {
	rows := [][]cell{heading("TIME", "THREAD", "RUN", "VERSION", "CODE", "PATH")}
	more, err := pages(limit, func(size int32, token string) ([]*threadsvcv1.ThreadWarning, string, error) {
		resp, err := c.api.ListTenantWarnings(ctx, &threadsvcv1.ListTenantWarningsRequest{Tenant: c.tenant, Filter: filter, PageSize: size, PageToken: token})
		return resp.GetWarnings(), resp.GetNextPageToken(), err
	}, func(w *threadsvcv1.ThreadWarning) error {
		view := viewWarning(w)
		if c.json {
			return c.out.json(view)
		}
		rows = append(rows, view.row())
		return nil
	})
	if err != nil || c.json {
		return err
	}
	c.out.table(rows)
	c.more(more, limit)
	return c.out.err
}

func (w *warningView) row() []cell {
	run := "-"
	if w.Run != "" {
		run = short(w.Run, 0, 24)
	}
	return []cell{{"", when(w.Time)}, {bold, short(w.Thread, 0, 40)}, {"", run}, plain("%d", w.Version), {yellow, w.Code}, {dim, short(w.Path, 0, 40)}}
}

// warningGroupView is a group of warnings as --json has it.
type warningGroupView struct {
	Code      string    `json:"code"`
	Value     string    `json:"value,omitempty"`
	Count     int64     `json:"count"`
	Threads   int64     `json:"threads"`
	FirstTime time.Time `json:"first_time"`
	LastTime  time.Time `json:"last_time"`
}

func (c *threadCall) summarizeWarnings(ctx context.Context, by string, filter *threadsvcv1.WarningFilter) error {
	resp, err := c.api.SummarizeWarnings(ctx, &threadsvcv1.SummarizeWarningsRequest{Tenant: c.tenant, Filter: filter, GroupBy: by})
	if err != nil {
		return err
	}
	rows := [][]cell{heading("COUNT", "THREADS", "CODE", "LAST", "FIRST")}
	if by != "" {
		rows[0] = append(rows[0], cell{dim, by})
	}
	for _, g := range resp.GetGroups() {
		view := warningGroupView{g.GetCode(), g.GetValue(), g.GetCount(), g.GetThreads(), g.GetFirstTime().AsTime(), g.GetLastTime().AsTime()}
		if c.json {
			if err := c.out.json(view); err != nil {
				return err
			}
			continue
		}
		row := []cell{styled(bold, "%d", view.Count), plain("%d", view.Threads), {yellow, view.Code}, {"", c.out.ago(view.LastTime)}, {"", c.out.ago(view.FirstTime)}}
		if by != "" {
			row = append(row, cell{"", short(view.Value, 0, 40)})
		}
		rows = append(rows, row)
	}
	if !c.json {
		c.out.table(rows)
	}
	c.bounds(resp)
	return c.out.err
}

// bounds says on standard error, also with --json, that not everything was counted or shown.
func (c *threadCall) bounds(resp *threadsvcv1.SummarizeWarningsResponse) {
	if since := resp.GetCountedSince(); since != nil {
		_, _ = io.WriteString(c.command.ErrOrStderr(), "There are many: counted back to "+when(since.AsTime())+" only. Narrow it down by --code, --from and --to.\n")
	}
	if resp.GetMoreGroups() {
		_, _ = io.WriteString(c.command.ErrOrStderr(), "There are more groups than these, smaller ones.\n")
	}
}
