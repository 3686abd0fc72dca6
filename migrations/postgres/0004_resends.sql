-- One delivery must not be noted twice: a commit that was given up, and whose events went into a spool, may come through late.
DROP INDEX resends_by_key;
CREATE INDEX resends_by_key ON resends (source, dedupe_key, request_id);
