package store_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// The schema refuses checkpoints that cannot be, and hashes that are none.
func TestConstraintsOfHistory(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	admin := connect(t, url)
	commit(t, open(t, store.Options{URL: url}), base())
	const insert = `INSERT INTO checkpoints SELECT thread_key, `
	for sql, constraint := range map[string]string{
		insert + `0, 0, '', log_hash, log_hash, 0, 0, 0, 0, 0 FROM threads`:                      "checkpoints_version_valid",
		insert + `1, 4, '', log_hash, log_hash, 0, 0, 0, 0, 0 FROM threads`:                      "checkpoints_codec_valid",
		insert + `1, 0, '', '', log_hash, 0, 0, 0, 0, 0 FROM threads`:                            "checkpoints_hashes_valid",
		insert + `1, 0, '', log_hash, log_hash, 0, 2, 0, 1, 0 FROM threads`:                      "checkpoints_sizes_valid",
		insert + `1, 0, '', log_hash, log_hash, 0, 0, 0, 0, 0 FROM threads, (VALUES (1), (2)) v`: "checkpoints_pkey",
		`UPDATE threads SET metadata_hash = 'short'`:                                             "threads_metadata_hash_valid",
	} {
		_, err := admin.Exec(t.Context(), sql)
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.ConstraintName != constraint {
			t.Errorf("%s: %v, want a violation of %s", sql, err, constraint)
		}
	}
}
