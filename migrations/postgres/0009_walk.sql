-- The sweeper reads the pending jobs of a handler in the order in which they are due, and separately those whose retry is
-- due or whose lease has ended. A claim does not name `finished_at`, so Postgres cannot take this index for one.
DROP INDEX jobs_due;
CREATE INDEX jobs_due ON jobs (handler, state, due_at, event_id) WHERE finished_at IS NULL;

-- Which job of an ordering key is first? Dead letters have an index of their own: a key may have many, and they need not be
-- read to find the first unfinished job.
DROP INDEX jobs_in_order;
CREATE INDEX jobs_in_order ON jobs (handler, ordering_key, event_id)
    WHERE ordering_key IS NOT NULL AND finished_at IS NULL;
CREATE INDEX jobs_dead_in_order ON jobs (handler, ordering_key, event_id)
    WHERE ordering_key IS NOT NULL AND state = 'dead_letter';

-- Dead letters can be counted by handler from the index alone.
DROP INDEX jobs_dead;
CREATE INDEX jobs_dead ON jobs (event_id, handler) WHERE state = 'dead_letter';

-- How many runs in a row the gateway's own store has spoilt.
ALTER TABLE jobs ADD COLUMN interruptions integer NOT NULL DEFAULT 0;
