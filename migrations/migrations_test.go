package migrations

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
)

// Every migration must be reversible, and the numbers must have no gaps.
func TestPairs(t *testing.T) {
	t.Parallel()
	ups, err := fs.Glob(FS, "*.up.sql")
	if err != nil || len(ups) == 0 {
		t.Fatalf("no migrations: %v", err)
	}
	for i, up := range ups {
		if prefix := fmt.Sprintf("%06d_", i+1); !strings.HasPrefix(up, prefix) {
			t.Errorf("%s: want a name that begins with %s", up, prefix)
		}
		if _, err := fs.Stat(FS, strings.TrimSuffix(up, ".up.sql")+".down.sql"); err != nil {
			t.Errorf("%s has no way back: %v", up, err)
		}
	}
	if got := Latest(); got != uint(len(ups)) {
		t.Errorf("Latest() = %d, want %d", got, len(ups))
	}
}
