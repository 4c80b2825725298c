package service_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/threadsvc/threadsvc/client"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/embedded"
	"github.com/threadsvc/threadsvc/store/storetest"
)

var (
	chaosDuration = flag.Duration("chaos.duration", 10*time.Second, "how long TestChaos makes trouble")
	chaosThreads  = flag.Int("chaos.threads", 8, "how many clients TestChaos has at a time")
	chaosClocks   = flag.Bool("chaos.clocks", false, "let TestChaos set the clocks of its servers, for which the program is built anew, standard library and all")
	chaosSeed     = flag.Uint64("chaos.seed", 0, "seed of TestChaos's schedule; 0 means a new one")
)

const (
	chaosNodes  = 3
	chaosLength = 10 * time.Second // the length of a round
)

// TestChaos lets clients do everything at once with three servers on one Postgres, while servers, Postgres, its backends
// and the network on both sides fail, in rounds with fresh threads. After each round everything is checked.
func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a while")
	}
	t.Parallel()
	seed := *chaosSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-chaos.seed=%d", seed)
	c := newChaos(t, seed)
	for end, n := time.Now().Add(*chaosDuration), 0; time.Now().Before(end) && !t.Failed(); n++ {
		c.round(n, min(chaosLength, time.Until(end)))
	}
	c.tell()
}

// chaos is a chaos test under way.
type chaos struct {
	t       *testing.T
	seed    uint64
	rnd     *rand.Rand
	db      *embedded.Server
	servers []*process
	near    []*faultyProxy // before the servers
	far     []*faultyProxy // between the servers and Postgres

	acked      int64
	checked    int
	entries    int
	operations int           // of all histories
	undecided  int           // histories whose check took too long
	slowest    time.Duration // the check of one of them
	counts     chaosCounts
	faults     map[string]int
	found      map[findingKind]int
}

func newChaos(t *testing.T, seed uint64) *chaos {
	t.Helper()
	c := &chaos{t: t, seed: seed, rnd: rand.New(rand.NewPCG(seed, 3)), db: startDatabase(t), faults: map[string]int{}, found: map[findingKind]int{}}
	direct := must(url.Parse(c.db.URL(crashDatabase)))(t)
	socket := direct.Query().Get("host") + "/.s.PGSQL." + direct.Query().Get("port")
	movable := ""
	if *chaosClocks {
		movable = buildMovable(t)
	}
	for range chaosNodes {
		far := startProxy(t, "unix", socket)
		proxied := url.URL{Scheme: "postgres", User: direct.User, Host: far.address(), Path: direct.Path, RawQuery: "sslmode=disable"}
		server := startProgram(t, proxied.String(), movable)
		c.far, c.servers = append(c.far, far), append(c.servers, server)
		c.near = append(c.near, startProxy(t, "tcp", server.address))
	}
	return c
}

func (c *chaos) nearAddresses() (addresses []string) {
	for _, p := range c.near {
		addresses = append(addresses, p.address())
	}
	return addresses
}

// chaosRound is a set of threads, and who works on them.
type chaosRound struct {
	load      *load
	nodes     []threadsvcv1.ThreadServiceClient
	library   *client.Client // of all nodes
	counts    *chaosCounts
	followers []*follower
	tails     sync.WaitGroup
	conns     []io.Closer
}

