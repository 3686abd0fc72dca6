-- What an event is found by, and by which secret it was proved. Events of earlier versions have none of it: columns that may be
-- NULL are added without touching a row.
ALTER TABLE events ADD COLUMN priority          text;
-- The provider's own id of the event, and of the delivery.
ALTER TABLE events ADD COLUMN provider_event_id text;
ALTER TABLE events ADD COLUMN delivery_id       text;
-- A JSON array of texts.
ALTER TABLE events ADD COLUMN tags              text;
ALTER TABLE events ADD COLUMN trace_id          text;
-- Which of the source's secrets matched, counted from 0.
ALTER TABLE events ADD COLUMN secret_index      integer;
-- How long the event's key stands for it, in microseconds; NULL is for ever.
ALTER TABLE events ADD COLUMN key_window_us     bigint;

-- What an operator decided about a job. `reason` and `finished_at` stay: why and when it died. Older gateways write the
-- resolution into `reason`.
ALTER TABLE jobs ADD COLUMN resolution  text;
ALTER TABLE jobs ADD COLUMN reviewed_at timestamptz;
ALTER TABLE jobs ADD COLUMN reviewed_by text;
ALTER TABLE jobs ADD COLUMN note        text;
ALTER TABLE jobs ADD COLUMN audit_id    uuid;

-- Dead letters by time of death, the latest first. There are few of them, so that the index costs recording nothing.
CREATE INDEX jobs_died ON jobs (finished_at, event_id, handler) WHERE state = 'dead_letter';
-- Reviewed jobs by resolution, to list and count them without a walk through all that succeeded.
CREATE INDEX jobs_reviewed ON jobs (resolution, reviewed_at) WHERE resolution IS NOT NULL;

-- An event on its way into `events`, with the columns in the order in which the program binds them. Older gateways go on with
-- the type `incoming_event`.
CREATE TYPE event_row AS (
    id                uuid,
    source            text,
    dedupe_key        text,
    received_at       timestamptz,
    request_id        uuid,
    remote_address    text,
    event_type        text,
    account           text,
    occurred_at       timestamptz,
    proof             text,
    method            text,
    url               text,
    headers           bytea,
    body              bytea,
    object_id         text,
    priority          text,
    provider_event_id text,
    delivery_id       text,
    tags              text,
    trace_id          text,
    secret_index      integer,
    key_window_us     bigint
);
