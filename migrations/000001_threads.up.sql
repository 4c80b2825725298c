-- The first schema: threads, their runs, their log, their fold and their ledger of warnings.
--
-- Rules that every table follows:
--   * thread_key leads every primary key, and statements name it, so that the tables can be spread over shards. Some
--     look across threads: the listings of a tenant's threads and of its warnings, and the searches for leases that have
--     ended, for runs to be merged, and for threads to be pruned. The retention policies of tenants are the one table
--     without a thread.
--   * Payloads are bytea, never jsonb: numbers, the order of members and escapes come back as they came. A codec says how
--     they are stored: 0 as they are, 1 zstd, 4 S2 (folds), 8 zstd of log entries in columns; plus 2 with references to contents.
--     Compressed columns are EXTERNAL, since compressing twice gains nothing.
--   * text holds identifiers only.
--   * Times are the database's.

-- One row for each thread. Every append updates it, in place (HOT): no index is on a column that appends change, save the
-- end of the lease, which is written anew when half of it has passed and not before.
CREATE TABLE threads (
    thread_key       uuid        NOT NULL,
    tenant           text        NOT NULL,
    thread_id        text        NOT NULL,
    -- What every append changes stands together: the WAL has the part of a row that differs.
    version          bigint      NOT NULL,
    next_offset      bigint      NOT NULL,
    log_hash         bytea       NOT NULL,
    fence            bigint      NOT NULL,
    stream_id        text        NOT NULL,
    active_run       text,
    lease_ttl_ms     bigint      NOT NULL,
    lease_expires_at timestamptz,
    runs             bigint      NOT NULL,
    metadata         bytea,
    metadata_hash    bytea,
    labels           bytea[]     NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT now(),
    last_run_at      timestamptz NOT NULL DEFAULT now(),
    -- Where the log was cut: the first version that can be read as a moment, which has a checkpoint, with the hash of the
    -- log up to it, its time, and the number of runs before it. What lies before is gone, or garbage.
    first_version    bigint      NOT NULL DEFAULT 0,
    first_hash       bytea,
    first_at         timestamptz,
    pruned_runs      bigint      NOT NULL DEFAULT 0,
    -- When it is to be looked at whether there is something to prune; a run that is started brings that forward to now.
    prune_due        timestamptz NOT NULL DEFAULT now(),

    CONSTRAINT threads_pkey PRIMARY KEY (thread_key),
    CONSTRAINT threads_log_hash_valid CHECK (octet_length(log_hash) = 32),
    CONSTRAINT threads_metadata_hash_valid CHECK (octet_length(metadata_hash) = 32),
    CONSTRAINT threads_fence_valid CHECK (fence >= 0),
    CONSTRAINT threads_next_offset_valid CHECK (next_offset >= 0),
    CONSTRAINT threads_lease_ttl_valid CHECK (lease_ttl_ms >= 0),
    CONSTRAINT threads_active_run_valid CHECK (active_run <> ''),
    CONSTRAINT threads_lease_only_with_run CHECK ((lease_expires_at IS NULL) = (active_run IS NULL)),
    CONSTRAINT threads_first_version_valid CHECK (first_version BETWEEN 0 AND version),
    CONSTRAINT threads_first_hash_valid CHECK (octet_length(first_hash) = 32),
    CONSTRAINT threads_first_whole CHECK ((first_hash IS NULL) = (first_version = 0) AND (first_at IS NULL) = (first_version = 0)),
    CONSTRAINT threads_pruned_runs_valid CHECK (pruned_runs BETWEEN 0 AND runs)
) WITH (fillfactor = 70);

CREATE INDEX threads_by_last_run ON threads (tenant, last_run_at DESC, thread_key DESC);
CREATE INDEX threads_by_label ON threads USING gin (labels);

-- Finds the leases that have ended. Threads without an active run are not in it.
CREATE INDEX threads_by_lease ON threads (lease_expires_at, thread_key) WHERE lease_expires_at IS NOT NULL;

-- Finds the threads of a tenant that are to be looked at. A tenant without a policy never looks.
CREATE INDEX threads_by_prune_due ON threads (tenant, prune_due);

