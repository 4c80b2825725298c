package main

import (
	"context"
	"time"

	"google.golang.org/grpc/status"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// crashAfter is how many events of the run are acknowledged before the server is killed.
const crashAfter = 24

// crashServer plays a part of the run, kills the server while requests are under way, starts it again, and returns the
// stream on which the producer goes on after the last event that was acknowledged.
func (d *demo) crashServer(ctx context.Context, p *producer, stream appendStream) (appendStream, error) {
	if err := p.play(stream, crashAfter); err != nil {
		return nil, err
	}
	if err := d.commitUnseen(ctx, p, stream); err != nil {
		return nil, err
	}
	pid := d.server.pid()
	d.server.kill()
	d.crash = crash{sent: p.sent, acked: p.acked, total: uint64(len(p.events))}
	d.out.row("crash", "SIGKILL to process %d: %d of %d events sent, the last ack says %d", pid, p.sent, len(p.events), p.acked)
	if err := d.expectBroken(stream); err != nil {
		return nil, err
	}
	return d.recover(ctx, p)
}

// commitUnseen fills the window until the server has committed more than the producer has read acknowledgements of, and
// leaves one more request under way.
func (d *demo) commitUnseen(ctx context.Context, p *producer, stream appendStream) error {
	if err := p.send(stream); err != nil {
		return err
	}
	for {
		resp, err := d.client.GetThread(ctx, &threadsvcv1.GetThreadRequest{Thread: d.thread})
		if err != nil {
			return err
		}
		if resp.GetThread().GetVersion() > p.version {
			return p.send(stream)
		}
		time.Sleep(time.Millisecond)
	}
}

// expectBroken reads the stream, as far as it got, to its end.
func (d *demo) expectBroken(stream appendStream) error {
	for {
		_, err := stream.Recv()
		if err == nil {
			continue // an acknowledgement that came too late to be acted on
		}
		d.out.row("", "the stream ends with %v", status.Code(err))
		_ = d.conn.Close() // its server is gone
		return nil
	}
}

// recover starts the server again and opens the stream anew.
func (d *demo) recover(ctx context.Context, p *producer) (appendStream, error) {
	if err := d.start(ctx); err != nil {
		return nil, err
	}
	durable, err := p.durable(ctx, d.client)
	if err != nil {
		return nil, err
	}
	d.crash.durable = durable
	d.out.row("restart", "process %d, ready in %s; it has %d events: those acknowledged, and %d more", d.server.pid(), seconds(d.server.took), durable, durable-p.acked)
	if err := d.crash.check(); err != nil {
		return nil, err
	}
	d.out.row("re-send", "from event %d on: %d are duplicates and skipped, %d are new", p.acked, durable-p.acked, d.crash.total-durable)
	return p.open(ctx, d.client)
}

// check is whether the database kept everything acknowledged, and nothing that was not sent.
func (c *crash) check() error {
	if c.acked == 0 || c.durable <= c.acked || c.durable > c.sent || c.sent >= c.total {
		return claimf("%d events acknowledged, %d durable, %d sent, %d in all", c.acked, c.durable, c.sent, c.total)
	}
	return nil
}
