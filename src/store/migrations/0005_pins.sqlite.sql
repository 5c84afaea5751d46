CREATE TABLE pin (
    upstream TEXT NOT NULL,
    tool TEXT NOT NULL,
    definition BLOB NOT NULL,
    approved_by TEXT NOT NULL,
    approved_ms BIGINT NOT NULL,
    PRIMARY KEY (upstream, tool)
);