-- One row for each run of a thread, counted from 1.
CREATE TABLE runs (
    thread_key       uuid        NOT NULL,
    ordinal          bigint      NOT NULL,
    run_id           text        NOT NULL,
    stream_id        text        NOT NULL,
    parent_run_id    text,
    input_hash       bytea,
    fence            bigint      NOT NULL,
    first_version    bigint      NOT NULL,
    first_offset     bigint      NOT NULL,
    status           smallint    NOT NULL,
    last_version     bigint      NOT NULL,
    next_offset      bigint      NOT NULL,
    codec            smallint    NOT NULL,
    protocol_version bytea,
    outcome          bytea,
    result           bytea,
    usage            bytea,
    error            bytea,
    warnings         bigint      NOT NULL,
    merged           boolean     NOT NULL DEFAULT false,
    started_at       timestamptz NOT NULL DEFAULT now(),
    ended_at         timestamptz,

    CONSTRAINT runs_pkey PRIMARY KEY (thread_key, ordinal),
    CONSTRAINT runs_run_id_unique UNIQUE (thread_key, run_id),
    CONSTRAINT runs_ordinal_valid CHECK (ordinal >= 1),
    CONSTRAINT runs_run_id_valid CHECK (run_id <> ''),
    CONSTRAINT runs_input_hash_valid CHECK (octet_length(input_hash) = 32),
    CONSTRAINT runs_fence_valid CHECK (fence >= 0),
    CONSTRAINT runs_first_version_valid CHECK (first_version >= 1),
    -- 1 active, 2 finished, 3 interrupted, 4 cancelled, 5 failed, 6 truncated
    CONSTRAINT runs_status_valid CHECK (status BETWEEN 1 AND 6),
    CONSTRAINT runs_last_version_valid CHECK (last_version = 0 OR last_version >= first_version),
    CONSTRAINT runs_offsets_valid CHECK (first_offset >= 0 AND next_offset >= 0),
    CONSTRAINT runs_codec_valid CHECK (codec BETWEEN 0 AND 1),
    CONSTRAINT runs_warnings_valid CHECK (warnings >= 0),
    CONSTRAINT runs_ended_unless_active CHECK ((ended_at IS NULL) = (status = 1))
) WITH (fillfactor = 90);

ALTER TABLE runs ALTER COLUMN outcome SET STORAGE EXTERNAL;
ALTER TABLE runs ALTER COLUMN result SET STORAGE EXTERNAL;
ALTER TABLE runs ALTER COLUMN usage SET STORAGE EXTERNAL;
ALTER TABLE runs ALTER COLUMN error SET STORAGE EXTERNAL;

-- Finds the runs whose segments are to be merged.
CREATE INDEX runs_unmerged ON runs (thread_key, ordinal) WHERE status <> 1 AND NOT merged;

-- The log, in segments: the entries of one run that were committed together. Codec 2, 3 and 10 are 0, 1 and 8 with
-- large payloads replaced by references to contents; size is that of the plain entries. What a row says never changes, but
-- the rows of a run that is over are merged into larger ones, which then have the times of their parts.
CREATE TABLE log_segments (
    thread_key    uuid        NOT NULL,
    first_version bigint      NOT NULL,
    last_version  bigint      NOT NULL,
    run_id        text        NOT NULL,
    stream_id     text        NOT NULL,
    first_offset  bigint      NOT NULL,
    next_offset   bigint      NOT NULL,
    codec         smallint    NOT NULL,
    entries       bytea       NOT NULL,
    size          bigint      NOT NULL,
    committed_at  timestamptz NOT NULL DEFAULT now(),
    times         bytea,

    CONSTRAINT log_segments_pkey PRIMARY KEY (thread_key, first_version),
    CONSTRAINT log_segments_versions_valid CHECK (first_version >= 1 AND last_version >= first_version),
    CONSTRAINT log_segments_offsets_valid CHECK (first_offset >= 0 AND next_offset >= first_offset),
    CONSTRAINT log_segments_codec_valid CHECK (codec IN (0, 1, 2, 3, 8, 10)),
    CONSTRAINT log_segments_size_valid CHECK (size >= 0)
);

ALTER TABLE log_segments ALTER COLUMN entries SET STORAGE EXTERNAL;
-- Up to two of them share a page before they are kept out of line, which costs an index entry and a header for each 2 KB.
ALTER TABLE log_segments SET (toast_tuple_target = 4064);

-- Chunks of large payloads of the log, each kept once for a thread, by content. Rows never change.
CREATE TABLE contents (
    thread_key uuid     NOT NULL,
    hash       bytea    NOT NULL,
    codec      smallint NOT NULL,
    body       bytea    NOT NULL,

    CONSTRAINT contents_pkey PRIMARY KEY (thread_key, hash),
    CONSTRAINT contents_hash_valid CHECK (octet_length(hash) = 16),
    CONSTRAINT contents_codec_valid CHECK (codec BETWEEN 0 AND 1)
);

