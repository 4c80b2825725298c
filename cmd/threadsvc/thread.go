package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/threadsvc/threadsvc/client"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// callTimeout is how long a command about threads takes unless --timeout says otherwise.
const callTimeout = time.Minute

const threadHelp = "\n\n--server and --tenant can also be set by THREADSVC_SERVER and THREADSVC_TENANT. A MOMENT is a version (12),\n" +
	"the end of a run (run:ID), a time (2026-12-02T15:04:05Z, or \"2026-12-02 15:04\" in local time), a time ago\n" +
	"(90s, 2h30m), or now. With --json there is one object, or one on each line, with the same fields always."

// threadFlags are what the commands about threads have in common.
type threadFlags struct {
	server, tenant string
	json           bool
	timeout        time.Duration
}

func newThread() *cobra.Command {
	flags := &threadFlags{}
	c := &cobra.Command{
		Use:   "thread",
		Short: "Look at threads of a running server, and move, fork, rewind or delete them",
		Long:  "Look at threads of a running server, and move, fork, rewind or delete them." + threadHelp,
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	flags.register(c.PersistentFlags())
	c.AddCommand(newThreadList(flags), newThreadShow(flags), newThreadLog(flags), newThreadDiff(flags), newThreadBlame(flags),
		newThreadChanges(flags), newThreadContext(flags), newThreadExport(flags), newThreadImport(flags), newThreadFork(flags),
		newThreadRewind(flags), newThreadDelete(flags))
	return c
}

// register adds the flags to a command's.
func (f *threadFlags) register(set *pflag.FlagSet) {
	set.SortFlags = false
	set.StringVar(&f.server, "server", "127.0.0.1:8980", "`address` of the server, host:port")
	set.StringVar(&f.tenant, "tenant", "", "`tenant` of the thread (default empty)")
	set.BoolVar(&f.json, "json", false, "write JSON for programs (default false)")
	set.DurationVar(&f.timeout, "timeout", callTimeout, "`time` the command may take, 0 for any; export, import and log --follow take any by default")
}

// threadCall is one execution of a command about threads.
type threadCall struct {
	*threadFlags
	command *cobra.Command
	threads *client.Client
	api     threadsvcv1.ThreadServiceClient
	history threadsvcv1.HistoryServiceClient
	out     *screen
}

// runs makes a command do something with a connection to the server.
func (f *threadFlags) runs(c *cobra.Command, do func(context.Context, *threadCall, []string) error) *cobra.Command {
	c.Long = c.Short + "." + threadHelp
	c.Flags().SortFlags = false
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := threadEnv(c, f); err != nil {
			return err
		}
		conn, err := grpc.NewClient(f.server, append(client.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err != nil {
			return &usageError{c.CommandPath(), err}
		}
		defer conn.Close()
		call := &threadCall{threadFlags: f, command: c, out: newScreen(c.OutOrStdout()),
			threads: client.New(conn, client.Config{}), api: threadsvcv1.NewThreadServiceClient(conn), history: threadsvcv1.NewHistoryServiceClient(conn)}
		ctx, cancel := c.Context(), context.CancelFunc(func() {})
		if f.timeout > 0 {
			ctx, cancel = context.WithTimeout(ctx, f.timeout)
		}
		defer cancel()
		if err := do(ctx, call, args); c.Context().Err() == nil {
			return call.explain(err)
		}
		return c.Context().Err()
	}
	return c
}

// threadEnv sets the server and the tenant from the environment unless the command line has them. Other flags say what
// to do, which is not for an environment to say.
func threadEnv(c *cobra.Command, f *threadFlags) error {
	for name, value := range map[string]*string{"server": &f.server, "tenant": &f.tenant} {
		if text, ok := os.LookupEnv(envName(name)); ok && !c.Flags().Changed(name) {
			*value = text
		}
	}
	if f.server == "" {
		return &usageError{c.CommandPath(), errors.New("--server is empty")}
	}
	if f.timeout < 0 {
		return &usageError{c.CommandPath(), errors.New("--timeout is negative")}
	}
	return nil
}

// name is the thread that an argument names.
func (c *threadCall) name(id string) *threadsvcv1.ThreadName {
	return &threadsvcv1.ThreadName{Tenant: c.tenant, ThreadId: id}
}

// usage is a wrong use of the command.
func (c *threadCall) usage(err error) error { return &usageError{c.command.CommandPath(), err} }

// patient takes the default time limit from a command that may take long.
func (f *threadFlags) patient(c *cobra.Command) {
	c.PreRun = func(c *cobra.Command, _ []string) {
		if !c.Flags().Changed("timeout") {
			f.timeout = 0
		}
	}
}

// onTerminal tells whether a reader or writer is a terminal.
func onTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// pages calls for one page after the other until there are limit items (0: all), or no more. It reports whether there may
// be more.
func pages[T any](limit int, page func(size int32, token string) ([]T, string, error), each func(T) error) (bool, error) {
	const most = 500
	token := ""
	for got := 0; ; {
		size := most
		if limit > 0 {
			size = min(most, limit-got)
		}
		items, next, err := page(int32(size), token)
		if err != nil {
			return false, err
		}
		for _, item := range items {
			if err := each(item); err != nil {
				return false, err
			}
		}
		got, token = got+len(items), next
		if token == "" || limit > 0 && got >= limit {
			return token != "", nil
		}
	}
}

// more says on standard error that a list was cut.
func (c *threadCall) more(more bool, limit int) {
	if more && !c.json {
		_, _ = io.WriteString(c.command.ErrOrStderr(), "There is more after these "+count(limit, "line")+"; --limit 0 shows everything.\n")
	}
}
