-- Is a job of this key being worked on? There may be many behind it, which need not be read to know.
CREATE INDEX jobs_held ON jobs (handler, ordering_key) WHERE ordering_key IS NOT NULL AND state = 'processing';
