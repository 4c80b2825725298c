package storetest

import (
	"testing"

	"github.com/threadsvc/threadsvc/store"
)

func TestMain(m *testing.M) { Main(m) }

func TestMemory(t *testing.T) {
	t.Parallel()
	Run(t, func(*testing.T) store.Store { return NewMemory() })
}
