"""The tables, as SQLAlchemy sees them; how a database gets them is the migrations', which alone load this.

The memory's row has no vectors and is keyed by id. What a search reads lives in side tables,
hash-partitioned by scope, so that a search touches one owner's partition and a move replaces the side rows:
``passage`` for meaning, the others for words and tags. They name scopes, memories, words and tags by numbers, which
never leave this plugin. The ``vector`` column has no dimension, so any number of spaces share it.
Names of people, groups and things compare by code point (collation C), so orders are Python's.
"""

from __future__ import annotations

from typing import Any

from pgvector.sqlalchemy import VECTOR
from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

metadata = MetaData()


def _text(name: str, *, nullable: bool = False) -> Column[str]:
    return Column(name, Text(collation="C"), nullable=nullable)


def _integer(name: str) -> Column[int]:
    return Column(name, Integer, nullable=False)


def _number(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


def _moment(name: str, *, nullable: bool = False) -> Column[Any]:
    return Column(name, DateTime(timezone=True), nullable=nullable)


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

scope = Table(
    "scope",
    metadata,
    Column("number", Integer, Identity(always=True), nullable=False),
    _text("key"),
    PrimaryKeyConstraint("number", name="scope_pkey"),
    UniqueConstraint("key", name="scope_key"),
)
"""The number of every scope key that has had a memory; a scope keeps its number for ever."""

memory = Table(
    "memory",
    metadata,
    _text("id"),
    Column("number", BigInteger, Identity(always=True), nullable=False),
    _integer("scope_number"),
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
    UniqueConstraint("number", name="memory_number"),
    ForeignKeyConstraint(["project_id"], ["project.id"], name="memory_project"),
    CheckConstraint(
        "CASE scope WHEN 'user' THEN user_name IS NOT NULL AND project_id IS NULL "
        "WHEN 'project' THEN user_name IS NULL AND project_id IS NOT NULL ELSE false END",
        name="memory_scope",
    ),
    Index("memory_page", "scope_key", "deleted", text("created_at DESC"), "id"),
    Index("memory_embedded", "embedded_in", "id", postgresql_where=text("NOT deleted")),
)
"""``embedded_in`` holds the numbers of the spaces in which the passages are complete."""

search_entry = Table(
    "search_entry",
    metadata,
    _integer("scope"),
    _number("memory"),
    _integer("length"),
    _integer("batch"),
    _text("analyser"),
    _number("changed"),
    PrimaryKeyConstraint("scope", "memory", name="search_entry_pkey", postgresql_include=["length", "batch"]),
    Index("search_entry_analyser", "analyser"),
    Index("search_entry_changed", "scope", "changed"),
    postgresql_partition_by="HASH (scope)",
)
"""A live memory as a search counts it, and the batch of postings that says what it is found by; 0 if that is read from
its ``search_keys``. ``changed`` is the transaction that changed last what it is found by."""

search_keys = Table(
    "search_keys",
    metadata,
    _integer("scope"),
    _number("memory"),
    Column("unsettled", Integer),
    Column("terms", LargeBinary, nullable=False),
    Column("tags", LargeBinary, nullable=False),
    PrimaryKeyConstraint("scope", "memory", name="search_keys_pkey"),
    Index("search_keys_unsettled", "unsettled"),
    postgresql_partition_by="HASH (scope)",
)
"""What a live memory is found by, as ``keys`` packs it. ``unsettled`` is its scope as long as it is in no batch: a
column of its own, so that PostgreSQL knows of how many memories of a scope that is so."""

posting_batch = Table(
    "posting_batch",
    metadata,
    Column("number", Integer, Identity(always=True), nullable=False),
    _integer("scope"),
    _integer("memories"),
    PrimaryKeyConstraint("number", name="posting_batch_pkey"),
    Index("posting_batch_scope", "scope"),
)
"""Memories of a scope whose words went into postings together, and how many they were then."""

posting = Table(
    "posting",
    metadata,
    _integer("scope"),
    _integer("batch"),
    _number("key"),
    Column("holders", LargeBinary, nullable=False),
    PrimaryKeyConstraint("scope", "key", "batch", name="posting_pkey"),
    postgresql_partition_by="HASH (scope)",
)
"""The memories of a batch that held a word or a tag, as ``keys`` packs them. It stays as it was made: a memory whose
entry is not of this batch any more is none of its holders."""

passage = Table(
    "passage",
    metadata,
    _integer("scope"),
    _integer("space"),
    _number("memory"),
    _text("hash"),
    Column("embedding", VECTOR(), nullable=False),
    PrimaryKeyConstraint("scope", "space", "memory", "hash", name="passage_pkey"),
    postgresql_partition_by="HASH (scope)",
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
    _text("embedder", nullable=True),
    _moment("registered_at"),
    _moment("activated_at", nullable=True),
    PrimaryKeyConstraint("number", name="space_pkey"),
    UniqueConstraint("id", name="space_id"),
)

embedding_lease = Table(
    "embedding_lease",
    metadata,
    _integer("space"),
    _number("memory"),
    _integer("version"),
    _moment("until"),
    PrimaryKeyConstraint("space", "memory", name="embedding_lease_pkey"),
)
"""Until when somebody embeds a version of a memory in a space; there are no more rows than are being worked on."""

approximate = Table(
    "approximate",
    metadata,
    _integer("space"),
    _integer("scope"),
    _number("passages"),
    PrimaryKeyConstraint("space", "scope", name="approximate_pkey"),
)
"""The scopes that have outgrown exact search in a space and have an index there; how many passages they had."""

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
    Index("audit_scope", "scope_key", text("at DESC"), "id", postgresql_where=text("memory_id IS NULL")),
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

api_token = Table(
    "api_token",
    metadata,
    _text("id"),
    _text("digest"),
    _text("user_name"),
    _texts("group_names"),
    _texts("scopes"),
    _moment("created_at"),
    _moment("expires_at", nullable=True),
    _moment("last_used_at", nullable=True),
    _moment("revoked_at", nullable=True),
    PrimaryKeyConstraint("id", name="api_token_pkey"),
    UniqueConstraint("digest", name="api_token_digest"),
    Index("api_token_page", text("created_at DESC"), "id"),
)
