package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

var errLimit = errors.New("--limit is negative")

func newThreadList(flags *threadFlags) *cobra.Command {
	var limit int
	var metadata map[string]string
	c := &cobra.Command{Use: "list", Short: "List the threads of a tenant, the last used first", Args: cobra.NoArgs}
	c.Flags().IntVar(&limit, "limit", 50, "`number` of threads at most, 0 for all")
	c.Flags().StringToStringVar(&metadata, "metadata", nil, "only threads whose metadata have these `name=value` (default any)")
	return flags.runs(c, func(ctx context.Context, c *threadCall, _ []string) error {
		if limit < 0 {
			return c.usage(errLimit)
		}
		rows := [][]cell{heading("THREAD", "VERSION", "RUNS", "LAST RUN", "ACTIVE", "METADATA")}
		more, err := pages(limit, func(size int32, token string) ([]*threadsvcv1.Thread, string, error) {
			resp, err := c.api.ListThreads(ctx, &threadsvcv1.ListThreadsRequest{Tenant: c.tenant, Metadata: metadata, PageSize: size, PageToken: token})
			return resp.GetThreads(), resp.GetNextPageToken(), err
		}, func(t *threadsvcv1.Thread) error {
			view := viewThread(t)
			if c.json {
				return c.out.json(view)
			}
			rows = append(rows, c.out.threadRow(&view))
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

// threadRow is a thread in a list.
func (s *screen) threadRow(t *threadView) []cell {
	active := cell{dim, "-"}
	if t.ActiveRun != "" {
		active = cell{yellow, short(t.ActiveRun, 0, 24)}
	}
	return []cell{{bold, short(t.Thread, 0, 40)}, plain("%d", t.Version), plain("%d", t.Runs), {"", s.ago(t.LastRunTime)}, active,
		{dim, t.metadata(40)}}
}
