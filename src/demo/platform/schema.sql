-- The platform's tables. Who may see a task is said in one place, the view `access`; every
-- query that answers an employee joins it.

CREATE TABLE IF NOT EXISTS employee (
    emp_id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL
) STRICT;

CREATE TABLE IF NOT EXISTS task (
    task_id     TEXT PRIMARY KEY,
    owner       TEXT NOT NULL REFERENCES employee (emp_id),
    name        TEXT NOT NULL,
    target      TEXT NOT NULL,
    description TEXT NOT NULL,
    created_ms  INTEGER NOT NULL
) STRICT;

CREATE TABLE IF NOT EXISTS share (
    task_id TEXT NOT NULL REFERENCES task (task_id),
    emp_id  TEXT NOT NULL REFERENCES employee (emp_id),
    PRIMARY KEY (task_id, emp_id)
) STRICT;

-- `outcome`, `duration_ms` and `message`: what a run of this case will find.
CREATE TABLE IF NOT EXISTS test_case (
    case_id     TEXT PRIMARY KEY,
    task_id     TEXT NOT NULL REFERENCES task (task_id),
    position    INTEGER NOT NULL,
    name        TEXT NOT NULL,
    priority    TEXT NOT NULL CHECK (priority IN ('P0', 'P1', 'P2')),
    steps       TEXT NOT NULL,
    expected    TEXT NOT NULL,
    outcome     TEXT NOT NULL CHECK (outcome IN ('passed', 'failed')),
    duration_ms INTEGER NOT NULL,
    message     TEXT,
    UNIQUE (task_id, position)
) STRICT;

-- One run for each key of an employee: the unique index is what makes a start happen once. Runs
-- are never deleted, so their numbers follow one another.
CREATE TABLE IF NOT EXISTS run (
    run_id          INTEGER PRIMARY KEY,
    task_id         TEXT NOT NULL REFERENCES task (task_id),
    emp_id          TEXT NOT NULL REFERENCES employee (emp_id),
    idempotency_key TEXT NOT NULL,
    status          TEXT NOT NULL
                    CHECK (status IN ('queued', 'running', 'passed', 'failed', 'stopped')),
    created_ms      INTEGER NOT NULL,
    started_ms      INTEGER,
    finished_ms     INTEGER,
    UNIQUE (emp_id, idempotency_key)
) STRICT;

CREATE INDEX IF NOT EXISTS unfinished ON run (status) WHERE status IN ('queued', 'running');

CREATE TABLE IF NOT EXISTS case_result (
    run_id      INTEGER NOT NULL REFERENCES run (run_id),
    case_id     TEXT NOT NULL REFERENCES test_case (case_id),
    outcome     TEXT NOT NULL CHECK (outcome IN ('passed', 'failed')),
    duration_ms INTEGER NOT NULL,
    message     TEXT,
    PRIMARY KEY (run_id, case_id)
) STRICT;

-- The owner, and those of the same tenant it is shared with.
CREATE VIEW IF NOT EXISTS access AS
SELECT task.task_id, owner.tenant, owner.emp_id, 'own' AS kind
FROM task JOIN employee AS owner ON owner.emp_id = task.owner
UNION ALL
SELECT task.task_id, guest.tenant, guest.emp_id, 'shared' AS kind
FROM share
JOIN task ON task.task_id = share.task_id
JOIN employee AS owner ON owner.emp_id = task.owner
JOIN employee AS guest ON guest.emp_id = share.emp_id AND guest.tenant = owner.tenant;
