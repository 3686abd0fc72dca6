-- As on Postgres, where one delivery could be noted twice. SQLite has no spool before it.
DROP INDEX resends_by_key;
CREATE INDEX resends_by_key ON resends (source, dedupe_key, request_id);
