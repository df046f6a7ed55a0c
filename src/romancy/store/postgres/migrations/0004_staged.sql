-- migrate:up

-- What was said in transactions of others: it is said to those concerned when they have committed.
CREATE TABLE romancy_staged (
    seq  BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind TEXT   NOT NULL,
    head TEXT   NOT NULL,
    body BYTEA  NOT NULL,
    at   BIGINT NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02);
