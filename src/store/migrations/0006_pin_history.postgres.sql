-- Every definition of a tool that was seen.
CREATE TABLE pin_version (
    scope      TEXT COLLATE "C" NOT NULL, -- an upstream, or somebody's own server
    tool       TEXT COLLATE "C" NOT NULL,
    version    BIGINT NOT NULL,     -- from 1 on
    form       BIGINT NOT NULL,     -- of the digest; 0: it is still to be made
    digest     BYTEA  NOT NULL,
    definition BYTEA  NOT NULL,     -- as its server sent it
    first_ms   BIGINT NOT NULL,
    last_ms    BIGINT NOT NULL,
    PRIMARY KEY (scope, tool, version)
);

-- Every approval of one: the highest number of a tool is the one in force.
CREATE TABLE pin_approval (
    number      BIGINT NOT NULL PRIMARY KEY,
    scope       TEXT COLLATE "C" NOT NULL,
    tool        TEXT COLLATE "C" NOT NULL,
    version     BIGINT NOT NULL,
    how         BIGINT NOT NULL,    -- 0 by first use, 1 approved, 2 gone back to
    approved_by TEXT   NOT NULL,
    approved_ms BIGINT NOT NULL
);
CREATE INDEX pin_approval_tool ON pin_approval (scope, tool, number);

INSERT INTO pin_version (scope, tool, version, form, digest, definition, first_ms, last_ms)
SELECT upstream, tool, 1, 0, ''::bytea, definition, approved_ms, approved_ms FROM pin;

INSERT INTO pin_approval (number, scope, tool, version, how, approved_by, approved_ms)
SELECT row_number() OVER (ORDER BY approved_ms, upstream, tool),
    upstream, tool, 1, 1, approved_by, approved_ms
FROM pin;

DROP TABLE pin;
