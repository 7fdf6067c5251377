"""postings in batches"""

from __future__ import annotations

from alembic import op
from sqlalchemy import text

revision = "0005"
down_revision = "0004"

# Processes of an earlier release may still write; they wait, and then fail on what they find.
_LOCK = "LOCK TABLE memory, search_entry, posting IN ACCESS EXCLUSIVE MODE"

# Terms and tags become entries of numbers, as ``keys`` makes them.
_ENTRIES = """
CREATE TABLE converted AS
SELECT
    e.scope, e.memory, e.length, e.analyser,
    (
        SELECT string_agg(int8send({key} << 16 | t.frequency), '')
        FROM unnest(e.terms, e.frequencies) AS t (name, frequency)
    ) AS terms,
    (
        SELECT string_agg(int8send({key} << 16 | 1), '')
        FROM (SELECT DISTINCT ' ' || g.tag FROM unnest(m.tags) AS g (tag)) AS t (name)
    ) AS tags
FROM search_entry e JOIN memory m ON m.number = e.memory
"""
_KEY = "(('x' || encode(substring(sha256(convert_to(t.name, 'UTF8')) FROM 1 FOR 6), 'hex'))::bit(48)::bigint >> 1)"

_TABLES = """
DROP TABLE search_entry, posting;

CREATE TABLE search_entry (
    scope integer NOT NULL,
    memory bigint NOT NULL,
    length integer NOT NULL,
    batch integer NOT NULL,
    analyser text COLLATE "C" NOT NULL,
    changed bigint NOT NULL,
    CONSTRAINT search_entry_pkey PRIMARY KEY (scope, memory) INCLUDE (length, batch)
) PARTITION BY HASH (scope);
CREATE INDEX search_entry_analyser ON search_entry (analyser);
CREATE INDEX search_entry_changed ON search_entry (scope, changed);

CREATE TABLE search_keys (
    scope integer NOT NULL,
    memory bigint NOT NULL,
    unsettled integer,
    terms bytea NOT NULL,
    tags bytea NOT NULL,
    CONSTRAINT search_keys_pkey PRIMARY KEY (scope, memory)
) PARTITION BY HASH (scope);
CREATE INDEX search_keys_unsettled ON search_keys (unsettled);

CREATE TABLE posting_batch (
    number integer GENERATED ALWAYS AS IDENTITY CONSTRAINT posting_batch_pkey PRIMARY KEY,
    scope integer NOT NULL,
    memories integer NOT NULL
);
CREATE INDEX posting_batch_scope ON posting_batch (scope);

CREATE TABLE posting (
    scope integer NOT NULL,
    batch integer NOT NULL,
    key bigint NOT NULL,
    holders bytea NOT NULL,
    CONSTRAINT posting_pkey PRIMARY KEY (scope, key, batch)
) PARTITION BY HASH (scope)
"""

# Rows up to a page stay in line: a search reads them whole.
_PARTITION = """
CREATE TABLE {table}_{part} PARTITION OF {table} FOR VALUES WITH (MODULUS {parts}, REMAINDER {part})
WITH (toast_tuple_target = 8160, fillfactor = {fillfactor}, autovacuum_vacuum_scale_factor = 0.05)
"""

_FILL = """
INSERT INTO search_entry (scope, memory, length, batch, analyser, changed)
SELECT c.scope, c.memory, c.length, 0, c.analyser, pg_current_xact_id()::text::bigint FROM converted c
ORDER BY c.scope, c.memory;

INSERT INTO search_keys (scope, memory, unsettled, terms, tags)
SELECT c.scope, c.memory, c.scope, coalesce(c.terms, ''), coalesce(c.tags, '') FROM converted c
ORDER BY c.scope, c.memory;

DROP TABLE converted
"""


def upgrade() -> None:
    """Make the tables of words and tags anew, in as many partitions as they had, with what was in them.

    Postings are made later, by searches and by ``muniment optimize``.
    """
    partitions = text("SELECT count(*) FROM pg_inherits WHERE inhparent = 'posting'::regclass")
    parts = op.get_bind().execute(partitions).scalar_one()
    op.execute(_LOCK)
    op.execute(_ENTRIES.format(key=_KEY))
    op.execute(_TABLES)
    for table, fillfactor in (("search_entry", 85), ("search_keys", 85), ("posting", 100)):
        for part in range(parts):
            op.execute(_PARTITION.format(table=table, part=part, parts=parts, fillfactor=fillfactor))
    op.execute(_FILL)
