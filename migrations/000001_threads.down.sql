DROP VIEW warnings_plain, messages_plain, log_plain, threads_plain;
DROP TABLE warnings, checkpoints, state_patches, states, messages, folds, contents, log_segments, runs, threads;
