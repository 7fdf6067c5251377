"""The tables, as SQLAlchemy sees them; how a database gets them is the migrations'.

The memory's row has no vectors and is keyed by id. What a search reads lives in two narrow side tables,
hash-partitioned by scope key, so that a search touches one owner's partition and a move replaces the side rows:
``passage`` for meaning, ``search_entry`` for words and tags. The ``vector`` column has no dimension, so any number of
spaces share it. Names of people, groups and things compare by code point (collation C), so orders are Python's.
"""

from __future__ import annotations

from typing import Any

from pgvector.sqlalchemy import VECTOR
from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

VERSION_TABLE = "muniment_schema"
"""Where Alembic notes the revision."""
REVISIONS = ("0001",)
"""Every revision that this distribution knows, oldest first; a test compares it with the migrations."""
SIDE_TABLES = ("passage", "search_entry")
"""The tables that are partitioned by scope key."""

metadata = MetaData()


def _text(name: str, *, nullable: bool = False) -> Column[str]:
    return Column(name, Text(collation="C"), nullable=nullable)


def _integer(name: str) -> Column[int]:
    return Column(name, Integer, nullable=False)


def _moment(name: str) -> Column[Any]:
    return Column(name, DateTime(timezone=True), nullable=False)


def _texts(name: str) -> Column[Any]:
    return Column(name, ARRAY(Text(collation="C")), nullable=False)


project = Table(
    "project",
    metadata,
    _text("id"),
    _text("scope_key"),
    _text("key"),
    _text("owner"),
    _integer("version"),
    _moment("created_at"),
    _moment("updated_at"),
    PrimaryKeyConstraint("id", name="project_pkey"),
    UniqueConstraint("owner", "key", name="project_owner_key"),
    Index("project_key", "key"),
)

share = Table(
    "share",
    metadata,
    _text("project_id"),
    _text("group_name"),
    _text("access"),
    PrimaryKeyConstraint("project_id", "group_name", name="share_pkey"),
    ForeignKeyConstraint(["project_id"], ["project.id"], name="share_project"),
    CheckConstraint("access IN ('ro', 'rw')", name="share_access"),
    Index("share_group", "group_name", "project_id"),
)

memory = Table(
    "memory",
    metadata,
    _text("id"),
    _text("scope_key"),
    _text("scope"),
    _text("user_name", nullable=True),
    _text("project_id", nullable=True),
    _text("content"),
    _texts("tags"),
    _integer("version"),
    _text("last_edited_by"),
    _moment("created_at"),
    _moment("updated_at"),
    Column("deleted", Boolean, nullable=False),
    Column("embedded_in", ARRAY(Integer), nullable=False),
    PrimaryKeyConstraint("id", name="memory_pkey"),
    ForeignKeyConstraint(["project_id"], ["project.id"], name="memory_project"),
    CheckConstraint(
        "CASE scope WHEN 'user' THEN user_name IS NOT NULL AND project_id IS NULL "
        "WHEN 'project' THEN user_name IS NULL AND project_id IS NOT NULL ELSE false END",
        name="memory_scope",
    ),
    Index("memory_page", "scope_key", "deleted", text("created_at DESC"), "id"),
)
"""``embedded_in`` holds the numbers of the spaces in which the passages are complete."""

search_entry = Table(
    "search_entry",
    metadata,
    _text("scope_key"),
    _text("memory_id"),
    _text("analyser"),
    _integer("length"),
    Column("terms", JSONB, nullable=False),
    _texts("tags"),
    PrimaryKeyConstraint("scope_key", "memory_id", name="search_entry_pkey"),
    Index("search_entry_analyser", "analyser"),
    postgresql_partition_by="HASH (scope_key)",
)
"""A live memory as words and tags see it; ``terms`` maps each term to its frequency."""

passage = Table(
    "passage",
    metadata,
    _text("scope_key"),
    _integer("space"),
    _text("memory_id"),
    _text("hash"),
    Column("embedding", VECTOR(), nullable=False),
    PrimaryKeyConstraint("scope_key", "space", "memory_id", "hash", name="passage_pkey"),
    postgresql_partition_by="HASH (scope_key)",
)

space = Table(
    "space",
    metadata,
    Column("number", Integer, Identity(always=True), nullable=False),
    _text("id"),
    _text("provider"),
    _text("model"),
    _integer("dimensions"),
    _text("pooling"),
    Column("normalised", Boolean, nullable=False),
    _integer("passage_tokens"),
    Column("probes", ARRAY(VECTOR()), nullable=False),
    PrimaryKeyConstraint("number", name="space_pkey"),
    UniqueConstraint("id", name="space_id"),
)

audit = Table(
    "audit",
    metadata,
    _text("id"),
    _moment("at"),
    _text("actor"),
    _text("agent", nullable=True),
    _text("surface"),
    _text("action"),
    _text("memory_id", nullable=True),
    _text("project_id", nullable=True),
    _integer("version"),
    _texts("changed"),
    _text("scope_key"),
    _text("moved_to", nullable=True),
    Column("patch", JSONB),
    Column("details", JSONB),
    PrimaryKeyConstraint("id", name="audit_pkey"),
    Index("audit_memory", "memory_id", text("version DESC")),
)

receipt = Table(
    "receipt",
    metadata,
    _text("principal"),
    _text("key"),
    _text("body_hash"),
    _text("memory_id"),
    Column("receipt", JSONB, nullable=False),
    _moment("at"),
    PrimaryKeyConstraint("principal", "key", name="receipt_pkey"),
    Index("receipt_at", "at"),
)
