"""Fills PostgreSQL, and the other shape of the search benchmark, with memories in their order of arrival, by COPY."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import psycopg
from estate import Estate, Memory
from pgvector import Vector
from pgvector.psycopg import register_vector

from muniment import access, lexical
from muniment_storage_postgres import keys

_OURS = """
CREATE TEMP TABLE text_terms (text integer PRIMARY KEY, length integer, terms bytea);
CREATE TEMP TABLE arrival (number bigint PRIMARY KEY, scope integer, id text, text integer, tags bytea);
SET synchronous_commit = off;
SET maintenance_work_mem = '512MB'
"""
_DERIVED = """
INSERT INTO search_entry SELECT a.scope, a.number, t.length, 0, '{analyser}', 0
FROM arrival a JOIN text_terms t USING (text) ORDER BY a.number;
INSERT INTO search_keys SELECT a.scope, a.number, a.scope, t.terms, a.tags
FROM arrival a JOIN text_terms t USING (text) ORDER BY a.number;
SELECT setval(pg_get_serial_sequence('memory', 'number'), (SELECT max(number) FROM arrival));
SELECT setval(pg_get_serial_sequence('scope', 'number'), (SELECT max(number) FROM scope))
"""


def load_ours(conninfo: str, schema: str, space: int, estate: Estate, made: Sequence[Memory]) -> None:
    """Fill the plugin's tables, empty until now, and gather statistics; ``optimize`` then settles the words."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        register_vector(connection)
        connection.execute("SELECT set_config('search_path', %s, false)", (f"{schema}, public",))
        _statements(connection, _OURS)
        scopes = {owner: number for number, owner in enumerate(sorted({one.owner for one in made}), start=1)}
        _copy(
            connection,
            "scope (number, key)",
            ["int4", "text"],
            [(number, access.user_key(owner)) for owner, number in scopes.items()],
        )
        terms = [(number, one.terms) for number, one in enumerate(estate.texts)]
        texts = [(number, one.length, keys.of_terms(one.frequencies)) for number, one in terms]
        _copy(connection, "text_terms", ["int4", "int4", "bytea"], texts)
        numbered = list(enumerate(made, start=1))
        arrivals = [(number, scopes[one.owner], one.id, one.text, _packed(one.tags)) for number, one in numbered]
        _copy(connection, "arrival", ["int8", "int4", "text", "int4", "bytea"], arrivals)
        with connection.cursor().copy(
            "COPY memory (id, number, scope_number, scope_key, scope, user_name, content, tags, version, "
            "last_edited_by, created_at, updated_at, deleted, embedded_in) FROM STDIN"
        ) as copy:
            for number, one in numbered:
                content = estate.texts[one.text].content
                key = access.user_key(one.owner)
                row = (one.id, number, scopes[one.owner], key, "user", one.owner, content, one.tags)
                copy.write_row((*row, 1, one.owner, "2024-01-01Z", "2024-01-01Z", False, [space]))
        _copy(
            connection,
            "passage (scope, space, memory, hash, embedding)",
            ["int4", "int4", "int8", "text", "vector"],
            [
                (scopes[one.owner], space, number, f"{part:032x}", Vector(vector))
                for number, one in numbered
                for part, vector in enumerate(one.vectors)
            ],
        )
        _statements(connection, _DERIVED.format(analyser=lexical.ANALYSER))
        for table in ("memory", "search_entry", "search_keys", "passage", "scope"):
            connection.execute(f"VACUUM ANALYZE {table}".encode())


def load_seed(connection: psycopg.Connection[Any], estate: Estate, made: Sequence[Memory]) -> None:
    """Fill the other shape's table, and gather statistics."""
    _copy(
        connection,
        "seed_memory (id, user_id, content, tags, embedding)",
        ["uuid", "text", "text", "text[]", "vector"],
        [(UUID(one.id), one.owner, estate.texts[one.text].content, one.tags, Vector(one.whole)) for one in made],
    )
    connection.execute(b"VACUUM ANALYZE seed_memory")


def _packed(tags: Sequence[str]) -> bytes:
    return b"".join([(keys.tag_key(tag) << keys.FREQUENCY_BITS | 1).to_bytes(8) for tag in dict.fromkeys(tags)])


def _statements(connection: psycopg.Connection[Any], texts: str) -> None:
    for text in texts.split(";"):
        connection.execute(text.encode())


def _copy(connection: psycopg.Connection[Any], table: str, types: list[str], rows: Sequence[tuple[Any, ...]]) -> None:
    with connection.cursor().copy(f"COPY {table} FROM STDIN (FORMAT BINARY)".encode()) as copy:
        copy.set_types(types)
        for row in rows:
            copy.write_row(row)
