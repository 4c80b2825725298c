package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// maxGroup and maxGroupBytes bound what one transaction writes: arrays of the database's protocol are limited.
	maxGroup      = 512
	maxGroupBytes = 64 << 20
)

// member is a commit of a group and the place of its result.
type member struct {
	commit *Commit
	result *Result
}

// Commit implements Store. The commits of a call share transactions, so that round trips and the flush of the log are
// shared. A group of commits with nothing but segments is one statement in one round trip; any other is one transaction
// of four, or five if a state's patches are folded.
//
// When a group fails because of one member, as with a taken run id, the transaction was rolled back as a whole; each
// member is then tried alone, so that only the culprit fails.
func (p *Postgres) Commit(ctx context.Context, commits []*Commit) []Result {
	results := make([]Result, len(commits))
	seen := make(map[Key]bool, len(commits))
	var group []member
	size := 0
	for i, c := range commits {
		if results[i].Err = checkMember(c, seen); results[i].Err != nil {
			continue
		}
		c.pack()
		weight := c.weight()
		if len(group) == maxGroup || (len(group) > 0 && size+weight > maxGroupBytes) {
			p.commitGroup(ctx, group)
			group, size = group[:0], 0
		}
		group, size = append(group, member{c, &results[i]}), size+weight
	}
	p.commitGroup(ctx, group)
	return results
}

func checkMember(c *Commit, seen map[Key]bool) error {
	if seen[c.Key] {
		return fmt.Errorf("%w of thread %s: another one is in the same call", ErrInvalid, c.Key)
	}
	seen[c.Key] = true
	return c.Check()
}

func (p *Postgres) commitGroup(ctx context.Context, group []member) {
	if len(group) == 0 {
		return
	}
	err := classify(retry(ctx, safeWrite, func() error { return p.writeGroup(ctx, group) }))
	if err != nil && len(group) > 1 && !errors.Is(err, ErrUnavailable) {
		for i := range group {
			p.commitGroup(ctx, group[i:i+1])
		}
		return
	}
	if err != nil {
		for _, m := range group {
			*m.result = Result{Err: err}
		}
		return
	}
	p.tellLocked(ctx, group)
}

// writeGroup writes a group in one transaction and sets its results, which hold only if the error is nil.
func (p *Postgres) writeGroup(ctx context.Context, group []member) error {
	commits := column(group, func(m member) *Commit { return m.commit })
	if onlyAppends(commits) {
		heads, err := appendEntries(ctx, p.pool, commits)
		settle(group, heads, nil)
		return err
	}
	return p.inTransaction(ctx, sqlBegin, func(tx pgx.Tx) error { return writeIn(ctx, tx, group) })
}

// writeIn writes a group within a transaction and sets its results.
func writeIn(ctx context.Context, tx pgx.Tx, group []member) error {
	taken, err := takeHeads(ctx, tx, column(group, func(m member) *Commit { return m.commit }))
	if err != nil {
		return err
	}
	return writeRows(ctx, tx, settle(group, taken.heads, taken.deleted), taken)
}

// settle sets the results of a group by the heads that took its commits, and returns those commits. deleted are the threads
// that were not made because they were erased before.
func settle(group []member, heads []written, deleted map[Key]time.Time) []*Commit {
	byKey := make(map[Key]written, len(heads))
	for _, h := range heads {
		byKey[h.key] = h
	}
	matched := make([]*Commit, 0, len(heads))
	for _, m := range group {
		if at, ok := deleted[m.commit.Key]; ok {
			*m.result = Result{Err: &DeletedError{DeletedAt: at}}
			continue
		}
		h, ok := byKey[m.commit.Key]
		if !ok {
			*m.result = Result{Err: ErrConflict}
			continue
		}
		*m.result = Result{CommittedAt: h.now.UTC(), LeaseExpiresAt: timeOrZero(h.leaseExpiresAt)}
		matched = append(matched, m.commit)
	}
	return matched
}

// taken is what is known once the heads are locked: those that matched, those that were erased before, how the states of
// the folding ones stand, the blocks of messages that change, and which chunks are kept already.
type taken struct {
	heads   []written
	deleted map[Key]time.Time
	sizes   map[Key]stateSizes
	blocks  map[Key][]messageBlock
	held    map[chunkName]bool
}

// takeHeads compares and updates the heads, which locks them, and then reads what the rest of the commits depends on.
func takeHeads(ctx context.Context, tx pgx.Tx, commits []*Commit) (*taken, error) {
	t := &taken{
		deleted: map[Key]time.Time{}, sizes: map[Key]stateSizes{}, blocks: map[Key][]messageBlock{}, held: map[chunkName]bool{},
	}
	batch := &pgx.Batch{}
	queueHeads(batch, commits, &t.heads, t.deleted)
	if folding := foldingOf(commits); len(folding) > 0 {
		queueStateSizes(batch, folding, t.sizes)
		queueChangedBlocks(batch, folding, t.blocks)
	}
	queueHeldContents(batch, commits, t.held)
	return t, tx.SendBatch(ctx, batch).Close()
}

// writeRows writes everything but the heads.
func writeRows(ctx context.Context, tx pgx.Tx, commits []*Commit, t *taken) error {
	if len(commits) == 0 {
		return nil
	}
	folding := foldingOf(commits)
	plan, err := planStates(ctx, tx, folding, t.sizes)
	if err != nil {
		return err
	}
	batch := &pgx.Batch{}
	queueContents(batch, commits, t.held)
	queueSegments(batch, commits, t.held)
	queueRuns(batch, commits)
	queueFolds(batch, folding, plan)
	queueMessages(batch, folding, t.blocks)
	queueStates(batch, plan)
	queueWarnings(batch, commits)
	if batch.Len() == 0 {
		return nil
	}
	reserveFor(tx, batch)
	return tx.SendBatch(ctx, batch).Close()
}

func foldingOf(commits []*Commit) (folding []*Commit) {
	for _, c := range commits {
		if c.Fold != nil {
			folding = append(folding, c)
		}
	}
	return folding
}

// weight is the size of what a commit writes, in bytes of plain text.
func (c *Commit) weight() int {
	size := 0
	for _, s := range c.Segments {
		size += len(s.Entries)
	}
	for _, r := range c.Updated {
		size += len(r.Outcome) + len(r.Result) + len(r.Usage) + len(r.Error)
	}
	if c.Fold != nil {
		size += len(c.Fold.Tracking) + len(c.Fold.State.Replaced)
		for _, m := range c.Fold.Upserts {
			size += len(m.Body)
		}
		for _, p := range c.Fold.State.Patches {
			size += len(p.Patch)
		}
	}
	return size
}
