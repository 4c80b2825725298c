package client

import (
	"context"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// AmendThread adds messages to a thread, or patches its state, beside its runs. It may be made again with the same request:
// the same answer comes back, while the thread remembers the amendment. A run that is active goes on.
func (c *Client) AmendThread(ctx context.Context, req *threadsvcv1.AmendThreadRequest) (resp *threadsvcv1.AmendThreadResponse, err error) {
	err = c.retry(ctx, func() (err error) {
		resp, err = c.api.AmendThread(ctx, req)
		return err
	})
	return resp, err
}
