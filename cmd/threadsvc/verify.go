package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
)

var (
	errNothingToVerify = errors.New("nothing to verify: give --database-url or --file")
	errThreadOfFile    = errors.New("--file has one thread: --thread and --tenant are for databases")
	errTenantAlone     = errors.New("--tenant names a thread only together with --thread")
	errAltered         = errors.New("not everything agrees")
)

// verifyFlags are the flags of verify.
type verifyFlags struct {
	databaseURL, file, tenant, thread string
	parallel                          int
}

func newVerify() *cobra.Command {
	var flags verifyFlags
	c := &cobra.Command{
		Use:   "verify",
		Short: "Recompute threads from their logs and compare what is stored",
		Long: "Recompute threads from their logs and compare what is stored: hashes, states, messages, checkpoints,\n" +
			"runs. All threads of the database of --database-url, or one; a server may be running on it. Or the\n" +
			"exported thread in --file, without a database. What does not agree is printed, one line each, and\n" +
			"makes the exit code 1." + envHelp,
		Example: "  threadsvc verify --database-url postgres://app@db.internal/threads\n" +
			"  threadsvc verify --file thread.export",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := fromEnv(c); err != nil {
				return err
			}
			if err := flags.check(); err != nil {
				return &usageError{c.CommandPath(), err}
			}
			if flags.file != "" {
				return verifyFile(flags.file, c.OutOrStdout())
			}
			return flags.verifyDatabase(c.Context(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&flags.databaseURL, "database-url", "", "Postgres connection `URL` (default none)")
	f.StringVar(&flags.file, "file", "", "exported thread, a `path`; - is standard input (default none)")
	f.StringVar(&flags.tenant, "tenant", "", "`tenant` of the thread (default empty)")
	f.StringVar(&flags.thread, "thread", "", "`id` of the one thread to verify (default all)")
	f.IntVar(&flags.parallel, "parallel", 4, "`number` of threads that are verified at once")
	return c
}

func (f *verifyFlags) check() error {
	switch {
	case f.file != "" && (f.thread != "" || f.tenant != ""):
		return errThreadOfFile
	case f.file == "" && f.databaseURL == "":
		return errNothingToVerify
	case f.tenant != "" && f.thread == "":
		return errTenantAlone
	case f.parallel < 1 || f.parallel > 1000:
		return fmt.Errorf("--parallel is %d, want 1 to 1000", f.parallel)
	}
	return nil
}

func verifyFile(path string, out io.Writer) error {
	in := io.Reader(os.Stdin)
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	}
	limits := agui.DefaultLimits()
	limits.Event, limits.State, limits.Context = 64<<20, 1<<30, 2<<30 // a server may have been given larger ones
	head, err := service.VerifyArchive(in, limits)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	_, err = fmt.Fprintf(out, "%s agrees: thread %q of tenant %q, version %d, log %x\n", path, head.ThreadID, head.Tenant, head.Version, head.Hash)
	return err
}

// verifyDatabase verifies the threads of a database.
func (f *verifyFlags) verifyDatabase(ctx context.Context, out, progress io.Writer) error {
	place := describeURL(f.databaseURL)
	db, err := store.Open(ctx, store.Options{URL: f.databaseURL, MaxConns: int32(f.parallel + 1)})
	if err != nil {
		return &databaseError{place, err}
	}
	defer db.Close()
	pingCtx, cancel := context.WithTimeout(ctx, pingTimeout)
	err = db.Ping(pingCtx)
	cancel()
	if err != nil {
		return &databaseError{place, err}
	}
	v := &verification{store: db, out: out, bar: newVerifyBar(progress)}
	err = v.all(ctx, f)
	v.bar.end()
	switch {
	case errors.Is(err, store.ErrUnavailable):
		return &databaseError{place, err}
	case err != nil:
		return err
	}
	fmt.Fprintf(out, "%d threads with %d log entries verified; %d findings in %d threads\n", v.threads, v.entries, v.findings, v.altered)
	if v.findings > 0 {
		return errAltered
	}
	return nil
}

// verification verifies threads, several at once, and counts.
type verification struct {
	store *store.Postgres
	out   io.Writer
	bar   *verifyBar

	mu                                  sync.Mutex
	threads, findings, altered, entries uint64
}

// all goes over the threads that are asked for. Those that are made meanwhile may be left out.
func (v *verification) all(ctx context.Context, f *verifyFlags) error {
	if f.thread != "" {
		name := store.Name{Key: store.KeyOf(f.tenant, f.thread), Tenant: f.tenant, ThreadID: f.thread}
		err := v.one(ctx, name)
		if err == nil && v.threads == 0 {
			return fmt.Errorf("there is no thread %q of tenant %q", f.thread, f.tenant)
		}
		return err
	}
	workers, ctx := errgroup.WithContext(ctx)
	workers.SetLimit(f.parallel)
	const page = 1000
	for after := (store.Key{}); ctx.Err() == nil; {
		names, err := v.store.Names(ctx, after, page)
		if err != nil {
			return errors.Join(err, workers.Wait())
		}
		for _, name := range names {
			workers.Go(func() error { return v.one(ctx, name) })
			after = name.Key
		}
		if len(names) < page {
			break
		}
	}
	return workers.Wait()
}

// one verifies a thread. One that was deleted meanwhile is passed over.
func (v *verification) one(ctx context.Context, name store.Name) error {
	found := uint64(0)
	head, err := service.Verify(ctx, v.store, name.Key, service.Verification{Found: func(f service.Finding) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.bar.clear()
		found++
		fmt.Fprintf(v.out, "thread %q of tenant %q, %s\n", name.ThreadID, name.Tenant, f.String())
	}})
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("thread %q of tenant %q: %w", name.ThreadID, name.Tenant, err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.threads, v.entries, v.findings = v.threads+1, v.entries+head.Version, v.findings+found
	if found > 0 {
		v.altered++
	}
	v.bar.show(name.Key, v.threads, v.entries)
	return nil
}
