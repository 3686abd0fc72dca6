-- Times are microseconds since 1970, UTC. Ids are UUIDv7 as 16 bytes, so new rows go to the end of every index.

-- What makes an event the only one of its kind. A table of its own, so that keys can outlive the events.
CREATE TABLE dedupe_keys (
    source     TEXT NOT NULL,
    dedupe_key TEXT NOT NULL,
    event_id   BLOB NOT NULL,
    PRIMARY KEY (source, dedupe_key)
) STRICT, WITHOUT ROWID;

-- Written once, never changed. Has a rowid: without one, SQLite is slower for rows with bodies.
CREATE TABLE events (
    id             BLOB    NOT NULL PRIMARY KEY,
    source         TEXT    NOT NULL,
    dedupe_key     TEXT    NOT NULL,
    event_type     TEXT    NOT NULL,
    account        TEXT,
    occurred_at    INTEGER,
    received_at    INTEGER NOT NULL,
    proof          TEXT    NOT NULL,
    request_id     BLOB    NOT NULL,
    remote_address TEXT    NOT NULL,
    method         TEXT    NOT NULL,
    url            TEXT    NOT NULL,
    headers        BLOB    NOT NULL,
    body           BLOB    NOT NULL
) STRICT;

-- That an event came again. By key and not by event, because two gateways may record the same event at the same moment.
CREATE TABLE resends (
    source         TEXT    NOT NULL,
    dedupe_key     TEXT    NOT NULL,
    received_at    INTEGER NOT NULL,
    request_id     BLOB    NOT NULL,
    remote_address TEXT    NOT NULL
) STRICT;
CREATE INDEX resends_by_key ON resends (source, dedupe_key);

-- One event for one handler: everything that changes is here, in short rows.
CREATE TABLE jobs (
    event_id BLOB    NOT NULL,
    handler  TEXT    NOT NULL,
    state    TEXT    NOT NULL DEFAULT 'pending'
             CHECK (state IN ('pending', 'processing', 'failed', 'succeeded', 'dead_letter', 'resolved')),
    attempts INTEGER NOT NULL DEFAULT 0,
    due_at   INTEGER NOT NULL,
    PRIMARY KEY (event_id, handler)
) STRICT, WITHOUT ROWID;
-- The sweeper's one question: which unfinished jobs are due?
CREATE INDEX jobs_due ON jobs (due_at) WHERE state IN ('pending', 'processing', 'failed');
