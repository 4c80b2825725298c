// Command threadsvc serves agent threads, migrates their database, and shows itself in a demo.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/threadsvc/threadsvc/cmd/threadsvc/bench"
)

// Exit codes of the program.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// errUsage marks what the caller got wrong on the command line or in the environment.
var errUsage = errors.New("usage")

// usageError is a wrong command line. It is errUsage and says which command's help to read.
type usageError struct {
	command string
	err     error
}

func (e *usageError) Error() string {
	return fmt.Sprintf("%v\nSee '%s --help'.", e.err, e.command)
}

func (e *usageError) Unwrap() []error { return []error{errUsage, e.err} }

func main() { os.Exit(run(os.Args[1:])) }

// run executes one command line and returns the exit code. A first SIGINT or SIGTERM ends the context, a second one the
// process.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "threadsvc: interrupted")
		return exitInterrupted
	}
	fmt.Fprintln(os.Stderr, "threadsvc:", err)
	if errors.Is(err, errUsage) {
		return exitUsage
	}
	return exitFailed
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "threadsvc",
		Short: "The system of record for AI-agent threads",
		Long: "threadsvc records the AG-UI event streams of agent runs in Postgres, acknowledges what is durable,\n" +
			"and returns the input of the next run.\n\nNew here? Run 'threadsvc demo'.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return &usageError{c.CommandPath(), err} })
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newServe(), newMigrate(), newVerify(), newThread(), newWarnings(), newDemo(), bench.Command(), newVersion())
	wrapArgs(root)
	return root
}

// wrapArgs makes what is wrong with the arguments of any command a usage error.
func wrapArgs(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return &usageError{c.CommandPath(), err}
			}
			return nil
		}
	}
	for _, child := range c.Commands() {
		wrapArgs(child)
	}
}
