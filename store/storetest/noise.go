package storetest

import (
	"encoding/hex"
	"math/rand/v2"
)

// Noise returns n bytes of text that compresses badly, always the same for a seed.
func Noise(seed, n int) string {
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	raw := make([]byte, (n+1)/2)
	for i := range raw {
		raw[i] = byte(random.Uint32())
	}
	return hex.EncodeToString(raw)[:n]
}
