package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

func newThreadFork(flags *threadFlags) *cobra.Command {
	var at, metadata string
	c := &cobra.Command{Use: "fork THREAD NEW", Short: "Make a new thread of what a thread was at a moment", Args: cobra.ExactArgs(2)}
	c.Flags().StringVar(&at, "at", "", "`moment` (default now)")
	c.Flags().StringVar(&metadata, "metadata", "", "the new thread's metadata, a JSON `object` (default none)")
	return flags.runs(c, func(ctx context.Context, c *threadCall, args []string) error {
		moment, err := c.moment(at)
		if err != nil {
			return err
		}
		if metadata != "" && !json.Valid([]byte(metadata)) {
			return c.usage(errors.New("--metadata is no JSON"))
		}
		resp, err := c.history.ForkThread(ctx, &threadsvcv1.ForkThreadRequest{
			Source: c.name(args[0]), Moment: moment, ThreadId: args[1], Metadata: []byte(metadata)})
		if err != nil {
			return err
		}
		view := viewThread(resp.GetThread())
		return c.done(struct {
			threadView
			Origin originView `json:"origin"`
		}{view, originView{args[0], resp.GetSourceVersion()}},
			"forked %s at version %d: %s is at version %d", args[0], resp.GetSourceVersion(), view.Thread, view.Version)
	})
}

func newThreadRewind(flags *threadFlags) *cobra.Command {
	var expected uint64
	c := &cobra.Command{Use: "rewind THREAD MOMENT", Short: "Make a thread what it was; what lies between stays in the log", Args: cobra.ExactArgs(2)}
	c.Flags().Uint64Var(&expected, "expected-version", 0, "only if the thread is at this `version` (default any)")
	return flags.runs(c, func(ctx context.Context, c *threadCall, args []string) error {
		to, err := c.moment(args[1])
		if err != nil {
			return err
		}
		if to == nil {
			return c.usage(errors.New("a thread cannot be rewound to now"))
		}
		req := &threadsvcv1.RewindThreadRequest{Thread: c.name(args[0]), To: to}
		if c.command.Flags().Changed("expected-version") {
			req.ExpectedVersion = &expected
		}
		resp, err := c.history.RewindThread(ctx, req)
		if err != nil {
			return err
		}
		view := struct {
			Thread    string `json:"thread"`
			Version   uint64 `json:"version"`
			ToVersion uint64 `json:"to_version"`
		}{args[0], resp.GetVersion(), resp.GetToVersion()}
		return c.done(view, "rewound %s to version %d, by version %d; versions %d-%d stay in the log", view.Thread, view.ToVersion,
			view.Version, view.ToVersion+1, view.Version-1)
	})
}

// receiptView is what is left of a thread that was deleted.
type receiptView struct {
	Tenant     string           `json:"tenant"`
	Thread     string           `json:"thread"`
	Version    uint64           `json:"version"`
	LogHash    string           `json:"log_hash"`
	DeleteTime time.Time        `json:"delete_time"`
	ErasedRows map[string]int64 `json:"erased_rows"`
}

func newThreadDelete(flags *threadFlags) *cobra.Command {
	var yes bool
	c := &cobra.Command{Use: "delete THREAD", Short: "Erase a thread for good, and print the receipt", Args: cobra.ExactArgs(1)}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask (default false)")
	return flags.runs(c, func(ctx context.Context, c *threadCall, args []string) error {
		if !yes {
			if err := c.confirm(ctx, args[0]); err != nil {
				return err
			}
		}
		resp, err := c.api.DeleteThread(ctx, &threadsvcv1.DeleteThreadRequest{Thread: c.name(args[0])})
		if err != nil {
			return err
		}
		view := &receiptView{c.tenant, args[0], resp.GetVersion(), hex.EncodeToString(resp.GetLogHash()), resp.GetDeleteTime().AsTime(), resp.GetErasedRows()}
		if c.json {
			return c.out.json(view)
		}
		c.out.receipt(view)
		return c.out.err
	})
}

// confirm asks for the thread's id, on a terminal.
func (c *threadCall) confirm(ctx context.Context, id string) error {
	if !onTerminal(c.command.InOrStdin()) {
		return c.usage(errors.New("there is no terminal to ask on: give --yes"))
	}
	resp, err := c.api.GetThread(ctx, &threadsvcv1.GetThreadRequest{Thread: c.name(id)})
	if err != nil {
		return err
	}
	t := resp.GetThread()
	fmt.Fprintf(c.command.ErrOrStderr(), "%s is at version %d, with %s and %s. It will be gone for good.\nType its id to delete it: ",
		visible(id), t.GetVersion(), count(int(t.GetRunCount()), "run"), count(int(t.GetMessageCount()), "message"))
	answer, _ := bufio.NewReader(c.command.InOrStdin()).ReadString('\n') // no answer is another one
	if strings.TrimRight(answer, "\r\n") != id {
		return errors.New("that is another id; nothing was deleted")
	}
	return nil
}

// receipt writes what is left of a thread.
func (s *screen) receipt(r *receiptView) {
	s.line(cell{bold, "deleted " + r.Thread})
	s.field("version", plain("%d", r.Version))
	s.field("log hash", cell{"", r.LogHash})
	s.field("at", cell{"", when(r.DeleteTime)})
	for _, table := range slices.Sorted(maps.Keys(r.ErasedRows)) {
		if n := r.ErasedRows[table]; n > 0 {
			s.field("erased", plain("%s of %s", count(int(n), "row"), table))
		}
	}
}
