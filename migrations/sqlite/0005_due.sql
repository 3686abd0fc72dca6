-- The sweeper asks handler by handler: the jobs of one that nobody works for may be many, and need not be read for the others.
DROP INDEX jobs_due;
CREATE INDEX jobs_due ON jobs (handler, due_at) WHERE state IN ('pending', 'processing', 'failed');
