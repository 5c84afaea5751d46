-- Calls that wait for somebody's yes, and what became of them.
CREATE TABLE approval (
    id         BLOB   NOT NULL PRIMARY KEY, -- UUIDv7
    binding    BLOB   NOT NULL,             -- the one call that a yes is good for, hashed
    newest     BIGINT NOT NULL,             -- 1 for the newest of its binding, else 0
    tenant     TEXT   NOT NULL,
    holder     BLOB   NOT NULL,             -- whoever asked, hashed
    expires_ms BIGINT NOT NULL,
    asked_ms   BIGINT NOT NULL,
    settled    BIGINT NOT NULL,             -- 0 undecided, 1 decided, 2 told to have expired
    body       TEXT   NOT NULL,             -- the request and its votes, JSON
    sealed     BLOB                         -- the arguments, for those who decide
);
CREATE UNIQUE INDEX approval_newest ON approval (binding) WHERE newest = 1;
CREATE INDEX approval_tenant ON approval (tenant, id);
CREATE INDEX approval_undecided ON approval (expires_ms, holder) WHERE settled = 0;
CREATE INDEX approval_expires ON approval (expires_ms);

-- What is good once, and was taken.
CREATE TABLE approval_taken (
    token      BLOB   NOT NULL PRIMARY KEY,
    expires_ms BIGINT NOT NULL
);
CREATE INDEX approval_taken_expires ON approval_taken (expires_ms);
