package service_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/embedded"
)

var (
	crashKills   = flag.Int("crash.kills", 4, "how often TestCrash kills the server")
	crashDBKills = flag.Int("crash.dbkills", 1, "how often TestCrash crashes Postgres")
	crashSeed    = flag.Uint64("crash.seed", 0, "seed of TestCrash; 0 means a new one")
)

const (
	crashNodes   = 2
	crashClients = 16
	crashThreads = 3 // of each client's own
)

// TestCrash kills the two nodes of a service, and Postgres, at random moments while clients record runs, and proves that
// nothing acknowledged is lost, nothing is recorded twice, and every thread is what its log amounts to and can go on.
func TestCrash(t *testing.T) {
	t.Parallel()
	seed := *crashSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-crash.seed=%d", seed)
	db := startDatabase(t)
	c := &crashing{t: t, db: db, rnd: rand.New(rand.NewPCG(seed, 0)), found: map[findingKind]int{}}
	for range crashNodes {
		c.servers = append(c.servers, startProcess(t, db.URL(crashDatabase)))
		c.addresses = append(c.addresses, c.servers[len(c.servers)-1].address)
	}
	c.load = startLoad(t.Context(), t, c.addresses, crashClients, crashThreads, seed)
	c.strike(*crashKills, *crashDBKills)
	if err := c.load.stop(); err != nil {
		t.Fatal(err)
	}
	c.check()
	c.finish(seed)
	c.check()
	fmt.Printf("crash: %d server kills, %d database kills, %d events acked, %d threads, %d lost, %d doubled, %d folds differ\n",
		*crashKills, *crashDBKills, c.load.acked.Load(), c.checked, c.found[lost], c.found[doubled], c.found[differs])
}

const crashDatabase = "crash"

// startDatabase starts a Postgres of the test's own, as durable as one in production.
func startDatabase(t *testing.T) *embedded.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	db, err := embedded.Start(ctx, embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := db.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	if err := db.CreateDatabase(ctx, crashDatabase); err != nil {
		t.Fatal(err)
	}
	if err := store.Migrate(ctx, db.URL(crashDatabase)); err != nil {
		t.Fatal(err)
	}
	return db
}

// crashing is a crash test that is under way.
type crashing struct {
	t         *testing.T
	rnd       *rand.Rand
	db        *embedded.Server
	servers   []*process
	addresses []string
	load      *load

	checked int
	found   map[findingKind]int
}

// strike kills servers and the database in a random order, each time after some progress.
func (c *crashing) strike(kills, dbKills int) {
	blows := slices.Concat(slices.Repeat([]func(){c.killServer}, kills), slices.Repeat([]func(){c.crashDatabase}, dbKills))
	c.rnd.Shuffle(len(blows), func(i, j int) { blows[i], blows[j] = blows[j], blows[i] })
	for _, blow := range blows {
		c.progress()
		time.Sleep(time.Duration(c.rnd.IntN(40_000)) * time.Microsecond)
		blow()
	}
	c.progress()
}

// progress waits until the clients got on.
func (c *crashing) progress() {
	c.t.Helper()
	if err := c.load.await(c.t.Context(), 50+c.rnd.Int64N(500)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *crashing) killServer() {
	server := c.servers[c.rnd.IntN(len(c.servers))]
	server.kill()
	server.start()
}

func (c *crashing) crashDatabase() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Minute)
	defer cancel()
	if err := c.db.Crash(ctx); err != nil {
		c.t.Fatal(err)
	}
	time.Sleep(time.Duration(c.rnd.IntN(200)) * time.Millisecond)
	if err := c.db.Restart(ctx); err != nil {
		c.t.Fatal(err)
	}
}

// check checks every thread that anybody was told of.
func (c *crashing) check() {
	c.t.Helper()
	db, err := store.Open(c.t.Context(), store.Options{URL: c.db.URL(crashDatabase)})
	if err != nil {
		c.t.Fatal(err)
	}
	defer db.Close()
	client := newLoadClient(newLoad(), dialAll(c.t, c.addresses), 0, "reader")
	c.checked = 0
	for _, thread := range c.load.threads {
		if !thread.existed() {
			continue
		}
		var record *threadRecord
		err := client.again(c.t.Context(), time.Minute, func(ctx context.Context) (err error) {
			record, err = readRecord(ctx, client.rpc, db, thread.id)
			return err
		})
		if err != nil {
			c.t.Errorf("%s: %v", thread.id, err)
			continue
		}
		c.checked++
		for _, f := range checkThread(thread, record) {
			c.found[f.kind]++
			c.t.Errorf("%s: %s", f.kind, f.text)
		}
	}
}

// finish records another run on every thread, to its end.
func (c *crashing) finish(seed uint64) {
	c.t.Helper()
	client := newLoadClient(newLoad(), dialAll(c.t, c.addresses), seed, "last")
	for _, thread := range c.load.threads {
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
		stream, err := client.start(ctx, thread, client.newStream(thread, false))
		if err == nil {
			err = client.send(ctx, thread, stream)
		}
		cancel()
		if err != nil {
			c.t.Fatalf("%s: %v", thread.id, err)
		}
		if stream.acked != len(stream.events) {
			c.t.Errorf("%s: %d of %d events of the last run were acknowledged", thread.id, stream.acked, len(stream.events))
		}
	}
}
