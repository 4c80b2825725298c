// Package service is threadsvc's gRPC service: it keeps live threads folded in memory, commits what they append through a
// pipeline shared by all of them, and translates between the contract in proto and the packages agui and store. It holds
// no SQL, and nothing that Postgres does not have: any node can serve any thread at any time.
package service

import (
	"log/slog"
	"sync"
	"time"

	"github.com/threadsvc/threadsvc/agui"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
)

// Config is what a Service can be told. Zero fields mean the defaults.
type Config struct {
	// Limits bound events, states and threads.
	Limits agui.Limits
	// LeaseTTL is the lease of runs that do not ask for one; MaxLeaseTTL bounds those that do.
	LeaseTTL, MaxLeaseTTL time.Duration
	// CacheBytes bounds the memory of live threads that are not in use. Open AppendEvents streams take from it, up to three
	// quarters.
	CacheBytes int64
	// QueueBytes bounds what one thread may have folded and not yet committed; appends wait beyond it.
	QueueBytes int
	// FoldBytes is the size of a thread's log since its stored fold that makes a commit write a new one before the run
	// ends.
	FoldBytes int
	// Committers is the number of transactions under way at once; CommitThreads bounds the threads in one.
	Committers, CommitThreads int
	// StoreTimeout bounds every call of the store. Reads is the number of those that read which are under way at once, Writes
	// that of those that write something else than commits; together they must be below the number of the store's
	// connections, so that what is to be committed always finds one.
	StoreTimeout  time.Duration
	Reads, Writes int
	// WaitersPerThread and Waiters bound the StartRun calls that wait for the active run of a thread, and of all threads;
	// negative means that none may.
	WaitersPerThread, Waiters int
	// ReapInterval is how often runs whose lease has ended are looked for, to be closed; negative means never. ReapGrace is how
	// long none are after a start, and after the database could not be asked, so that producers who could not append for that
	// reason can come back; 0 means LeaseTTL, negative means none.
	ReapInterval, ReapGrace time.Duration
	// MergeRate is how many bytes of log entries a second are merged into larger segments once their runs are over;
	// negative means none, and no checkpoints, which come with it.
	MergeRate int64
	// PruneInterval is how often threads are looked for that their tenant's policy prunes; negative means never. PrunePause is
	// the pause after each step of that. PruneGrace keeps runs that ended so recently, since their producers may send again
	// what they had no acknowledgement of; negative means none.
	PruneInterval, PrunePause, PruneGrace time.Duration
	// CheckpointBytes is the least log between two checkpoints of a thread, in bytes of plain entries.
	CheckpointBytes int64
	// ScanBytes is about how much log one call looks at that goes back over it.
	ScanBytes int
	// Window is the number of unacknowledged batches that one AppendEvents stream may have. No more are read either when their
	// events are longer than WindowBytes together.
	Window, WindowBytes int
	// TailPoll is how often the store is asked what other servers have committed to the threads that are followed here.
	// TailBytes bounds the memory of what followers share. ReaderTimeout is how long a follower may leave a message
	// unread before it is cut off.
	TailPoll      time.Duration
	TailBytes     int
	ReaderTimeout time.Duration
	Logger        *slog.Logger
}

func (c Config) withDefaults() Config {
	orElse(&c.Limits, agui.DefaultLimits())
	orElse(&c.LeaseTTL, 30*time.Second)
	orElse(&c.MaxLeaseTTL, time.Hour)
	orElse(&c.CacheBytes, 256<<20)
	orElse(&c.QueueBytes, 8<<20)
	orElse(&c.FoldBytes, 256<<10)
	orElse(&c.Committers, 4)
	orElse(&c.CommitThreads, 256)
	orElse(&c.StoreTimeout, 10*time.Second)
	orElse(&c.Reads, 4)
	orElse(&c.Writes, 2)
	orElse(&c.WaitersPerThread, 16)
	orElse(&c.Waiters, 1000)
	orElse(&c.ReapInterval, 5*time.Second)
	orElse(&c.ReapGrace, c.LeaseTTL)
	orElse(&c.MergeRate, 16<<20)
	orElse(&c.PruneInterval, time.Minute)
	orElse(&c.PrunePause, 5*time.Millisecond)
	orElse(&c.PruneGrace, time.Hour)
	orElse(&c.CheckpointBytes, 2<<20)
	orElse(&c.ScanBytes, 32<<20)
	orElse(&c.Window, 64)
	orElse(&c.WindowBytes, 1<<20)
	orElse(&c.TailPoll, 50*time.Millisecond)
	orElse(&c.TailBytes, 64<<20)
	orElse(&c.ReaderTimeout, 30*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func orElse[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Service implements threadsvc.v1.ThreadService, HistoryService and RetentionService. Create it with New, and Close it after the last call has returned.
type Service struct {
	threadsvcv1.UnimplementedThreadServiceServer
	threadsvcv1.UnimplementedHistoryServiceServer
	threadsvcv1.UnimplementedRetentionServiceServer

	cfg       Config
	store     store.Store
	cache     *cache
	committer *committer
	merger    *merger
	walks     walks
	reaper    *reaper
	pruner    *pruner
	reads     gate
	writes    gate
	turns     *turns
	waiting   *waitRoom
	tails     *tails
	exchanges *exchanges
	deep      *deep
	imports   chan struct{} // has room for one of each import under way

	drain    chan struct{} // closed when streams shall end
	drainOne sync.Once
	streams  sync.WaitGroup // senders of AppendEvents and ReadLog, receivers of ImportThread, what ends the open streams
}

// New returns a service on a store, which stays the caller's.
func New(st store.Store, cfg Config) *Service {
	cfg = cfg.withDefaults()
	s := &Service{cfg: cfg, store: st, drain: make(chan struct{}), imports: make(chan struct{}, maxImports)}
	s.cache = newCache(cfg.CacheBytes)
	s.tails, s.exchanges = newTails(st, cfg), newExchanges()
	s.deep = newDeep()
	s.reads, s.writes, s.turns = newGate(cfg.Reads), newGate(cfg.Writes), newTurns()
	s.waiting = newWaitRoom(cfg.WaitersPerThread, cfg.Waiters)
	s.merger = newMerger(st, cfg, s.layCheckpoints)
	s.committer = newCommitter(st, cfg, s.cache, s.tails, s.waiting.ended, s.merger.grew, s.drain)
	s.reaper = newReaper(s)
	s.pruner = newPruner(s)
	return s
}

// Drain makes the open streams end: each gets the acknowledgements of what it has sent, and then UNAVAILABLE. New
// streams are refused. It returns at once.
func (s *Service) Drain() {
	s.drainOne.Do(func() {
		close(s.drain)
		s.streams.Go(s.exchanges.end)
	})
}

// Close commits what is queued and waits for the service's goroutines.
func (s *Service) Close() {
	s.Drain()
	s.streams.Wait()
	s.deep.close()
	s.pruner.close()
	s.reaper.close()
	s.merger.close()
	s.committer.close()
	s.tails.close()
}

func (s *Service) draining() bool {
	select {
	case <-s.drain:
		return true
	default:
		return false
	}
}
