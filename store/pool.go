package store

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// connectTimeout and connectTimeoutEach bound the making of a connection to the only host, and to one of several: what a
	// host that is gone without a word costs before the next one is tried.
	connectTimeout     = 5 * time.Second
	connectTimeoutEach = 2 * time.Second
	// idleTrust is how long a connection may have been idle and is still used without a question; pongTimeout bounds the
	// answer. A connection that is half open, or whose packets are swallowed, is found out so before a call hangs on it.
	idleTrust   = time.Second
	pongTimeout = 2 * time.Second
)

// poolConfig is how the pool connects, and which connections it throws away.
func (p *Postgres) poolConfig(opts Options) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(opts.URL)
	if err != nil {
		return nil, err
	}
	config.MaxConns = cmp.Or(max(opts.MaxConns, 0), 16)
	conn := config.ConnConfig
	each := connectTimeout
	if hasSeveralHosts(&conn.Config) {
		each = connectTimeoutEach
		if conn.ValidateConnect == nil {
			conn.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
		}
	}
	conn.ConnectTimeout = cmp.Or(conn.ConnectTimeout, opts.ConnectTimeout, each)
	conn.Tracer = opts.tracer
	conn.OnPgError = p.keepsConnection
	config.AfterConnect = registerTypes
	config.ShouldPing = p.isStale
	return config, nil
}

// hasSeveralHosts tells several hosts from one that is tried with and without TLS.
func hasSeveralHosts(config *pgconn.Config) bool {
	for _, f := range config.Fallbacks {
		if f.Host != config.Host || f.Port != config.Port {
			return true
		}
	}
	return false
}

// keepsConnection reports whether a connection that has brought an error of the server may be used again. When the server
// takes no more writes all the connections lead to the wrong one; when it ends, those that are idle do not know it yet.
func (p *Postgres) keepsConnection(_ *pgconn.PgConn, err *pgconn.PgError) bool {
	switch err.Code {
	case readOnlyTransaction, adminShutdown, crashShutdown, cannotConnectNow:
		p.renew()
		return false
	}
	return err.Severity != "FATAL" && err.SeverityUnlocalized != "FATAL" && !strings.HasPrefix(err.Code, "08")
}

// isStale finds out whether a connection that was idle still leads anywhere. If not, those that are idle as well are
// thrown away with it, since waiting for each in turn would take longer than calls have time.
func (p *Postgres) isStale(ctx context.Context, at pgxpool.ShouldPingParams) bool {
	if at.IdleDuration <= idleTrust {
		return false
	}
	pong, cancel := context.WithTimeout(ctx, pongTimeout)
	defer cancel()
	err := at.Conn.Ping(pong)
	if err != nil && ctx.Err() == nil {
		p.renew()
	}
	return err != nil // the pool's own ping then fails at once, since this one has closed the connection
}

// renew throws all connections away: the idle ones now, the others when they come back.
func (p *Postgres) renew() {
	if pool := p.current.Load(); pool != nil {
		pool.Reset()
	}
}
