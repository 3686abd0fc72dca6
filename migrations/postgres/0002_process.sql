-- What the workers need.

-- The thing an event is about, by the provider's word.
ALTER TABLE events ADD COLUMN object_id text;

ALTER TABLE jobs
    ADD COLUMN priority     text     NOT NULL DEFAULT 'normal' CHECK (priority IN ('high', 'normal', 'low')),
    -- Jobs of one handler with the same key are done one at a time, in the order of their events.
    ADD COLUMN ordering_key text COLLATE "C",
    -- Who holds the job: new and random at each claim. Only whoever has it may write effects or settle.
    ADD COLUMN token        uuid,
    ADD COLUMN worker       text,
    ADD COLUMN claimed_at   timestamptz,
    -- How many runs in a row ended without a word: the process died, or lost its lease.
    ADD COLUMN crashes      integer  NOT NULL DEFAULT 0,
    -- Why it is a dead letter, or how an operator resolved it.
    ADD COLUMN reason       text,
    ADD COLUMN finished_at  timestamptz;

-- The sweeper's index goes by `finished_at` now. As long as it went by the state, Postgres could take it for a claim of a
-- few jobs by their ids, because that names a state, too; and with many unfinished jobs that is slow.
DROP INDEX jobs_due;
CREATE INDEX jobs_due ON jobs (due_at) WHERE finished_at IS NULL;
CREATE INDEX jobs_in_order ON jobs (handler, ordering_key, event_id)
    WHERE ordering_key IS NOT NULL AND state IN ('pending', 'processing', 'failed', 'dead_letter');
CREATE INDEX jobs_dead ON jobs (event_id) WHERE state = 'dead_letter';

-- The runs of a job, as history. Numbers start again at a replay.
CREATE TABLE attempts (
    event_id    uuid        NOT NULL,
    handler     text COLLATE "C" NOT NULL,
    number      integer     NOT NULL,
    started_at  timestamptz NOT NULL,
    duration_us bigint      NOT NULL,
    -- Null is success.
    failure     text,
    message     text,
    worker      text        NOT NULL
);
CREATE INDEX attempts_by_job ON attempts (event_id, handler);

-- The markers of side effects. `id` is the idempotency key for the outside.
CREATE TABLE effects (
    handler  text COLLATE "C" NOT NULL,
    event_id uuid        NOT NULL,
    key      text COLLATE "C" NOT NULL,
    id       uuid        NOT NULL,
    -- How often it was begun.
    runs     integer     NOT NULL DEFAULT 1,
    is_done  boolean     NOT NULL,
    -- JSON.
    result   text,
    done_at  timestamptz,
    PRIMARY KEY (event_id, handler, key)
);

-- The newest that a handler has seen of each thing, by the provider's time.
CREATE TABLE newest (
    handler     text COLLATE "C" NOT NULL,
    object      text COLLATE "C" NOT NULL,
    occurred_at timestamptz NOT NULL,
    PRIMARY KEY (handler, object)
);

-- What operators did.
CREATE TABLE audit (
    id         uuid        NOT NULL PRIMARY KEY,
    at         timestamptz NOT NULL,
    who        text        NOT NULL,
    action     text        NOT NULL,
    why        text,
    -- What it was done to, as JSON.
    filter     text        NOT NULL,
    jobs       bigint      NOT NULL DEFAULT 0,
    -- How far it got, so that it can be resumed; null once it is finished.
    next_after uuid,
    is_done    boolean     NOT NULL DEFAULT false
);
