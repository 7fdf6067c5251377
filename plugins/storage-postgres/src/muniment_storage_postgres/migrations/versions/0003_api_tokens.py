"""api tokens"""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"

_TABLES = """
CREATE TABLE api_token (
    id text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    user_name text COLLATE "C" NOT NULL,
    group_names text[] COLLATE "C" NOT NULL,
    scopes text[] COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    last_used_at timestamptz,
    revoked_at timestamptz,
    CONSTRAINT api_token_pkey PRIMARY KEY (id),
    CONSTRAINT api_token_digest UNIQUE (digest)
) WITH (fillfactor = 85);
CREATE INDEX api_token_page ON api_token (created_at DESC, id);
"""


def upgrade() -> None:
    """Create the table of API tokens."""
    op.execute(_TABLES)
