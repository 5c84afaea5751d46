-- Records of calls that were made under an idempotency key.
CREATE TABLE replay (
    scope       BLOB    NOT NULL PRIMARY KEY, -- tenant, principal, tool and key, hashed
    token       BLOB    NOT NULL,             -- the claim
    owner       BLOB    NOT NULL,             -- the process that made it
    key_id      BIGINT  NOT NULL,             -- under which the fingerprint was made
    fingerprint BLOB    NOT NULL,
    state       BIGINT  NOT NULL,             -- 0 in flight, 1 done, 2 unknown
    lease_ms    BIGINT  NOT NULL,             -- in flight: until then, and unknown afterwards
    expires_ms  BIGINT  NOT NULL,
    cost        BIGINT  NOT NULL,
    body        BLOB                          -- done: the answer, sealed
);
CREATE INDEX replay_expires ON replay (expires_ms, cost);
CREATE INDEX replay_in_flight ON replay (owner) WHERE state = 0;
