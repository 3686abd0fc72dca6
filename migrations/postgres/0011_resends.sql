-- How often an event came again is a number beside its key, and of the arrivals only the first and the last five are kept: a
-- recorded request can be sent again without end. `resends` stays for older gateways beside this one; what they add is counted, too.
ALTER TABLE dedupe_keys ADD COLUMN resends bigint NOT NULL DEFAULT 0;

CREATE TABLE resend_arrivals (
    source         text        NOT NULL,
    dedupe_key     text        NOT NULL,
    -- 1 to 5 for the first ones; the later ones take turns in 6 to 10.
    slot           smallint    NOT NULL,
    -- Which resend of its key it was, from 1.
    number         bigint      NOT NULL,
    received_at    timestamptz NOT NULL,
    request_id     uuid        NOT NULL,
    remote_address text        NOT NULL,
    PRIMARY KEY (source, dedupe_key, slot)
);

-- Older gateways go on adding to it while its rows are moved.
LOCK TABLE resends IN SHARE ROW EXCLUSIVE MODE;

WITH numbered AS (
    SELECT *, row_number() OVER (PARTITION BY source, dedupe_key ORDER BY received_at, request_id) AS number,
              count(*) OVER (PARTITION BY source, dedupe_key) AS total
    FROM resends
)
INSERT INTO resend_arrivals (source, dedupe_key, slot, number, received_at, request_id, remote_address)
SELECT source, dedupe_key, CASE WHEN number <= 5 THEN number ELSE 6 + number % 5 END, number, received_at, request_id,
       remote_address
FROM numbered WHERE number <= 5 OR number > total - 5;

UPDATE dedupe_keys SET resends = counted.total
FROM (SELECT source, dedupe_key, count(*) AS total FROM resends GROUP BY source, dedupe_key) AS counted
WHERE dedupe_keys.source = counted.source AND dedupe_keys.dedupe_key = counted.dedupe_key;

DELETE FROM resends;
