-- Events that wait for Postgres, in the order in which they came. The columns are those of the store on SQLite; keys are
-- not compared here, because only Postgres knows all of them.
CREATE TABLE events (
    place          INTEGER NOT NULL PRIMARY KEY,
    id             BLOB    NOT NULL UNIQUE,
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
    object_id      TEXT,
    -- Why Postgres refuses this one. It stays, and the others go on.
    refused        TEXT,
    body           BLOB    NOT NULL
) STRICT;
CREATE INDEX events_refused ON events (place) WHERE refused IS NOT NULL;

CREATE TABLE jobs (
    event_id     BLOB NOT NULL,
    handler      TEXT NOT NULL,
    priority     TEXT NOT NULL,
    ordering_key TEXT,
    PRIMARY KEY (event_id, handler)
) STRICT, WITHOUT ROWID;
