-- How often an event came again is a number beside its key, and of the arrivals only the first and the last five are kept: a
-- recorded request can be sent again without end. The rows of `resends` stay where they are, because moving millions of them would
-- keep everything waiting; they are counted along, and so is what an older program adds.
ALTER TABLE dedupe_keys ADD COLUMN resends INTEGER NOT NULL DEFAULT 0;

CREATE TABLE resend_arrivals (
    source         TEXT    NOT NULL,
    dedupe_key     TEXT    NOT NULL,
    -- 1 to 5 for the first ones; the later ones take turns in 6 to 10.
    slot           INTEGER NOT NULL,
    -- Which resend of its key it was, from 1.
    number         INTEGER NOT NULL,
    received_at    INTEGER NOT NULL,
    request_id     BLOB    NOT NULL,
    remote_address TEXT    NOT NULL,
    PRIMARY KEY (source, dedupe_key, slot)
) STRICT, WITHOUT ROWID;
