DROP VIEW warnings_plain, log_plain, threads_plain;
DROP TABLE prunings, retention_policies, tombstones, warnings, checkpoints, state_patches, states, message_blocks, folds, contents, log_segments, runs, threads;