// dial connects to the servers by way of their proxies, until the round is over.
func (r *chaosRound) dial(t *testing.T, addresses []string) {
	t.Helper()
	for _, address := range addresses {
		conn := connectOften(t, address)
		r.conns, r.nodes = append(r.conns, conn), append(r.nodes, threadsvcv1.NewThreadServiceClient(conn))
	}
	r.library = must(client.Dial(strings.Join(addresses, ","), client.Config{RetryFor: callTimeout},
		grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	r.conns = append(r.conns, r.library)
}

// end ends the followers and the connections. The clients must have ended.
func (r *chaosRound) end() {
	for _, f := range r.followers {
		f.cancel()
	}
	r.tails.Wait()
	for _, conn := range r.conns {
		_ = conn.Close()
	}
}

// round makes trouble for so long and checks what came of it.
func (c *chaos) round(n int, length time.Duration) {
	c.t.Helper()
	r := c.begin(n)
	defer r.end()
	for end := time.Now().Add(length); time.Now().Before(end); {
		select {
		case <-r.load.failed:
		case <-time.After(time.Duration(c.rnd.IntN(600)) * time.Millisecond):
			c.fault()
			continue
		}
		break
	}
	if err := r.load.stop(); err != nil {
		c.t.Error(err)
	}
	for _, thread := range r.load.threads {
		thread.history.close()
	}
	c.acked += r.load.acked.Load()
	c.check(r)
}

// begin starts the clients and followers of a round.
func (c *chaos) begin(n int) *chaosRound {
	r := &chaosRound{load: newLoad(), counts: &c.counts}
	r.dial(c.t, c.nearAddresses())
	for i := range max(2, *chaosThreads/2) {
		thread := r.load.thread(fmt.Sprintf("chaos-%d-%d", n, i), true)
		thread.history = newHistory()
		for j := range 2 {
			ctx, cancel := context.WithCancel(c.t.Context())
			f := &follower{thread: thread.id, history: thread.history, cancel: cancel}
			r.followers = append(r.followers, f)
			reader := newLoadClient(r.load, r.nodes, c.seed+uint64(j), "tail")
			if j == 0 {
				r.tails.Go(func() { f.follow(ctx, reader) })
			} else {
				r.tails.Go(func() { f.followByLibrary(ctx, r.library) })
			}
		}
	}
	for i := range *chaosThreads {
		client := &chaosClient{newLoadClient(r.load, r.nodes, c.seed+uint64(n*1000+i), fmt.Sprintf("n%dc%d", n, i)), r}
		client.loadClient.tune = client.tune
		for j := range 2 {
			client.threads = append(client.threads, r.load.threads[(i+j)%len(r.load.threads)])
		}
		r.load.clients.Go(func() {
			if err := client.work(c.t.Context()); err != nil {
				r.load.fail(err)
			}
		})
	}
	c.t.Cleanup(r.load.clients.Wait)
	return r
}

// fault lets one thing fail, and mends it.
func (c *chaos) fault() {
	c.t.Helper()
	pause := time.Duration(c.rnd.IntN(1000)) * time.Millisecond
	server := c.servers[c.rnd.IntN(chaosNodes)]
	name := ""
	switch c.rnd.IntN(14) {
	case 0, 1, 2:
		name = "server killed"
		server.kill()
		time.Sleep(pause / 4)
		server.start()
	case 3, 4:
		name = "backends terminated"
		c.terminate()
	case 5:
		name = "Postgres stopped at once"
		c.crashDatabase(pause / 2)
	case 6, 7:
		if !*chaosClocks {
			return
		}
		name = "clock set"
		ahead := time.Duration(c.rnd.IntN(7200)-3600) * time.Second
		if err := server.moveClock(ahead); err != nil {
			c.t.Error(err)
		}
	default:
		name = c.disturb(pause)
	}
	c.faults[name]++
}

// disturb makes the network bad on one side of one server for a while.
func (c *chaos) disturb(pause time.Duration) string {
	proxies, side := c.near, "client side"
	if c.rnd.IntN(2) == 0 {
		proxies, side = c.far, "database side"
	}
	p := proxies[c.rnd.IntN(chaosNodes)]
	switch c.rnd.IntN(3) {
	case 0:
		p.delay.Store(int64(pause / 20))
		time.Sleep(pause)
		p.delay.Store(0)
		return "latency, " + side
	case 1:
		p.cut()
		return "reset, " + side
	}
	p.dig()
	time.Sleep(pause)
	p.fill()
	return "blackhole, " + side
}

// terminate ends some of the connections of the database.
func (c *chaos) terminate() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	if err := storetest.TerminateBackends(ctx, c.db.URL(crashDatabase), 3, c.rnd.IntN(3)); err != nil {
		c.t.Error(err)
	}
}

func (c *chaos) crashDatabase(pause time.Duration) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Minute)
	defer cancel()
	if err := c.db.Crash(ctx); err != nil {
		c.t.Fatal(err)
	}
	time.Sleep(pause)
	if err := c.db.Restart(ctx); err != nil {
		c.t.Fatal(err)
	}
}

