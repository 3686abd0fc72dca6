-- A large body is written in parts before its event, because one statement with all of it would keep everything else from being
-- written. The body in the row of such an event is empty, which an older program would take for the whole of it.
CREATE TABLE large_bodies (
    event_id    uuid    NOT NULL PRIMARY KEY,
    size_bytes  bigint  NOT NULL,
    -- Set in the transaction that records the event. Until then the body belongs to nothing and may be cleared.
    is_recorded boolean NOT NULL DEFAULT false
);
-- What a process left that died in the middle.
CREATE INDEX large_bodies_begun ON large_bodies (event_id) WHERE NOT is_recorded;

CREATE TABLE body_parts (
    event_id uuid    NOT NULL,
    -- From 0.
    part     integer NOT NULL,
    bytes    bytea   NOT NULL,
    PRIMARY KEY (event_id, part)
);
-- As for `events.body`.
DO $$
BEGIN
    EXECUTE 'ALTER TABLE body_parts ALTER COLUMN bytes SET COMPRESSION lz4';
EXCEPTION
    WHEN feature_not_supported OR syntax_error THEN NULL;
END
$$;
