-- What the workers need.

-- The thing an event is about, by the provider's word.
ALTER TABLE events ADD COLUMN object_id TEXT;

ALTER TABLE jobs ADD COLUMN priority TEXT NOT NULL DEFAULT 'normal' CHECK (priority IN ('high', 'normal', 'low'));
-- Jobs of one handler with the same key are done one at a time, in the order of their events.
ALTER TABLE jobs ADD COLUMN ordering_key TEXT;
-- Who holds the job: new and random at each claim. Only whoever has it may write effects or settle.
ALTER TABLE jobs ADD COLUMN token BLOB;
ALTER TABLE jobs ADD COLUMN worker TEXT;
ALTER TABLE jobs ADD COLUMN claimed_at INTEGER;
-- How many runs in a row ended without a word: the process died, or lost its lease.
ALTER TABLE jobs ADD COLUMN crashes INTEGER NOT NULL DEFAULT 0;
-- Why it is a dead letter, or how an operator resolved it.
ALTER TABLE jobs ADD COLUMN reason TEXT;
ALTER TABLE jobs ADD COLUMN finished_at INTEGER;

CREATE INDEX jobs_in_order ON jobs (handler, ordering_key, event_id)
    WHERE ordering_key IS NOT NULL AND state IN ('pending', 'processing', 'failed', 'dead_letter');
-- Is one of them being worked on? There may be many behind it.
CREATE INDEX jobs_held ON jobs (handler, ordering_key) WHERE ordering_key IS NOT NULL AND state = 'processing';
CREATE INDEX jobs_dead ON jobs (event_id) WHERE state = 'dead_letter';

-- The runs of a job, as history. Numbers start again at a replay.
CREATE TABLE attempts (
    event_id    BLOB    NOT NULL,
    handler     TEXT    NOT NULL,
    number      INTEGER NOT NULL,
    started_at  INTEGER NOT NULL,
    duration_us INTEGER NOT NULL,
    -- Null is success.
    failure     TEXT,
    message     TEXT,
    worker      TEXT    NOT NULL
) STRICT;
CREATE INDEX attempts_by_job ON attempts (event_id, handler);

-- The markers of side effects. `id` is the idempotency key for the outside.
CREATE TABLE effects (
    handler  TEXT    NOT NULL,
    event_id BLOB    NOT NULL,
    key      TEXT    NOT NULL,
    id       BLOB    NOT NULL,
    -- How often it was begun.
    runs     INTEGER NOT NULL DEFAULT 1,
    is_done  INTEGER NOT NULL,
    -- JSON.
    result   TEXT,
    done_at  INTEGER,
    PRIMARY KEY (event_id, handler, key)
) STRICT, WITHOUT ROWID;

-- The newest that a handler has seen of each thing, by the provider's time.
CREATE TABLE newest (
    handler     TEXT    NOT NULL,
    object      TEXT    NOT NULL,
    occurred_at INTEGER NOT NULL,
    PRIMARY KEY (handler, object)
) STRICT, WITHOUT ROWID;

-- What operators did.
CREATE TABLE audit (
    id         BLOB    NOT NULL PRIMARY KEY,
    at         INTEGER NOT NULL,
    who        TEXT    NOT NULL,
    action     TEXT    NOT NULL,
    why        TEXT,
    -- What it was done to, as JSON.
    filter     TEXT    NOT NULL,
    jobs       INTEGER NOT NULL DEFAULT 0,
    -- How far it got, so that it can be resumed; null once it is finished.
    next_after BLOB,
    is_done    INTEGER NOT NULL DEFAULT 0
) STRICT;
