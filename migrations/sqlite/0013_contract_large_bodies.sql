-- A large body is written in parts before its event, because one statement with all of it would keep everything else from being
-- written. The body in the row of such an event is empty, which an older program would take for the whole of it.
CREATE TABLE large_bodies (
    event_id    BLOB    NOT NULL PRIMARY KEY,
    size_bytes  INTEGER NOT NULL,
    -- Set in the transaction that records the event. Until then the body belongs to nothing and may be cleared.
    is_recorded INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
-- What a process left that died in the middle.
CREATE INDEX large_bodies_begun ON large_bodies (event_id) WHERE is_recorded = 0;

CREATE TABLE body_parts (
    event_id BLOB    NOT NULL,
    -- From 0.
    part     INTEGER NOT NULL,
    bytes    BLOB    NOT NULL,
    PRIMARY KEY (event_id, part)
) STRICT;
