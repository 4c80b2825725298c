package store

import (
	"crypto/sha256"
	"encoding/hex"
)

// Key is what a thread's rows are stored under: the first 16 bytes of SHA-256(tenant ‖ 0 ‖ threadId). It is known
// without a look-up, never moves, and spreads evenly over shards.
type Key [16]byte

// KeyOf returns the key of a tenant's thread. tenant must not contain NUL.
func KeyOf(tenant, threadID string) Key {
	h := sha256.New()
	h.Write([]byte(tenant))
	h.Write([]byte{0})
	h.Write([]byte(threadID))
	return Key(h.Sum(nil)[:16])
}

func (k Key) String() string { return hex.EncodeToString(k[:]) }
