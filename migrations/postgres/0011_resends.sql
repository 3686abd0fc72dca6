-- How often an event came again is a number beside its key, and of the arrivals only the first and the last five are kept: a
-- recorded request can be sent again without end. The rows of `resends` stay where they are, because moving millions of them would
-- keep everything waiting; they are counted along, and so is what an older gateway beside this one adds.
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
