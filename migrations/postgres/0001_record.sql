-- Ids are UUIDv7, so new rows go to the end of every index.

-- What makes an event the only one of its kind. A table of its own, so that keys can outlive the events.
CREATE TABLE dedupe_keys (
    source     text COLLATE "C" NOT NULL,
    dedupe_key text COLLATE "C" NOT NULL,
    event_id   uuid NOT NULL,
    PRIMARY KEY (source, dedupe_key)
);

-- Written once, never changed.
CREATE TABLE events (
    id             uuid        NOT NULL PRIMARY KEY,
    source         text        NOT NULL,
    dedupe_key     text        NOT NULL,
    event_type     text        NOT NULL,
    account        text,
    occurred_at    timestamptz,
    received_at    timestamptz NOT NULL,
    proof          text        NOT NULL,
    request_id     uuid        NOT NULL,
    remote_address text        NOT NULL,
    method         text        NOT NULL,
    url            text        NOT NULL,
    headers        bytea       NOT NULL,
    body           bytea       NOT NULL
);

-- That an event came again. By key and not by event, because two gateways may record the same event at the same moment.
CREATE TABLE resends (
    source         text COLLATE "C" NOT NULL,
    dedupe_key     text COLLATE "C" NOT NULL,
    received_at    timestamptz NOT NULL,
    request_id     uuid        NOT NULL,
    remote_address text        NOT NULL
);
CREATE INDEX resends_by_key ON resends (source, dedupe_key);

-- One event for one handler: everything that changes is here, in short rows. Every state change is a new row version, so
-- vacuum goes by number of dead rows and not by a share of the table.
CREATE TABLE jobs (
    event_id uuid        NOT NULL,
    handler  text COLLATE "C" NOT NULL,
    state    text        NOT NULL DEFAULT 'pending'
             CHECK (state IN ('pending', 'processing', 'failed', 'succeeded', 'dead_letter', 'resolved')),
    attempts integer     NOT NULL DEFAULT 0,
    due_at   timestamptz NOT NULL,
    PRIMARY KEY (event_id, handler)
) WITH (autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0);
-- The sweeper's one question: which unfinished jobs are due?
CREATE INDEX jobs_due ON jobs (due_at) WHERE state IN ('pending', 'processing', 'failed');
