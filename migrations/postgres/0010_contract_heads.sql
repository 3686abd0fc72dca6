-- URL and headers of a request that gave several events: they stand here once, and are empty in the rows of those events.
-- The events of other requests have theirs beside them, because one row is cheaper than two.
CREATE TABLE request_heads (
    request_id uuid  NOT NULL PRIMARY KEY,
    url        text  NOT NULL,
    headers    bytea NOT NULL
);
