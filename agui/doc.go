// Package agui is the AG-UI protocol as a consumer must apply it: bytes in; canonical events, warnings, violations and
// folded threads out. It is pure: no I/O, no clock, no goroutine, and nothing here is safe for concurrent use unless
// it says so.
//
// An event passes through the protocol's stages in this order:
//
//	decode → compatibility → enforce → expand chunks → verify → reduce
//
// Decode reads one event and enforces its shape (decode.go, shape.go, schema.go). A Thread translates retired shapes,
// expands chunks (chunk.go), verifies the sequence (verify.go) and folds the canonical events into state and messages
// (reduce.go, snapshot.go). What a Thread accepted is described by log entries (entry.go); replaying the entries with
// Thread.Replay gives the very same Thread, which is how stored threads are loaded.
package agui
