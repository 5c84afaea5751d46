-- What has been spent of quotas, in the window that runs or ran last.
CREATE TABLE quota (
    account  BYTEA   NOT NULL PRIMARY KEY, -- quota, and what it counts apart, hashed
    start_ms BIGINT  NOT NULL,             -- of the window
    end_ms   BIGINT  NOT NULL,
    used     BIGINT  NOT NULL,             -- spent, or held by a process
    granted  BIGINT  NOT NULL              -- to whoever asked last
);
CREATE INDEX quota_end ON quota (end_ms);
