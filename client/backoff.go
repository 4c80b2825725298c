package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	firstPause = 50 * time.Millisecond
	maxPause   = 2 * time.Second
	// settled is how long after a failure another one is a new beginning, whether anything was heard meanwhile or not: a
	// connection without traffic has nothing to say. It is longer than any pause and attempt to connect take.
	settled = time.Minute
)

// pauses are the waits between attempts: each up to twice as long as the one before, at random, so that many clients do
// not come back at once, until nothing has succeeded for the limit.
type pauses struct {
	limit   time.Duration
	next    time.Duration
	failing time.Time // since when nothing succeeds; zero before the first failure
	last    time.Time // the last failure
}

// reset begins anew after a success.
func (p *pauses) reset() { p.next, p.failing = 0, time.Time{} }

// after waits after a failure. It returns an error if there is to be no other attempt.
func (p *pauses) after(ctx context.Context, failure error) error {
	now := time.Now()
	if now.Sub(p.last) > settled {
		p.reset()
	}
	if p.last = now; p.failing.IsZero() {
		p.failing = now
	}
	if now.Sub(p.failing) > p.limit {
		return fmt.Errorf("threadsvc: nothing has succeeded for %v: %w", p.limit, typed(ctx, failure))
	}
	p.next = min(max(2*p.next, firstPause), maxPause)
	select {
	case <-time.After(rand.N(p.next)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// retry makes a call, again while that is allowed, and types its error.
func (c *Client) retry(ctx context.Context, call func() error) error {
	p := pauses{limit: c.cfg.RetryFor}
	for {
		err := call()
		if err == nil || !repeatable(err) || ctx.Err() != nil {
			return typed(ctx, err)
		}
		if err := p.after(ctx, err); err != nil {
			return err
		}
	}
}
