-- As in the store: URL and headers of a request that gave several events. A head leaves with the last of them.
CREATE TABLE request_heads (
    request_id BLOB NOT NULL PRIMARY KEY,
    url        TEXT NOT NULL,
    headers    BLOB NOT NULL
) STRICT;

-- Does an event of this request still wait? Only the events that have a head elsewhere are in it.
CREATE INDEX events_by_request ON events (request_id) WHERE url = '';
