// Package client puts threadsvc behind an agent: it starts runs, writes their events as they come and keeps doing so across
// broken connections and servers that stop, renews the lease of a run that is silent, and follows a thread's log.
//
// A run, from what the user said to the last event of the agent:
//
//	threads, err := client.Dial("threads-1:8980,threads-2:8980", client.Config{}, credentials)
//	run, err := threads.StartRun(ctx, &threadsvcv1.StartRunRequest{Thread: thread, RunId: id, Messages: messages})
//	w := run.Write(ctx, client.WriterOptions{})
//	err = w.AppendSSE(ctx, callAgent(run.Input)) // or Append, event by event
//	err = w.Close(ctx)                           // nil means that everything is durable
//
// Errors of the service are of type *Error, with the reason and the metadata of the contract. What may be repeated is
// repeated here, until the context ends or Config.RetryFor has passed without success; what is returned is for the caller
// to decide.
package client

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// DefaultLease is the lease of the runs that are started here unless the request says otherwise.
const DefaultLease = 30 * time.Second

// Config is what a Client can be told. Zero fields mean the defaults.
type Config struct {
	// RetryFor is how long a call, a writer or a reader goes on trying while nothing succeeds; 0 means 5 minutes.
	RetryFor time.Duration
}

// Client makes calls of one or several servers on one database. Its methods may be used concurrently.
type Client struct {
	api  threadsvcv1.ThreadServiceClient
	conn io.Closer // nil if it is the caller's
	cfg  Config
}

// Dial returns a client that connects when it is first used. The target is what grpc.NewClient takes, or several host:port
// separated by commas, of which any one is used that serves. The options come after those of DialOptions; they must
// include transport credentials. Close the client after use.
func Dial(target string, cfg Config, opts ...grpc.DialOption) (*Client, error) {
	options := DialOptions()
	if isList(target) {
		addresses := manual.NewBuilderWithScheme("threadsvc")
		addresses.InitialState(resolver.State{Addresses: addressesOf(target)})
		options, target = append(options, grpc.WithResolvers(addresses)), addresses.Scheme()+":///servers"
	}
	conn, err := grpc.NewClient(target, append(options, opts...)...)
	if err != nil {
		return nil, err
	}
	c := New(conn, cfg)
	c.conn = conn
	return c, nil
}

// isList tells a list of addresses from a target with a scheme, which may have commas too.
func isList(target string) bool {
	return strings.Contains(target, ",") && !strings.Contains(target, "/") &&
		!strings.HasPrefix(target, "ipv4:") && !strings.HasPrefix(target, "ipv6:")
}

// addressesOf splits a list of host:port. Each server's certificate is checked against its own host.
func addressesOf(list string) (addresses []resolver.Address) {
	for address := range strings.SplitSeq(list, ",") {
		address = strings.TrimSpace(address)
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			host = address
		}
		addresses = append(addresses, resolver.Address{Addr: address, ServerName: host})
	}
	return addresses
}

// New returns a client on a connection, which stays the caller's and should have been made with DialOptions.
func New(conn grpc.ClientConnInterface, cfg Config) *Client {
	if cfg.RetryFor <= 0 {
		cfg.RetryFor = 5 * time.Minute
	}
	return &Client{api: threadsvcv1.NewThreadServiceClient(conn), cfg: cfg}
}

// DialOptions are what suits threadsvc: answers may be larger than gRPC's 4 MiB, idle connections are kept alive no more
// often than the server allows (every 10 s), a server that comes back is found again within seconds, and of several
// addresses one is chosen at random.
func DialOptions() []grpc.DialOption {
	reconnect := backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second}
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(256 << 20)),
		// A context that exceeds the window waits for the other side to make room.
		grpc.WithInitialWindowSize(1 << 20), grpc.WithInitialConnWindowSize(4 << 20),
		grpc.WithReadBufferSize(128 << 10), // a context of ordinary size is one or two reads
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: 5 * time.Second}),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"pick_first":{"shuffleAddressList":true}}]}`),
	}
}

// Close closes the connection if Dial made it. Writers and readers must have ended.
func (c *Client) Close() error {
	if c.conn == nil {
		return nil
	}
	return c.conn.Close()
}

// API is the contract itself, for the calls that need no help. Their errors are plain gRPC errors; ErrorOf types them.
func (c *Client) API() threadsvcv1.ThreadServiceClient { return c.api }

// Run is a run that was started.
type Run struct {
	// Start describes it; Input is the RunAgentInput to give to the agent, as JSON.
	Start *threadsvcv1.RunStart
	Input []byte
	// Handle is what its events are appended with.
	Handle *threadsvcv1.RunHandle

	lease  time.Duration
	client *Client
}

// StartRun starts a run, with a lease of DefaultLease if the request names none. It may be made again with the same
// request: the same run comes back.
func (c *Client) StartRun(ctx context.Context, req *threadsvcv1.StartRunRequest) (*Run, error) {
	if req.GetLeaseTtl().AsDuration() == 0 {
		req = proto.CloneOf(req)
		req.LeaseTtl = durationpb.New(DefaultLease)
	}
	run := &Run{client: c, lease: req.GetLeaseTtl().AsDuration()}
	err := c.retry(ctx, func() (err error) {
		stream, err := c.api.StartRun(ctx, req)
		if err != nil {
			return err
		}
		first, err := stream.Recv()
		if err != nil {
			return err
		}
		run.Start = first.GetStart()
		run.Input, err = assemble(run.Start.GetInputSize(), stream.Recv)
		return err
	})
	if err != nil {
		return nil, err
	}
	run.Handle = &threadsvcv1.RunHandle{
		Thread: req.GetThread(), RunId: req.GetRunId(), FencingToken: run.Start.GetLease().GetFencingToken(),
	}
	return run, nil
}

// Context is what a thread amounts to.
type Context struct {
	Info *threadsvcv1.ContextInfo
	// Input is the RunAgentInput, as JSON.
	Input []byte
}

// GetContext reads what a thread amounts to now.
func (c *Client) GetContext(ctx context.Context, thread *threadsvcv1.ThreadName) (*Context, error) {
	var got Context
	err := c.retry(ctx, func() (err error) {
		stream, err := c.api.GetContext(ctx, &threadsvcv1.GetContextRequest{Thread: thread})
		if err != nil {
			return err
		}
		first, err := stream.Recv()
		if err != nil {
			return err
		}
		got.Info = first.GetInfo()
		got.Input, err = assemble(got.Info.GetInputSize(), stream.Recv)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &got, nil
}

// assemble joins the pieces of an input. One that has another size than was announced is an error.
func assemble[M interface{ GetInputChunk() []byte }](size uint64, recv func() (M, error)) ([]byte, error) {
	var input []byte
	for {
		message, err := recv()
		switch {
		case errors.Is(err, io.EOF) && uint64(len(input)) == size:
			return input, nil
		case errors.Is(err, io.EOF):
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		}
		input = append(input, message.GetInputChunk()...)
	}
}
