-- migrate:up

-- Which archived generations are old enough to be thrown away.
CREATE INDEX romancy_payloads_begun ON romancy_payloads (begun_at);
