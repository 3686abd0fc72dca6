-- What an event is found by, and by which secret it was proved. Events of earlier versions have none of it: columns that may be
-- NULL are added without touching a row.
ALTER TABLE events ADD COLUMN priority          TEXT;
-- The provider's own id of the event, and of the delivery.
ALTER TABLE events ADD COLUMN provider_event_id TEXT;
ALTER TABLE events ADD COLUMN delivery_id       TEXT;
-- A JSON array of texts.
ALTER TABLE events ADD COLUMN tags              TEXT;
ALTER TABLE events ADD COLUMN trace_id          TEXT;
-- Which of the source's secrets matched, counted from 0.
ALTER TABLE events ADD COLUMN secret_index      INTEGER;
-- How long the event's key stands for it, in microseconds; NULL is for ever.
ALTER TABLE events ADD COLUMN key_window_us     INTEGER;

-- What an operator decided about a job. `reason` and `finished_at` stay: why and when it died. Older gateways write the
-- resolution into `reason`.
ALTER TABLE jobs ADD COLUMN resolution  TEXT;
ALTER TABLE jobs ADD COLUMN reviewed_at INTEGER;
ALTER TABLE jobs ADD COLUMN reviewed_by TEXT;
ALTER TABLE jobs ADD COLUMN note        TEXT;
ALTER TABLE jobs ADD COLUMN audit_id    BLOB;

-- Dead letters by time of death, the latest first. There are few of them, so that the index costs recording nothing.
CREATE INDEX jobs_died ON jobs (finished_at, event_id, handler) WHERE state = 'dead_letter';
-- Reviewed jobs by resolution, to list and count them without a walk through all that succeeded.
CREATE INDEX jobs_reviewed ON jobs (resolution, reviewed_at) WHERE resolution IS NOT NULL;
