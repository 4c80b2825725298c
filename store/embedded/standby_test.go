package embedded

import (
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
)

// What a synchronous standby acknowledged is there when it is promoted; the former primary comes back read-only.
func TestStandby(t *testing.T) {
	t.Parallel()
	primary, err := Start(limit(t), Options{Dir: filepath.Join(publicDir(t), "a"), NoSync: true, Settings: synced})
	must(t, err)
	defer func() { must(t, primary.Stop(limit(t))) }()
	standby, err := Start(limit(t), Options{Dir: filepath.Join(publicDir(t), "b"), StandbyOf: primary, NoSync: true, Settings: synced})
	must(t, err)
	defer func() { must(t, standby.Stop(limit(t))) }()
	must(t, primary.Synchronous(limit(t)))
	query(t, primary, "postgres", "CREATE TABLE t(v text)")
	query(t, primary, "postgres", "INSERT INTO t VALUES ('kept') RETURNING v")
	wantReadOnly(t, standby)

	must(t, primary.Crash(limit(t)))
	must(t, standby.Promote(limit(t)))
	want(t, "what was committed", query(t, standby, "postgres", "SELECT v FROM t"), "kept")
	query(t, standby, "postgres", "INSERT INTO t VALUES ('after') RETURNING v")

	must(t, primary.Demote())
	must(t, primary.Restart(limit(t)))
	wantReadOnly(t, primary)
}

func wantReadOnly(t *testing.T, s *Server) {
	t.Helper()
	conn, err := pgx.Connect(limit(t), s.URL("postgres"))
	must(t, err)
	defer conn.Close(limit(t))
	if _, err := conn.Exec(limit(t), "CREATE TABLE never(v text)"); err == nil {
		t.Error("a standby took a write")
	}
}

// synced is what NoSync must not take from a primary with standbys.
var synced = map[string]string{"synchronous_commit": "on"}
