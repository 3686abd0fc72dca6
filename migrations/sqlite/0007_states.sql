-- SQLite builds a table of its own for each `IN` of three words and more, at every row that is written. There were three of
-- them, in the checks and in the indexes of `jobs`, and they cost more than the row. A check cannot be changed in place.
CREATE TABLE jobs_anew (
    event_id     BLOB    NOT NULL,
    handler      TEXT    NOT NULL,
    state        TEXT    NOT NULL DEFAULT 'pending'
                 CHECK (state = 'pending' OR state = 'processing' OR state = 'failed' OR state = 'succeeded'
                        OR state = 'dead_letter' OR state = 'resolved'),
    attempts     INTEGER NOT NULL DEFAULT 0,
    due_at       INTEGER NOT NULL,
    priority     TEXT    NOT NULL DEFAULT 'normal'
                 CHECK (priority = 'normal' OR priority = 'high' OR priority = 'low'),
    ordering_key TEXT,
    token        BLOB,
    worker       TEXT,
    claimed_at   INTEGER,
    crashes      INTEGER NOT NULL DEFAULT 0,
    reason       TEXT,
    finished_at  INTEGER,
    PRIMARY KEY (event_id, handler)
) STRICT, WITHOUT ROWID;
INSERT INTO jobs_anew
SELECT event_id, handler, state, attempts, due_at, priority, ordering_key, token, worker, claimed_at, crashes, reason, finished_at
FROM jobs ORDER BY event_id, handler;
DROP TABLE jobs;
ALTER TABLE jobs_anew RENAME TO jobs;

-- As on Postgres.
CREATE INDEX jobs_due ON jobs (handler, due_at) WHERE finished_at IS NULL;
CREATE INDEX jobs_in_order ON jobs (handler, ordering_key, event_id)
    WHERE ordering_key IS NOT NULL AND state <> 'succeeded' AND state <> 'resolved';
CREATE INDEX jobs_held ON jobs (handler, ordering_key) WHERE ordering_key IS NOT NULL AND state = 'processing';
CREATE INDEX jobs_dead ON jobs (event_id) WHERE state = 'dead_letter';
