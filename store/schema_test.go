package store_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

// The schema itself refuses what must never be stored, and says by which rule.
func TestConstraints(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	admin := connect(t, url)
	seed := open(t, store.Options{URL: url})
	commit(t, seed, base())
	commit(t, seed, full())
	commit(t, seed, []*store.Commit{ended("gone", "1")})
	if _, err := seed.Delete(t.Context(), ended("gone", "1").Key); err != nil {
		t.Fatal(err)
	}
	for sql, constraint := range map[string]string{
		`UPDATE threads SET version = -1`:                                "threads_first_version_valid",
		`UPDATE threads SET log_hash = 'short'`:                          "threads_log_hash_valid",
		`UPDATE threads SET fence = -1`:                                  "threads_fence_valid",
		`UPDATE threads SET next_offset = -1`:                            "threads_next_offset_valid",
		`UPDATE threads SET runs = -1`:                                   "threads_pruned_runs_valid",
		`UPDATE threads SET lease_ttl_ms = -1`:                           "threads_lease_ttl_valid",
		`UPDATE threads SET active_run = '', lease_expires_at = now()`:   "threads_active_run_valid",
		`UPDATE threads SET active_run = NULL, lease_expires_at = now()`: "threads_lease_only_with_run",
		`UPDATE threads SET active_run = 'r', lease_expires_at = NULL`:   "threads_lease_only_with_run",
		`INSERT INTO threads SELECT * FROM threads`:                      "threads_pkey",
		`UPDATE runs SET ordinal = 0 WHERE ordinal = 1`:                  "runs_ordinal_valid",
		`UPDATE runs SET run_id = 'r2'`:                                  "runs_run_id_unique",
		`UPDATE runs SET run_id = '' WHERE run_id = 'r1'`:                "runs_run_id_valid",
		`UPDATE runs SET status = 7, ended_at = now()`:                   "runs_status_valid",
		`UPDATE runs SET status = 2, ended_at = NULL`:                    "runs_ended_unless_active",
		`UPDATE runs SET first_version = 5, last_version = 4`:            "runs_last_version_valid",
		`UPDATE runs SET input_hash = 'short'`:                           "runs_input_hash_valid",
		`UPDATE runs SET codec = 2`:                                      "runs_codec_valid",
		`UPDATE log_segments SET last_version = first_version - 1`:       "log_segments_versions_valid",
		`UPDATE log_segments SET next_offset = first_offset - 1`:         "log_segments_offsets_valid",
		`UPDATE log_segments SET codec = 4`:                              "log_segments_codec_valid",
		`UPDATE log_segments SET size = -1`:                              "log_segments_size_valid",
		`UPDATE log_segments SET restated = size + 1`:                    "log_segments_restated_valid",
		`INSERT INTO log_segments SELECT * FROM log_segments`:            "log_segments_pkey",
		`UPDATE folds SET version = -1`:                                  "folds_version_valid",
		`UPDATE folds SET state_size = -1`:                               "folds_sizes_valid",
		`UPDATE message_blocks SET codec = 2`:                            "message_blocks_codec_valid",
		`UPDATE states SET codec = 2`:                                    "states_codec_valid",
		`UPDATE state_patches SET version = 0`:                           "state_patches_version_valid",
		`UPDATE warnings SET "offset" = -1`:                              "warnings_offset_valid",
		`UPDATE warnings SET removed_size = -1`:                          "warnings_removed_size_valid",
		`UPDATE tombstones SET version = -1`:                             "tombstones_version_valid",
		`UPDATE tombstones SET log_hash = 'short'`:                       "tombstones_log_hash_valid",
		`INSERT INTO tombstones SELECT * FROM tombstones`:                "tombstones_pkey",
	} {
		_, err := admin.Exec(t.Context(), sql)
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.ConstraintName != constraint {
			t.Errorf("%s: %v, want a violation of %s", sql, err, constraint)
		}
	}
}

// The views show people what is not compressed.
func TestViews(t *testing.T) {
	t.Parallel()
	url := storetest.Database(t)
	admin, db := connect(t, url), open(t, store.Options{URL: url})
	commit(t, db, base())
	for sql, want := range map[string]string{
		`SELECT entries FROM log_plain`:                        "\x01\\000\\000\x02{}",
		`SELECT coalesce(metadata, 'none') FROM threads_plain`: `none`,
		`SELECT count(*)::text FROM warnings_plain`:            `0`,
	} {
		var got string
		if err := admin.QueryRow(t.Context(), sql).Scan(&got); err != nil || got != want {
			t.Errorf("%s: %q and %v, want %q", sql, got, err, want)
		}
	}
}
