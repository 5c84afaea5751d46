CREATE TABLE credential (
    reference TEXT NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    owner TEXT NOT NULL,
    server_key TEXT NOT NULL,
    kind TEXT NOT NULL,
    key_id TEXT NOT NULL,
    sealed BYTEA NOT NULL,
    created_ms BIGINT NOT NULL,
    updated_ms BIGINT NOT NULL,
    UNIQUE (tenant, owner, server_key)
);
CREATE INDEX credential_key ON credential (key_id, reference);
