package store

import "github.com/jackc/pgx/v5"

// Traced is opts with a tracer of statements.
func Traced(opts Options, tracer pgx.QueryTracer) Options {
	opts.tracer = tracer
	return opts
}

// SafeWrite, SafeRead and Classify are what decides about retries and errors.
var (
	SafeWrite = safeWrite
	SafeRead  = safeRead
	Classify  = classify
	Unpack    = unpack
	Pack      = pack
	PackFold  = packFold

	PackEntries      = packEntries
	PackEntriesDense = packEntriesDense
	EncodeTimes      = encodeTimes
	DecodeTimes      = decodeTimes
)

// LedgerStatement and SummaryStatement are the statements of the ledger with their arguments.
var (
	LedgerStatement  = ledgerStatement
	SummaryStatement = summaryStatement
)

// SQLLockUnchanged is the statement before which a sweep has marked, and after which it removes.
const SQLLockUnchanged = sqlLockUnchanged

// SQLLockForRebase is the statement by which a sweep locks a thread to store its state anew.
const SQLLockForRebase = sqlLockForRebase
