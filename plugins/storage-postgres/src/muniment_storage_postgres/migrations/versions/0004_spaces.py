"""the registry of spaces"""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"

_TABLES = """
ALTER TABLE space
    ADD COLUMN embedder text COLLATE "C",
    ADD COLUMN registered_at timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN activated_at timestamptz;
ALTER TABLE space ALTER COLUMN registered_at DROP DEFAULT;

CREATE TABLE embedding_lease (
    space integer NOT NULL,
    memory bigint NOT NULL,
    version integer NOT NULL,
    until timestamptz NOT NULL,
    CONSTRAINT embedding_lease_pkey PRIMARY KEY (space, memory)
);

CREATE TABLE approximate (
    space integer NOT NULL,
    scope integer NOT NULL,
    passages bigint NOT NULL,
    CONSTRAINT approximate_pkey PRIMARY KEY (space, scope)
);

DROP INDEX memory_embedded;
CREATE INDEX memory_embedded ON memory (embedded_in, id) WHERE NOT deleted;
CREATE INDEX audit_scope ON audit (scope_key, at DESC, id) WHERE memory_id IS NULL;
"""


def upgrade() -> None:
    """Add what the registry knows of a space, the leases of those who fill one, and the indexes for both."""
    op.execute(_TABLES)
