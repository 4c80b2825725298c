DROP INDEX threads_by_label;
CREATE INDEX threads_by_label ON threads USING gin (labels);

ALTER TABLE log_segments DROP COLUMN restated;
