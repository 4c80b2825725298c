// Package storetest holds what every store must do, as one suite, an in-memory model that passes it, and databases for
// tests.
package storetest

import (
	"testing"

	"github.com/threadsvc/threadsvc/store"
)

// Run runs the suite. open returns an empty store of the given test's own and sees to its end; it is called in parallel.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	for name, test := range map[string]func(*testing.T, store.Store){
		"append then read":              testAppend,
		"head":                          testHead,
		"not found":                     testNotFound,
		"conflicts":                     testConflicts,
		"conflict isolation in a group": testConflictIsolation,
		"duplicate run":                 testDuplicateRun,
		"invalid commits":               testInvalid,
		"concurrent creates":            testConcurrentCreates,
		"concurrent appends":            testConcurrentAppends,
		"groups in opposite order":      testOppositeGroups,
		"lease":                         testLease,
		"commit to an expired lease":    testExpectExpired,
		"keeping a lease":               testKeepLease,
		"commit that holds the head":    testCommitHeld,
		"held commits that fail":        testCommitHeldRefused,
		"held commits among writers":    testCommitHeldAmongWriters,
		"expired leases":                testExpired,
		"fencing off":                   testFence,
		"what has come since":           testSince,
		"values are kept":               testValuesKept,
		"large values":                  testLargeValues,
		"runs":                          testRuns,
		"fold":                          testFold,
		"fold alone":                    testFolded,
		"state patches":                 testStatePatches,
		"input of the open run":         testInput,
		"log pages":                     testLogPages,
		"stream lookup":                 testStream,
		"warnings":                      testWarnings,
		"ledger":                        testLedger,
		"ledger beyond a search":        testLedgerScan,
		"ledger that grows":             testLedgerGrows,
		"summary of warnings":           testWarningSummary,
		"import of a deleted thread":    testImportDeleted,
		"list threads":                  testThreads,
		"list threads by label":         testLabels,
		"metadata":                      testMetadata,
		"delete":                        testDelete,
		"tombstone":                     testTombstone,
		"create during a delete":        testCreateDuringDelete,
		"version at a time":             testVersionAt,
		"checkpoints":                   testCheckpoints,
		"evidence":                      testEvidence,
		"names":                         testNames,
		"import":                        testImport,
		"tenants":                       testTenants,
		"positions":                     testPositions,
		"plans of cuts":                 testPlanCut,
		"cuts":                          testCut,
		"retention policies":            testPolicies,
		"ended context":                 testEndedContext,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}
