"""The shape that the search benchmark compares with: one table with everything in the row, three statements, a refetch.

A dimensioned vector with an IVFFlat index made on the empty table, a generated tsvector and tags with GIN; no prepared
statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import psycopg
from pgvector import Vector
from pgvector.psycopg import register_vector

TABLE = """
DROP TABLE IF EXISTS seed_memory;
CREATE TABLE seed_memory (
    id uuid PRIMARY KEY,
    user_id text NOT NULL,
    content text NOT NULL,
    tags text[] NOT NULL,
    version integer NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    embedding vector(384),
    fts tsvector GENERATED ALWAYS AS (to_tsvector('english', content)) STORED
);
CREATE INDEX ON seed_memory (user_id);
CREATE INDEX ON seed_memory USING ivfflat (embedding vector_cosine_ops) WITH (lists = 100);
CREATE INDEX ON seed_memory USING gin (fts);
CREATE INDEX ON seed_memory USING gin (tags)
"""
MEANING = """
SELECT id, 1 - (embedding <=> %(vector)s::vector) AS score FROM seed_memory
WHERE user_id = %(user)s ORDER BY embedding <=> %(vector)s::vector LIMIT 50
"""
WORDS = """
SELECT id, ts_rank_cd(fts, plainto_tsquery('english', %(text)s)) AS score FROM seed_memory
WHERE user_id = %(user)s AND fts @@ plainto_tsquery('english', %(text)s) ORDER BY score DESC LIMIT 50
"""
TAGS = """
SELECT id, cardinality(ARRAY(SELECT unnest(tags) INTERSECT SELECT unnest(%(tags)s::text[]))) AS score FROM seed_memory
WHERE user_id = %(user)s AND tags && %(tags)s::text[] ORDER BY score DESC LIMIT 50
"""
LEGS = {"meaning": MEANING, "words": WORDS, "tags": TAGS}


class SeedShape:
    """A synchronous connection on the table."""

    def __init__(self, conninfo: str) -> None:
        self.connection: psycopg.Connection[Any] = psycopg.connect(conninfo, autocommit=True, prepare_threshold=None)
        register_vector(self.connection)
        for setting in ("jit = off", "max_parallel_workers_per_gather = 0"):
            self.connection.execute(f"SET {setting}".encode())

    def create(self) -> None:
        """Make the empty table and its indexes."""
        self.connection.execute(TABLE.encode())

    def meaning_from_all_lists(self, user: str, vector: Any) -> float:
        """Milliseconds of the meaning leg when it looks into every list of its index."""
        self.connection.execute(b"SET ivfflat.probes = 100")
        start = perf_counter()
        self.connection.execute(MEANING.encode(), {"user": user, "vector": Vector(vector)}).fetchall()
        spent = (perf_counter() - start) * 1e3
        self.connection.execute(b"RESET ivfflat.probes")
        return spent

    def search(
        self, user: str, text: str, tags: Sequence[str], vector: Any, limit: int
    ) -> tuple[dict[str, float], dict[str, list[str]]]:
        """Milliseconds by leg, and the ids that each leg found."""
        parameters = {"user": user, "text": text, "tags": list(tags), "vector": Vector(vector)}
        spent: dict[str, float] = {}
        found: dict[str, list[str]] = {}
        for leg, statement in LEGS.items():
            start = perf_counter()
            found[leg] = [str(row[0]) for row in self.connection.execute(statement.encode(), parameters)]
            spent[leg] = (perf_counter() - start) * 1e3
        start = perf_counter()
        scores: dict[str, float] = {}
        for ids in found.values():
            for rank, one in enumerate(ids, start=1):
                scores[one] = scores.get(one, 0.0) + 1 / (60 + rank)
        page = sorted(scores, key=lambda one: -scores[one])[:limit]
        self.connection.execute(b"SELECT * FROM seed_memory WHERE id = ANY(%s)", (page,)).fetchall()
        spent["fusion and contents"] = (perf_counter() - start) * 1e3
        return spent, found
