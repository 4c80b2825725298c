package client

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// Record is one thing that a log brings: one of its fields is set.
type Record struct {
	// Entry is the next entry, with its whole payload, however large.
	Entry *threadsvcv1.LogEntry
	// Unreadable is a range of versions that is stored but cannot be read.
	Unreadable *threadsvcv1.UnreadableRange
	// CaughtUp is the thread's version once everything that was stored has come. Only Follow brings it, once or more often.
	CaughtUp uint64
}

// Follow yields a thread's log from a version on (0 means 1), and then what is committed, until the context ends, the loop
// does, or an error comes, which is yielded last. Each version comes once and in order: where the connection breaks, the
// server stops, or the loop was too slow for it, reading goes on at the version that comes next. A thread that was deleted
// is an error with THREAD_NOT_FOUND, also if there is a new one of its name.
func (c *Client) Follow(ctx context.Context, thread *threadsvcv1.ThreadName, from uint64) iter.Seq2[Record, error] {
	return c.records(ctx, &threadsvcv1.ReadLogRequest{Thread: thread, FromVersion: max(from, 1), Follow: true})
}

// ReadLog yields a thread's log from a version on (0 means 1) to its present end, as Follow does.
func (c *Client) ReadLog(ctx context.Context, thread *threadsvcv1.ThreadName, from uint64) iter.Seq2[Record, error] {
	return c.records(ctx, &threadsvcv1.ReadLogRequest{Thread: thread, FromVersion: max(from, 1)})
}

func (c *Client) records(ctx context.Context, req *threadsvcv1.ReadLogRequest) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		r := &logReader{client: c, req: req, next: req.GetFromVersion(), yield: yield}
		if err := r.run(ctx); err != nil && !errors.Is(err, errLeft) {
			yield(Record{}, err)
		}
	}
}

// errLeft says that the loop was left.
var errLeft = errors.New("the loop was left")

// logReader reads a log by one call after the other.
type logReader struct {
	client  *Client
	req     *threadsvcv1.ReadLogRequest
	yield   func(Record, error) bool
	next    uint64                // the version that comes next
	created time.Time             // when the thread was made; zero until it is known
	part    *threadsvcv1.LogEntry // an entry whose payload goes on
	heard   bool                  // the present call has brought something
}

// run reads until the log ends, the loop is left, or nothing more can be read.
func (r *logReader) run(ctx context.Context) error {
	p := pauses{limit: r.client.cfg.RetryFor}
	for {
		r.heard = false
		err := r.call(ctx)
		switch {
		case errors.Is(err, errLeft), err == nil && !r.req.GetFollow():
			return err
		case err == nil: // a log that is followed has no end
			err = io.ErrUnexpectedEOF
		}
		if !resumable(err) || ctx.Err() != nil {
			return typed(ctx, err)
		}
		if r.heard {
			p.reset()
		}
		if err := p.after(ctx, err); err != nil {
			return err
		}
	}
}

// call makes one ReadLog call where reading stands.
func (r *logReader) call(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req := &threadsvcv1.ReadLogRequest{Thread: r.req.GetThread(), FromVersion: r.next, Follow: r.req.GetFollow()}
	stream, err := r.client.api.ReadLog(ctx, req)
	if err != nil {
		return err
	}
	r.part = nil
	for checked := false; ; checked = true {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && !checked {
			err = r.checkThread(ctx)
		}
		if err == nil {
			r.heard = true
			err = r.take(message)
		}
		if err != nil {
			return err
		}
	}
}

// checkThread makes sure that the thread is the one that reading began with. What was received before came from no later
// one, since the server ends a call whose thread is deleted.
func (r *logReader) checkThread(ctx context.Context) error {
	resp, err := r.client.api.GetThread(ctx, &threadsvcv1.GetThreadRequest{Thread: r.req.GetThread()})
	if err != nil {
		return err
	}
	created := resp.GetThread().GetCreateTime().AsTime()
	if r.created.IsZero() {
		r.created = created
	}
	if !created.Equal(r.created) {
		return &Error{
			Reason: threadsvcv1.ErrorReason_ERROR_REASON_THREAD_NOT_FOUND,
			status: status.New(codes.NotFound, "the thread was deleted, and there is another of its name"),
		}
	}
	return nil
}

// take yields what a message brings, in the order of versions.
func (r *logReader) take(message *threadsvcv1.ReadLogResponse) error {
	unreadable := message.GetUnreadable()
	for _, entry := range message.GetEntries() {
		for len(unreadable) > 0 && unreadable[0].GetFirstVersion() < entry.GetVersion() {
			if err := r.skip(unreadable[0]); err != nil {
				return err
			}
			unreadable = unreadable[1:]
		}
		if entry = r.join(entry); entry == nil {
			continue
		}
		r.next = entry.GetVersion() + 1
		if !r.yield(Record{Entry: entry}, nil) {
			return errLeft
		}
	}
	for _, u := range unreadable {
		if err := r.skip(u); err != nil {
			return err
		}
	}
	if v := message.GetCaughtUpVersion(); v != 0 && !r.yield(Record{CaughtUp: v}, nil) {
		return errLeft
	}
	return nil
}

// skip yields a range that cannot be read.
func (r *logReader) skip(unreadable *threadsvcv1.UnreadableRange) error {
	if unreadable.GetLastVersion() < r.next {
		return nil
	}
	r.next = unreadable.GetLastVersion() + 1
	if !r.yield(Record{Unreadable: unreadable}, nil) {
		return errLeft
	}
	return nil
}

// join returns the whole entry once its last piece has come, nil before that and for what was yielded already.
func (r *logReader) join(entry *threadsvcv1.LogEntry) *threadsvcv1.LogEntry {
	if entry.GetVersion() < r.next {
		return nil
	}
	if r.part != nil && r.part.GetVersion() == entry.GetVersion() {
		r.part.Payload = append(r.part.Payload, entry.GetPayload()...)
	} else {
		r.part = entry
	}
	if entry.GetPayloadContinues() {
		return nil
	}
	whole := r.part
	r.part, whole.PayloadContinues = nil, false
	return whole
}
