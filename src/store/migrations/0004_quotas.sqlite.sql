-- What has been spent of quotas, in the window that runs or ran last.
CREATE TABLE quota (
    account  BLOB    NOT NULL PRIMARY KEY, -- quota, and what it counts apart, hashed
    start_ms INTEGER NOT NULL,             -- of the window
    end_ms   INTEGER NOT NULL,
    used     INTEGER NOT NULL,             -- spent, or held by a process
    granted  INTEGER NOT NULL              -- to whoever asked last
);
CREATE INDEX quota_end ON quota (end_ms);
