package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// sqlLocked finds the heads that would have taken their commits: they were left out because of a lock. It is asked only
// when a head took none, so that a lock costs those nothing who have nothing to do with it.
const sqlLocked = `
SELECT t.thread_key
FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::boolean[])
    AS i (thread_key, expect_version, expect_fence, expect_expired)
JOIN threads t ON t.thread_key = i.thread_key
WHERE t.version = i.expect_version AND t.fence = i.expect_fence AND (t.lease_expires_at < now() OR NOT i.expect_expired)`

// tellLocked tells locked heads from those that another writer has changed. Where it cannot ask, the conflict stands, which
// is never wrong: the thread is read anew.
func (p *Postgres) tellLocked(ctx context.Context, group []member) {
	conflicts := map[Key]*Result{}
	var commits []*Commit
	for _, m := range group {
		if errors.Is(m.result.Err, ErrConflict) && m.commit.Create == nil {
			conflicts[m.commit.Key] = m.result
			commits = append(commits, m.commit)
		}
	}
	if len(commits) == 0 {
		return
	}
	locked, err := query(ctx, p, scanKey, sqlLocked,
		column(commits, func(c *Commit) pgtype.UUID { return uuid(c.Key) }),
		column(commits, func(c *Commit) int64 { return bigint(c.ExpectVersion) }),
		column(commits, func(c *Commit) int64 { return bigint(c.ExpectFence) }),
		column(commits, func(c *Commit) bool { return c.ExpectExpired }))
	if err != nil {
		return
	}
	for _, key := range locked {
		conflicts[key].Err = ErrLocked
	}
}

func scanKey(row pgx.CollectableRow) (Key, error) {
	var key pgtype.UUID
	err := row.Scan(&key)
	return key.Bytes, err
}