ALTER TABLE contents ALTER COLUMN body SET STORAGE EXTERNAL;

-- Where the stored fold of a thread stands. The sizes are of the plain texts of the state's base and of its patches.
CREATE TABLE folds (
    thread_key   uuid     NOT NULL,
    version      bigint   NOT NULL,
    codec        smallint NOT NULL,
    tracking     bytea,
    state_size   bigint   NOT NULL,
    patches_size bigint   NOT NULL,

    CONSTRAINT folds_pkey PRIMARY KEY (thread_key),
    CONSTRAINT folds_version_valid CHECK (version >= 0),
    CONSTRAINT folds_codec_valid CHECK (codec IN (0, 4)),
    CONSTRAINT folds_sizes_valid CHECK (state_size >= 0 AND patches_size >= 0)
) WITH (fillfactor = 70);

ALTER TABLE folds ALTER COLUMN tracking SET STORAGE EXTERNAL;

-- The messages of the fold, in blocks of neighbours: what a run brought is one row, compressed as one. A block has the
-- messages from first_position up to the next block's. Positions order messages and leave gaps.
CREATE TABLE message_blocks (
    thread_key     uuid     NOT NULL,
    first_position bigint   NOT NULL,
    codec          smallint NOT NULL,
    body           bytea    NOT NULL,

    CONSTRAINT message_blocks_pkey PRIMARY KEY (thread_key, first_position),
    CONSTRAINT message_blocks_codec_valid CHECK (codec BETWEEN 0 AND 1)
);

ALTER TABLE message_blocks ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE message_blocks SET (toast_tuple_target = 4064);

-- The state of the fold: a document, and the patches that were applied to it since. No document means {}.
CREATE TABLE states (
    thread_key uuid     NOT NULL,
    version    bigint   NOT NULL,
    codec      smallint NOT NULL,
    doc        bytea    NOT NULL,

    CONSTRAINT states_pkey PRIMARY KEY (thread_key),
    CONSTRAINT states_version_valid CHECK (version >= 0),
    CONSTRAINT states_codec_valid CHECK (codec IN (0, 4))
);

ALTER TABLE states ALTER COLUMN doc SET STORAGE EXTERNAL;

CREATE TABLE state_patches (
    thread_key uuid     NOT NULL,
    version    bigint   NOT NULL,
    codec      smallint NOT NULL,
    patch      bytea    NOT NULL,

    CONSTRAINT state_patches_pkey PRIMARY KEY (thread_key, version),
    CONSTRAINT state_patches_version_valid CHECK (version >= 1),
    CONSTRAINT state_patches_codec_valid CHECK (codec IN (0, 4))
);

ALTER TABLE state_patches ALTER COLUMN patch SET STORAGE EXTERNAL;

-- Folds of the past, from which any version is replayed: agui.Fold in its stored form. Codec 2 and 3 are as those of the log:
-- a large fold is a reference to contents, most of which the log and older checkpoints share. size is that of the plain
-- fold, stored_size what the row and the chunks that it brought take. What follows adds up over the thread, up to here: the
-- segments of the log, the checkpoints, and the chunks that checkpoints brought. Rows never change.
CREATE TABLE checkpoints (
    thread_key  uuid     NOT NULL,
    version     bigint   NOT NULL,
    codec       smallint NOT NULL,
    fold        bytea    NOT NULL,
    hash        bytea    NOT NULL,
    log_hash    bytea    NOT NULL,
    size        bigint   NOT NULL,
    stored_size bigint   NOT NULL,
    log_stored  bigint   NOT NULL,
    all_stored  bigint   NOT NULL,
    own_chunks  bigint   NOT NULL,

    CONSTRAINT checkpoints_pkey PRIMARY KEY (thread_key, version),
    CONSTRAINT checkpoints_version_valid CHECK (version >= 1),
    CONSTRAINT checkpoints_codec_valid CHECK (codec BETWEEN 0 AND 3),
    CONSTRAINT checkpoints_hashes_valid CHECK (octet_length(hash) = 32 AND octet_length(log_hash) = 32),
    CONSTRAINT checkpoints_sizes_valid CHECK (size >= 0 AND stored_size >= 0 AND log_stored >= 0
        AND all_stored >= stored_size AND own_chunks BETWEEN 0 AND all_stored)
);

