-- An event on its way into `events`: many of them are one array, which is one value and not one for each column.
CREATE TYPE incoming_event AS (
    id             uuid,
    source         text,
    dedupe_key     text,
    received_at    timestamptz,
    request_id     uuid,
    remote_address text,
    event_type     text,
    account        text,
    occurred_at    timestamptz,
    proof          text,
    method         text,
    url            text,
    headers        bytea,
    body           bytea,
    object_id      text
);
