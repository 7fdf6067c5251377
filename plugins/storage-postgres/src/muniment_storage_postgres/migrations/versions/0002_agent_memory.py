"""agent memory"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"

_TABLES = """
CREATE TABLE envelope (
    agent_name text COLLATE "C" NOT NULL,
    instance_id text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    last_seen bigint NOT NULL,
    oldest bigint NOT NULL,
    sync_key text COLLATE "C",
    pods text[] COLLATE "C" NOT NULL,
    CONSTRAINT envelope_pkey PRIMARY KEY (agent_name, instance_id)
) WITH (fillfactor = 50);

CREATE TABLE section (
    agent_name text COLLATE "C" NOT NULL,
    instance_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    visibility text COLLATE "C" NOT NULL,
    version integer NOT NULL,
    byte_size integer NOT NULL,
    updated_at timestamptz NOT NULL,
    CONSTRAINT section_pkey PRIMARY KEY (agent_name, instance_id, name)
) WITH (fillfactor = 85);

CREATE TABLE exchange (
    agent_name text COLLATE "C" NOT NULL,
    instance_id text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    at timestamptz NOT NULL,
    kind text COLLATE "C" NOT NULL,
    surface_pod_id text COLLATE "C" NOT NULL,
    surface_label text COLLATE "C" NOT NULL,
    peers text[] COLLATE "C" NOT NULL,
    takeaway text COLLATE "C" NOT NULL,
    size integer NOT NULL,
    CONSTRAINT exchange_pkey PRIMARY KEY (agent_name, instance_id, revision)
);

CREATE TABLE exchange_key (
    agent_name text COLLATE "C" NOT NULL,
    instance_id text COLLATE "C" NOT NULL,
    dedupe_key text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    CONSTRAINT exchange_key_pkey PRIMARY KEY (agent_name, instance_id, dedupe_key)
);

CREATE TABLE event (
    agent_name text COLLATE "C" NOT NULL,
    instance_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    payload text COLLATE "C" NOT NULL,
    enqueued_at timestamptz NOT NULL,
    acked boolean NOT NULL,
    attempts integer NOT NULL,
    token text COLLATE "C",
    lease_until timestamptz,
    delivered bigint,
    CONSTRAINT event_pkey PRIMARY KEY (agent_name, instance_id, id)
);
CREATE INDEX event_pending ON event (agent_name, instance_id, number) WHERE token IS NULL;
CREATE INDEX event_leased ON event (agent_name, instance_id, attempts, lease_until)
    WHERE token IS NOT NULL AND NOT acked;
"""


def upgrade() -> None:
    """Create the tables of envelopes and events."""
    op.execute(_TABLES)