ALTER TABLE checkpoints ALTER COLUMN fold SET STORAGE EXTERNAL;

-- The ledger of what was dropped, stripped, translated or not applied, and of violations. path and detail may quote what
-- a producer sent, which text could not hold. removed is cut; removed_size is its length before.
CREATE TABLE warnings (
    thread_key   uuid        NOT NULL,
    version      bigint      NOT NULL,
    ordinal      integer     NOT NULL,
    run_id       text        NOT NULL,
    "offset"     bigint      NOT NULL,
    code         text        NOT NULL,
    path         bytea       NOT NULL,
    detail       bytea       NOT NULL,
    fatal        boolean     NOT NULL,
    codec        smallint    NOT NULL,
    removed      bytea,
    removed_size bigint      NOT NULL,
    raised_at    timestamptz NOT NULL DEFAULT now(),
    tenant       text        NOT NULL,

    CONSTRAINT warnings_pkey PRIMARY KEY (thread_key, version, ordinal),
    CONSTRAINT warnings_version_valid CHECK (version >= 0),
    CONSTRAINT warnings_offset_valid CHECK ("offset" >= 0),
    CONSTRAINT warnings_codec_valid CHECK (codec BETWEEN 0 AND 1),
    CONSTRAINT warnings_removed_size_valid CHECK (removed_size >= 0)
);

ALTER TABLE warnings ALTER COLUMN removed SET STORAGE EXTERNAL;

-- A tenant's ledger, newest first, and that of one code.
CREATE INDEX warnings_by_time ON warnings (tenant, raised_at DESC, thread_key DESC, version DESC, ordinal DESC);
CREATE INDEX warnings_by_code ON warnings (tenant, code, raised_at DESC, thread_key DESC, version DESC, ordinal DESC);

-- What is left of a thread that was erased: that it was, and how its log ended, under a key that is a hash. It keeps writes
-- that come late from making the thread again. A thread has a row here or one in threads, never both.
CREATE TABLE tombstones (
    thread_key uuid        NOT NULL,
    version    bigint      NOT NULL,
    log_hash   bytea       NOT NULL,
    deleted_at timestamptz NOT NULL DEFAULT now(),

    CONSTRAINT tombstones_pkey PRIMARY KEY (thread_key),
    CONSTRAINT tombstones_version_valid CHECK (version >= 0),
    CONSTRAINT tombstones_log_hash_valid CHECK (octet_length(log_hash) = 32)
);

-- How long the threads of a tenant are kept. NULL means without end. spread is set once all threads of the tenant were
-- marked as due after the policy was changed.
CREATE TABLE retention_policies (
    tenant     text        NOT NULL,
    max_age_us bigint,
    max_runs   bigint,
    max_bytes  bigint,
    spread     boolean     NOT NULL DEFAULT false,
    updated_at timestamptz NOT NULL DEFAULT now(),

    CONSTRAINT retention_policies_pkey PRIMARY KEY (tenant),
    CONSTRAINT retention_policies_valid CHECK (max_age_us > 0 AND max_runs > 0 AND max_bytes > 0)
);

-- The threads that have garbage before their first version, which is removed in small steps.
CREATE TABLE prunings (
    thread_key uuid        NOT NULL,
    began_at   timestamptz NOT NULL DEFAULT now(),

    CONSTRAINT prunings_pkey PRIMARY KEY (thread_key)
);

-- For people with psql: what is stored uncompressed, as text. Compressed columns are null.
CREATE VIEW threads_plain AS
SELECT thread_key, tenant, thread_id, version, active_run, lease_expires_at, runs,
       convert_from(metadata, 'UTF8') AS metadata, created_at, last_run_at
FROM threads;

CREATE VIEW log_plain AS
SELECT thread_key, first_version, last_version, run_id, stream_id, first_offset, next_offset,
       CASE codec WHEN 0 THEN encode(entries, 'escape') END AS entries, octet_length(entries) AS stored_size, committed_at
FROM log_segments;

CREATE VIEW warnings_plain AS
SELECT thread_key, version, ordinal, run_id, "offset", code, encode(path, 'escape') AS path,
       encode(detail, 'escape') AS detail, fatal, CASE codec WHEN 0 THEN encode(removed, 'escape') END AS removed,
       removed_size, raised_at
FROM warnings;
