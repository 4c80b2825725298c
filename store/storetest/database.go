package storetest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/embedded"
)

// template is the migrated database that test databases are copies of.
const template = "threadsvc_template"

// cluster is the Postgres server of the test binary, started by the first test that needs it.
var cluster struct {
	start  sync.Once
	server *embedded.Server
	err    error
	count  atomic.Int64
}

// Main is for TestMain of a package whose tests call Database: it runs the tests, stops the server and exits.
func Main(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	code := m.Run()
	if cluster.server == nil {
		return code
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := cluster.server.Stop(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "storetest:", err)
		return max(code, 1)
	}
	return code
}

// Database returns the URL of a new, migrated, empty database of the test's own, which is dropped when the test ends.
// All of a test binary's databases are on one private server, which does not sync to disk.
func Database(t testing.TB) string {
	t.Helper()
	cluster.start.Do(func() { cluster.server, cluster.err = startCluster() })
	if cluster.err != nil {
		t.Fatalf("storetest: no Postgres: %v", cluster.err)
	}
	name := fmt.Sprintf("test_%d", cluster.count.Add(1))
	if err := cluster.server.CloneDatabase(t.Context(), template, name); err != nil {
		t.Fatalf("storetest: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := cluster.server.DropDatabase(ctx, name); err != nil {
			t.Errorf("storetest: %v", err)
		}
	})
	return cluster.server.URL(name)
}

// Open returns a Postgres store on a database of the test's own, closed when the test ends.
func Open(t testing.TB) *store.Postgres {
	t.Helper()
	db, err := store.Open(t.Context(), store.Options{URL: Database(t), MaxConns: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

func startCluster() (*embedded.Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	server, err := embedded.Start(ctx, embedded.Options{
		NoSync:   true,
		Settings: map[string]string{"max_connections": "300", "autovacuum": "off"},
	})
	if err != nil {
		return nil, err
	}
	if err = server.CreateDatabase(ctx, template); err == nil {
		err = store.Migrate(ctx, server.URL(template))
	}
	if err != nil {
		_ = server.Stop(ctx)
		return nil, err
	}
	return server, nil
}
