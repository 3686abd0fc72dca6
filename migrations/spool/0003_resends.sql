-- An event that comes again while it waits is counted, and takes no room a second time. Of the arrivals the first and the last
-- five are kept, as in the store. They leave with the event that waits.
CREATE TABLE resend_arrivals (
    event_id       BLOB    NOT NULL,
    slot           INTEGER NOT NULL,
    number         INTEGER NOT NULL,
    -- The id that the event would have if it were new.
    id             BLOB    NOT NULL,
    received_at    INTEGER NOT NULL,
    request_id     BLOB    NOT NULL,
    remote_address TEXT    NOT NULL,
    PRIMARY KEY (event_id, slot)
) STRICT, WITHOUT ROWID;

-- Not unique: a spool of an earlier version has a row for each arrival.
CREATE INDEX events_by_key ON events (source, dedupe_key);
