package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/embedded"
)

const (
	startTimeout = 2 * time.Minute
	stopTimeout  = 30 * time.Second
)

// cluster is the Postgres server of a benchmark.
type cluster struct {
	url     string
	private *embedded.Server // nil for somebody's
}

// openCluster starts a private Postgres unless there is a URL, and migrates the database unless a server of somebody's uses
// it already.
func openCluster(ctx context.Context, o *Options) (_ *cluster, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	c := &cluster{url: o.DatabaseURL}
	if c.url == "" {
		c.private, err = embedded.Start(ctx, embedded.Options{
			TempParent: o.TempDir, Settings: map[string]string{"max_connections": fmt.Sprint(o.YardstickConns + 16*o.Nodes + 50)},
		})
		if err != nil {
			return nil, err
		}
		c.url = c.private.URL("postgres")
	}
	if len(o.Addresses) == 0 {
		if err := store.Migrate(ctx, c.url); err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	return c, nil
}

func (c *cluster) close() error {
	if c.private == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return c.private.Stop(ctx)
}

// node is a server of the service.
type node struct {
	address string
	pid     int // 0 for somebody's
	stop    func() error
	// complaints are the last warnings and errors of its log.
	complaints func() string
}

// launcher starts a server on a database. The context bounds its life.
type launcher func(ctx context.Context, databaseURL string, args []string) (*node, error)

// startNodes starts the servers of a variant, or names those that run already.
func startNodes(ctx context.Context, launch launcher, c *cluster, o *Options, v *Variant) (nodes []*node, err error) {
	for _, address := range o.Addresses {
		nodes = append(nodes, &node{address: address, stop: func() error { return nil }, complaints: func() string { return "" }})
	}
	for len(nodes) < v.Nodes && len(o.Addresses) == 0 {
		n, err := launch(ctx, c.url, v.ServeArgs)
		if err != nil {
			return nil, errors.Join(err, stopNodes(nodes))
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

func stopNodes(nodes []*node) error {
	var errs []error
	for _, n := range nodes {
		errs = append(errs, n.stop())
	}
	return errors.Join(errs...)
}

// launchProcess runs this program as a server, in a process of its own. Its log tells the address.
func launchProcess(ctx context.Context, databaseURL string, args []string) (*node, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("bench: find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, program, append([]string{"serve", "--listen", "127.0.0.1:0", "--log-format", "json"}, args...)...)
	cmd.Env = append(os.Environ(), "THREADSVC_DATABASE_URL="+databaseURL)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTimeout
	log, err := cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("bench: start a server: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("bench: start a server: %w", err)
	}
	lines := bufio.NewReader(log)
	address, err := addressIn(lines)
	if err != nil {
		_ = cmd.Process.Kill()
		return nil, errors.Join(err, cmd.Wait())
	}
	said, drained := &complaints{}, make(chan struct{})
	go func() {
		defer close(drained)
		said.read(lines)
	}()
	stop := func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-drained
		if err := cmd.Wait(); err != nil && ctx.Err() == nil {
			return fmt.Errorf("bench: the server ended with: %w", err)
		}
		return nil
	}
	return &node{address: address, pid: cmd.Process.Pid, stop: stop, complaints: said.String}, nil
}

// complaints keeps the last lines of a server's log that are not just information.
type complaints struct {
	mu    sync.Mutex
	lines []string
}

// read takes lines until there are no more.
func (c *complaints) read(log *bufio.Reader) {
	const most = 10
	for {
		line, err := log.ReadString('\n')
		if err != nil {
			return
		}
		if strings.Contains(line, `"level":"INFO"`) {
			continue
		}
		c.mu.Lock()
		c.lines = append(c.lines, line)
		c.lines = c.lines[max(0, len(c.lines)-most):]
		c.mu.Unlock()
	}
}

func (c *complaints) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.lines, "")
}

// addressIn reads a server's log until it says where it serves.
func addressIn(log *bufio.Reader) (string, error) {
	said := ""
	for {
		line, err := log.ReadString('\n')
		if err != nil {
			return "", fmt.Errorf("bench: the server does not serve; it said:\n%s", said)
		}
		var entry struct{ Msg, Address string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "serving" && entry.Address != "" {
			return entry.Address, nil
		}
		if said += line; len(said) > 4096 {
			said = said[len(said)-4096:]
		}
	}
}
