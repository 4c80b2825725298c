// Package migrations holds the database schema as numbered pairs of SQL files. Package store applies them.
//
// A released file never changes. A new one must leave the database usable by the program of the release before it:
// columns and tables are added in one release and taken away, at the earliest, in the next.
package migrations

import (
	"embed"
	"fmt"
	"io/fs"
)

// FS holds the files NUMBER_name.up.sql and NUMBER_name.down.sql.
//
//go:embed *.sql
var FS embed.FS

// Latest is the number of the newest migration: the revision of the schema this program is written for.
func Latest() uint {
	var latest uint
	names, _ := fs.Glob(FS, "*.up.sql") // the pattern is well formed
	for _, name := range names {
		var number uint
		if _, err := fmt.Sscanf(name, "%d_", &number); err == nil {
			latest = max(latest, number)
		}
	}
	return latest
}
