-- Servers that employees have registered.
CREATE TABLE server (
    tenant     TEXT   NOT NULL,
    owner      TEXT   NOT NULL,
    server_key TEXT   NOT NULL,
    url        TEXT   NOT NULL, -- in its normal form
    team       TEXT,            -- whose members see it
    body       TEXT   NOT NULL, -- name, dialect, kind of credential and options, JSON
    revision   BIGINT NOT NULL,
    created_ms BIGINT NOT NULL,
    updated_ms BIGINT NOT NULL,
    PRIMARY KEY (tenant, owner, server_key)
);
CREATE INDEX server_team ON server (tenant, team) WHERE team IS NOT NULL;
CREATE INDEX server_address ON server (server_key, url);

-- What each of them last listed.
CREATE TABLE server_archive (
    tenant     TEXT   NOT NULL,
    owner      TEXT   NOT NULL,
    server_key TEXT   NOT NULL,
    listing    BLOB   NOT NULL, -- JSON, with each element as it was listed
    listed_ms  BIGINT NOT NULL,
    failure    TEXT,
    failed_ms  BIGINT NOT NULL,
    PRIMARY KEY (tenant, owner, server_key)
);

-- The number of the last write of each, those that are gone too.
CREATE TABLE server_change (
    tenant     TEXT   NOT NULL,
    owner      TEXT   NOT NULL,
    server_key TEXT   NOT NULL,
    change     BIGINT NOT NULL,
    PRIMARY KEY (tenant, owner, server_key)
);
CREATE UNIQUE INDEX server_change_order ON server_change (change);

-- One row: the number of the last write, and of the last one that is not remembered.
CREATE TABLE server_clock (
    id        BIGINT NOT NULL PRIMARY KEY,
    last      BIGINT NOT NULL,
    forgotten BIGINT NOT NULL
);
INSERT INTO server_clock (id, last, forgotten) VALUES (1, 0, 0);