// check checks the threads of a round, when nobody writes to them any more.
func (c *chaos) check(r *chaosRound) {
	c.t.Helper()
	db, err := store.Open(c.t.Context(), store.Options{URL: c.db.URL(crashDatabase)})
	if err != nil {
		c.t.Fatal(err)
	}
	defer db.Close()
	client := newLoadClient(newLoad(), r.nodes, 0, "reader")
	for _, thread := range r.load.threads {
		if thread.existed() {
			c.checkThread(r, thread, client, db)
		}
	}
}

// checkThread ends the run that is still active, if there is one, reads everything, and looks what is wrong with it.
func (c *chaos) checkThread(r *chaosRound, thread *loadThread, client *loadClient, db store.Store) {
	c.t.Helper()
	var record *threadRecord
	known := &chaosRecord{thread: thread}
	err := client.again(c.t.Context(), time.Minute, func(ctx context.Context) (err error) {
		if known.runs, err = settle(ctx, client.rpc, thread.id); err == nil {
			record, err = readRecord(ctx, client.rpc, db, thread.id)
		}
		return err
	})
	if err != nil {
		c.t.Errorf("%s: %v %s", thread.id, err, detailsOf(err))
		return
	}
	known.entries = record.entries
	for _, f := range r.followers {
		if f.thread == thread.id {
			f.await(uint64(len(record.entries)), 30*time.Second)
			f.mu.Lock()
			known.tails = append(known.tails, slices.Clone(f.seen))
			f.mu.Unlock()
		}
	}
	c.checked++
	c.entries += len(record.entries)
	for _, f := range slices.Concat(checkThread(thread, record), checkChaos(known), c.checkHistory(thread, record)) {
		c.found[f.kind]++
		c.t.Errorf("%s: %s", f.kind, f.text)
	}
}

// settle ends the active run and returns all runs.
func settle(ctx context.Context, rpc threadsvcv1.ThreadServiceClient, thread string) (runs []*threadsvcv1.Run, err error) {
	for token := ""; ; {
		page, err := rpc.ListRuns(ctx, &threadsvcv1.ListRunsRequest{Thread: threadName(thread), PageSize: 500, PageToken: token})
		if err != nil {
			return nil, err
		}
		for _, run := range page.GetRuns() {
			if run.GetStatus() == threadsvcv1.RunStatus_RUN_STATUS_ACTIVE {
				ended, err := rpc.EndRun(ctx, &threadsvcv1.EndRunRequest{Thread: threadName(thread), RunId: run.GetRunId(), Reason: "the round is over"})
				if err != nil {
					return nil, err
				}
				run = ended.GetRun()
			}
			runs = append(runs, run)
		}
		if token = page.GetNextPageToken(); token == "" {
			return runs, nil
		}
	}
}

// tell prints what was done and what was found.
func (c *chaos) tell() {
	n := &c.counts
	c.found[undeleted] += int(n.undeleted.Load())
	fmt.Printf("chaos: seed %d: %d runs (%d by the client library), %d events acked, %d log entries, %d ends, %d deletes, %d reads, %d streams abandoned, %d old tokens tried, %d threads checked\n",
		c.seed, n.runs.Load(), n.byLibrary.Load(), c.acked, c.entries, n.ends.Load(), n.deletes.Load(), n.reads.Load(), n.abandoned.Load(), n.probes.Load(), c.checked)
	var faults []string
	for _, name := range slices.Sorted(maps.Keys(c.faults)) {
		faults = append(faults, fmt.Sprintf("%s %d", name, c.faults[name]))
	}
	fmt.Printf("chaos: %d operations in %d histories checked for linearizability, %d not decided, the slowest in %v\n",
		c.operations, c.checked, c.undecided, c.slowest.Round(time.Millisecond))
	if c.undecided > 0 && c.undecided == c.checked {
		c.t.Error("no history was decided")
	}
	fmt.Printf("chaos: faults: %s\n", strings.Join(faults, "; "))
	for _, kind := range chaosKinds {
		fmt.Printf("chaos: %s: %d\n", kind, c.found[kind])
		if c.found[kind] > 0 {
			c.t.Errorf("%s: %d", kind, c.found[kind])
		}
	}
}
