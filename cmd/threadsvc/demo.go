package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store/embedded"
)

// demoTimeout bounds the whole demo; it takes a few seconds.
const demoTimeout = 3 * time.Minute

// errClaim reports that the demo found something not to be as it must be.
var errClaim = errors.New("the demo's claim does not hold")

func claimf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errClaim, fmt.Sprintf(format, args...))
}

func newDemo() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Play a conversation through a real server and show what is kept",
		Long: "Start a temporary Postgres and a server process, play four runs of a travel agent's conversation\n" +
			"through gRPC, kill the server in the middle of one, and show and check what came of it.\n" +
			"Needs the PostgreSQL programs, no set-up and no network; leaves nothing behind. Takes a few seconds.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), demoTimeout)
			defer cancel()
			return runDemo(ctx, &printer{w: c.OutOrStdout(), colour: isTerminal(os.Stdout)})
		},
	}
}

// demo is a conversation that is being played.
type demo struct {
	out         *printer
	databaseURL string
	server      *serverProcess
	conn        *grpc.ClientConn
	client      threadsvcv1.ThreadServiceClient
	thread      *threadsvcv1.ThreadName
	crash       crash
}

// crash is what became of the run during which the server was killed.
type crash struct {
	sent, acked, durable, total uint64
}

// runDemo plays everything and leaves nothing running, whatever happens.
func runDemo(ctx context.Context, out *printer) (err error) {
	out.title("threadsvc demo", "a travel agent's conversation: four runs, one thread, one crash")
	began := time.Now()
	postgres, err := embedded.Start(ctx, embedded.Options{NoSync: true}) // no power cut is played
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopPostgres(postgres)) }()
	if err := postgres.CreateDatabase(ctx, databaseName); err != nil {
		return err
	}
	out.row("postgres", "process %d, temporary data, started in %s", postgres.PID(), seconds(time.Since(began)))
	d := &demo{out: out, databaseURL: postgres.URL(databaseName)}
	d.thread = &threadsvcv1.ThreadName{Tenant: demoTenant, ThreadId: demoThread}
	defer d.abandon()
	if err := d.play(ctx); err != nil {
		return d.explain(ctx, err)
	}
	if err := d.stop(); err != nil {
		return err
	}
	if err := stopPostgres(postgres); err != nil {
		return err
	}
	out.farewell(time.Since(began))
	return nil
}

func stopPostgres(postgres *embedded.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return postgres.Stop(ctx)
}

// play runs the conversation, shows what came of it and checks it.
func (d *demo) play(ctx context.Context) error {
	if err := d.start(ctx); err != nil {
		return err
	}
	d.out.row("server", "process %d on %s, ready in %s", d.server.pid(), d.server.address, seconds(d.server.took))
	runs := conversation()
	for i := range runs {
		d.out.run(i+1, &runs[i])
		if err := d.playRun(ctx, &runs[i]); err != nil {
			return fmt.Errorf("%s: %w", runs[i].id, err)
		}
	}
	return d.conclude(ctx, runs)
}

// start starts a server process and connects to it.
func (d *demo) start(ctx context.Context) (err error) {
	if d.server, err = startServer(ctx, d.databaseURL); err != nil {
		return err
	}
	d.conn, d.client, err = dial(d.server.address)
	return err
}

// stop ends the server in order.
func (d *demo) stop() error {
	if err := d.conn.Close(); err != nil {
		return fmt.Errorf("close the connection: %w", err)
	}
	return d.server.stop()
}

// abandon makes sure that no server process is left.
func (d *demo) abandon() {
	if d.conn != nil {
		_ = d.conn.Close() // may be closed already
	}
	if d.server != nil {
		d.server.kill()
	}
}

// explain says why the conversation broke off: the end of the context, or also that of the server process.
func (d *demo) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err() // calls report it as their own failure
	}
	if d.server == nil {
		return err
	}
	return errors.Join(err, d.server.alive())
}

// playRun plays one run and shows how it ended.
func (d *demo) playRun(ctx context.Context, run *scriptedRun) error {
	if run.refused {
		if err := d.tryWithoutResume(ctx, run); err != nil {
			return err
		}
	}
	start, input, err := startRun(ctx, d.client, d.request(run))
	if err != nil {
		return err
	}
	d.out.input(input)
	p := &producer{events: asBytes(run.events), run: &threadsvcv1.RunHandle{
		Thread: d.thread, RunId: run.id, FencingToken: start.GetLease().GetFencingToken(),
	}}
	stream, err := p.open(ctx, d.client)
	if err != nil {
		return err
	}
	if run.crash {
		if stream, err = d.crashServer(ctx, p, stream); err != nil {
			return err
		}
	}
	if err := p.finish(stream); err != nil {
		return err
	}
	return d.showRun(ctx, run, p)
}

func (d *demo) request(run *scriptedRun) *threadsvcv1.StartRunRequest {
	req := &threadsvcv1.StartRunRequest{
		Thread: d.thread, RunId: run.id, Messages: asBytes(run.messages), Tools: []byte(run.tools), Resume: []byte(run.resume),
	}
	if run.statePatch != "" {
		req.StateChange = &threadsvcv1.StartRunRequest_StatePatch{StatePatch: []byte(run.statePatch)}
	}
	return req
}

// tryWithoutResume shows that a run is refused while an interrupt waits for its answer.
func (d *demo) tryWithoutResume(ctx context.Context, run *scriptedRun) error {
	req := d.request(run)
	req.Resume = nil
	_, _, err := startRun(ctx, d.client, req)
	if reason, _ := reasonOf(err); reason != "INTERRUPTS_OPEN" {
		return claimf("a run without resume was answered with %v, want INTERRUPTS_OPEN", err)
	}
	d.out.refusal(err)
	d.out.row("resume", "%s", run.resume)
	return nil
}

// showRun shows how a run ended, which has to be as the script says.
func (d *demo) showRun(ctx context.Context, run *scriptedRun, p *producer) error {
	resp, err := d.client.ListRuns(ctx, &threadsvcv1.ListRunsRequest{Thread: d.thread, PageSize: 1})
	if err != nil {
		return err
	}
	if len(resp.GetRuns()) != 1 || resp.GetRuns()[0].GetRunId() != run.id {
		return claimf("the thread's last run is not %s", run.id)
	}
	kept := resp.GetRuns()[0]
	d.out.outcome(len(run.events), kept)
	for _, warning := range p.warnings {
		d.out.warning(warning)
	}
	if kept.GetStatus() != run.status || int(kept.GetWarningCount()) != run.warnings || len(p.warnings) != run.warnings {
		return claimf("%s ended as %v with %d warnings, want %v with %d",
			run.id, kept.GetStatus(), kept.GetWarningCount(), run.status, run.warnings)
	}
	return nil
}

func asBytes(texts []string) [][]byte {
	all := make([][]byte, len(texts))
	for i, text := range texts {
		all[i] = []byte(text)
	}
	return all
}
