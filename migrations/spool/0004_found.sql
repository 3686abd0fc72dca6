-- As in the store: what an event is found by. Events that wait since an earlier version have none of it.
ALTER TABLE events ADD COLUMN priority          TEXT;
ALTER TABLE events ADD COLUMN provider_event_id TEXT;
ALTER TABLE events ADD COLUMN delivery_id       TEXT;
ALTER TABLE events ADD COLUMN tags              TEXT;
ALTER TABLE events ADD COLUMN trace_id          TEXT;
ALTER TABLE events ADD COLUMN secret_index      INTEGER;
-- How long the event's key stands for it, in microseconds; NULL is for ever.
ALTER TABLE events ADD COLUMN key_window_us     INTEGER;
