-- What of a segment's size restates large payloads that the thread held already; null is none, as in all rows of before, so that
-- there is nothing to be checked in them.
ALTER TABLE log_segments ADD COLUMN restated bigint;
ALTER TABLE log_segments ADD CONSTRAINT log_segments_restated_valid CHECK (restated BETWEEN 1 AND size) NOT VALID;

-- Threads without labels are not in it: a run's start and its end change columns of other indexes, and so write to each.
DROP INDEX threads_by_label;
CREATE INDEX threads_by_label ON threads USING gin (labels) WHERE labels <> '{}';
