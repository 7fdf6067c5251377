"""memories, projects, search entries, vectors, audit and receipts"""

from __future__ import annotations

from alembic import context, op

revision = "0001"
down_revision = None

_TABLES = """
CREATE TABLE project (
    id text COLLATE "C" CONSTRAINT project_pkey PRIMARY KEY,
    scope_key text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    version integer NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    CONSTRAINT project_owner_key UNIQUE (owner, key)
);
CREATE INDEX project_key ON project (key);

CREATE TABLE share (
    project_id text COLLATE "C" NOT NULL CONSTRAINT share_project REFERENCES project (id),
    group_name text COLLATE "C" NOT NULL,
    access text COLLATE "C" NOT NULL CONSTRAINT share_access CHECK (access IN ('ro', 'rw')),
    CONSTRAINT share_pkey PRIMARY KEY (project_id, group_name)
);
CREATE INDEX share_group ON share (group_name, project_id);

CREATE TABLE scope (
    number integer GENERATED ALWAYS AS IDENTITY CONSTRAINT scope_pkey PRIMARY KEY,
    key text COLLATE "C" NOT NULL CONSTRAINT scope_key UNIQUE
);

CREATE TABLE memory (
    id text COLLATE "C" CONSTRAINT memory_pkey PRIMARY KEY,
    number bigint GENERATED ALWAYS AS IDENTITY NOT NULL CONSTRAINT memory_number UNIQUE,
    scope_number integer NOT NULL,
    scope_key text COLLATE "C" NOT NULL,
    scope text COLLATE "C" NOT NULL,
    user_name text COLLATE "C",
    project_id text COLLATE "C" CONSTRAINT memory_project REFERENCES project (id),
    content text COLLATE "C" NOT NULL,
    tags text[] COLLATE "C" NOT NULL,
    version integer NOT NULL,
    last_edited_by text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    deleted boolean NOT NULL,
    embedded_in integer[] NOT NULL,
    CONSTRAINT memory_scope CHECK (
        CASE scope
            WHEN 'user' THEN user_name IS NOT NULL AND project_id IS NULL
            WHEN 'project' THEN user_name IS NULL AND project_id IS NOT NULL
            ELSE false
        END
    )
) WITH (fillfactor = 85);
CREATE INDEX memory_page ON memory (scope_key, deleted, created_at DESC, id);
CREATE INDEX memory_embedded ON memory (embedded_in) WHERE NOT deleted;

CREATE TABLE search_entry (
    scope integer NOT NULL,
    memory bigint NOT NULL,
    length integer NOT NULL,
    analyser text COLLATE "C" NOT NULL,
    terms text[] COLLATE "C" NOT NULL,
    frequencies integer[] NOT NULL,
    CONSTRAINT search_entry_pkey PRIMARY KEY (scope, memory) INCLUDE (length)
) PARTITION BY HASH (scope);
CREATE INDEX search_entry_analyser ON search_entry (analyser);

CREATE TABLE posting (
    memory bigint NOT NULL,
    scope integer NOT NULL,
    frequency integer NOT NULL,
    term text COLLATE "C" NOT NULL,
    CONSTRAINT posting_pkey PRIMARY KEY (scope, term, memory) INCLUDE (frequency)
) PARTITION BY HASH (scope);

CREATE TABLE passage (
    scope integer NOT NULL,
    space integer NOT NULL,
    memory bigint NOT NULL,
    hash text COLLATE "C" NOT NULL,
    embedding vector NOT NULL,
    CONSTRAINT passage_pkey PRIMARY KEY (scope, space, memory, hash)
) PARTITION BY HASH (scope);

CREATE TABLE space (
    number integer GENERATED ALWAYS AS IDENTITY CONSTRAINT space_pkey PRIMARY KEY,
    id text COLLATE "C" NOT NULL CONSTRAINT space_id UNIQUE,
    provider text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    dimensions integer NOT NULL,
    pooling text COLLATE "C" NOT NULL,
    normalised boolean NOT NULL,
    passage_tokens integer NOT NULL,
    probes vector[] NOT NULL
);

CREATE TABLE audit (
    id text COLLATE "C" CONSTRAINT audit_pkey PRIMARY KEY,
    at timestamptz NOT NULL,
    actor text COLLATE "C" NOT NULL,
    agent text COLLATE "C",
    surface text COLLATE "C" NOT NULL,
    action text COLLATE "C" NOT NULL,
    memory_id text COLLATE "C",
    project_id text COLLATE "C",
    version integer NOT NULL,
    changed text[] COLLATE "C" NOT NULL,
    scope_key text COLLATE "C" NOT NULL,
    moved_to text COLLATE "C",
    patch jsonb,
    details jsonb
);
CREATE INDEX audit_memory ON audit (memory_id, version DESC);

CREATE TABLE receipt (
    principal text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    body_hash text COLLATE "C" NOT NULL,
    memory_id text COLLATE "C" NOT NULL,
    receipt jsonb NOT NULL,
    at timestamptz NOT NULL,
    CONSTRAINT receipt_pkey PRIMARY KEY (principal, key)
);
CREATE INDEX receipt_at ON receipt (at);
"""

# Rows up to a page stay in line: a search reads every vector of a scope.
_PARTITION = """
CREATE TABLE {table}_{part} PARTITION OF {table} FOR VALUES WITH (MODULUS {parts}, REMAINDER {part})
WITH (toast_tuple_target = 8160, fillfactor = {fillfactor});
"""


def upgrade() -> None:
    """Create every table, the side tables in as many partitions as the configuration says."""
    parts: int = context.config.attributes["partitions"]
    op.execute(_TABLES)
    for table, fillfactor in (("search_entry", 85), ("posting", 100), ("passage", 100)):
        for part in range(parts):
            op.execute(_PARTITION.format(table=table, part=part, parts=parts, fillfactor=fillfactor))
