"""A memory's search entries as they are written: terms, tags, passages and their vectors, spaces."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from sqlite3 import Connection
from typing import Final

import numpy as np

from muniment.errors import ConfigurationError
from muniment.lexical import Terms
from muniment.ports import Passages, Placement, Space, Unembedded, Vectors
from muniment.ports.refusals import no_project
from muniment_storage_sqlite.audiences import listed
from muniment_storage_sqlite.memories import passages_of
from muniment_storage_sqlite.trail import as_json

STORED = np.dtype("<f4")
"""How the numbers of a vector are stored."""

_UNEMBEDDED: Final = """
    deleted = 0 AND NOT EXISTS (
        SELECT 1 FROM embedded WHERE memory = live.number AND space = (SELECT number FROM spaces WHERE id = ?)
    )
"""


def scope_number(connection: Connection, placement: Placement) -> int:
    """The number of a scope, made if it is new, its generation raised. Raises NotFound where its project is missing."""
    project = placement.project_id
    if project and not connection.execute("SELECT 1 FROM projects WHERE id = ?", (project,)).fetchone():
        raise no_project(project)
    (number,) = connection.execute(
        """
        INSERT INTO scopes (key, user, project, generation) VALUES (?, ?, ?, 1)
        ON CONFLICT (key) DO UPDATE SET generation = generation + 1 RETURNING number
        """,
        (placement.scope_key, placement.user, project),
    ).fetchone()
    return number


def touch(connection: Connection, scope: int) -> None:
    """Raise a scope's generation, as each change of what is in it must."""
    connection.execute("UPDATE scopes SET generation = generation + 1 WHERE number = ?", (scope,))


def replace_terms(connection: Connection, scope: int, number: int, terms: Terms | None) -> None:
    """Let a memory have these terms; what it has already stays."""
    wanted = dict(terms.frequencies) if terms else dict[str, int]()
    had = _terms(connection, number)
    gone = ((scope, term, number) for term, _ in had.items() - wanted.items())
    connection.executemany("DELETE FROM terms WHERE scope = ? AND term = ? AND memory = ?", gone)
    new = ((scope, term, number, frequency) for term, frequency in wanted.items() - had.items())
    connection.executemany("INSERT INTO terms (scope, term, memory, frequency) VALUES (?, ?, ?, ?)", new)
    connection.execute("INSERT OR REPLACE INTO term_lists (memory, terms) VALUES (?, ?)", (number, as_json(wanted)))


def replace_tags(connection: Connection, scope: int, number: int, tags: Iterable[str]) -> None:
    """Let a memory be found by these tags."""
    connection.execute("DELETE FROM tags WHERE memory = ?", (number,))
    rows = ((scope, tag, number) for tag in dict.fromkeys(tags))
    connection.executemany("INSERT INTO tags (scope, tag, memory) VALUES (?, ?, ?)", rows)


def move(connection: Connection, number: int, before: int, scope: int) -> None:
    """Take a memory's entries along to another scope."""
    connection.executemany(
        "UPDATE terms SET scope = ? WHERE scope = ? AND term = ? AND memory = ?",
        ((scope, before, term, number) for term in _terms(connection, number)),
    )
    connection.execute("UPDATE tags SET scope = ? WHERE memory = ?", (scope, number))
    connection.execute("UPDATE passages SET scope = ? WHERE memory = ?", (scope, number))


def replace_passages(connection: Connection, scope: int, number: int, passages: Passages | None) -> None:
    """Let a memory have exactly these passages, in their space alone."""
    space = None if passages is None else space_number(connection, passages.space)
    connection.execute("DELETE FROM passages WHERE memory = ? AND space IS NOT ?", (number, space))
    connection.execute("DELETE FROM embedded WHERE memory = ?", (number,))
    if passages is not None:
        add_passages(connection, scope, number, passages)


def add_passages(connection: Connection, scope: int, number: int, passages: Passages) -> None:
    """Let a memory have exactly these passages in their space; other spaces' stay."""
    space = space_number(connection, passages.space)
    connection.execute(
        "DELETE FROM passages WHERE memory = ? AND space = ? AND hash NOT IN (SELECT value FROM json_each(?))",
        (number, space, listed(passages.hashes)),
    )
    connection.executemany(
        "INSERT OR REPLACE INTO passages (scope, space, memory, hash, vector) VALUES (?, ?, ?, ?, ?)",
        (
            (scope, space, number, one.hash, np.asarray(one.vector, dtype=STORED).tobytes())
            for one in passages.vectors
            if one.hash in passages.hashes
        ),
    )
    connection.execute("DELETE FROM embedded WHERE memory = ? AND space = ?", (number, space))
    if passages.complete:
        connection.execute("INSERT INTO embedded (memory, space) VALUES (?, ?)", (number, space))


def space_number(connection: Connection, space: str) -> int:
    """The number of a space. Raises ConfigurationError where it was not registered."""
    row = connection.execute("SELECT number FROM spaces WHERE id = ?", (space,)).fetchone()
    if row is None:
        raise ConfigurationError(f"The space {space} is not registered with this storage; restart Muniment.")
    return row["number"]


def register_space(connection: Connection, space: Space, probes: Vectors) -> Vectors:
    """Insert the space with its probes unless it is there; the stored ones."""
    connection.execute(
        """
        INSERT INTO spaces (id, provider, model, dimensions, pooling, normalised, passage_tokens, probes)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING
        """,
        (
            space.id,
            space.provider,
            space.model,
            space.dimensions,
            space.pooling,
            space.normalised,
            space.passage_tokens,
            np.asarray(probes, dtype=STORED).tobytes(),
        ),
    )
    dimensions, stored = connection.execute(
        "SELECT dimensions, probes FROM spaces WHERE id = ?", (space.id,)
    ).fetchone()
    return np.frombuffer(stored, dtype=STORED).reshape(-1, dimensions).astype(np.float32)


def unembedded(connection: Connection, space: str, *, limit: int) -> Sequence[Unembedded]:
    """Live memories whose passages in ``space`` are not complete."""
    rows = connection.execute(
        f"""
        SELECT number, id, version, content FROM memories WHERE number IN (
            SELECT number FROM memories AS live WHERE {_UNEMBEDDED} LIMIT ?
        )
        """,
        (space, limit),
    ).fetchall()
    return [
        Unembedded(row["id"], row["version"], row["content"], passages_of(connection, row["number"], space)[0])
        for row in rows
    ]


def pending(connection: Connection, space: str) -> int:
    """How many ``unembedded`` would find."""
    counted = connection.execute(f"SELECT count(*) FROM memories AS live WHERE {_UNEMBEDDED}", (space,))
    return counted.fetchone()[0]


def _terms(connection: Connection, number: int) -> dict[str, int]:
    """A memory's terms and their frequencies. By its list: an index by memory would double what a write touches."""
    row = connection.execute("SELECT terms FROM term_lists WHERE memory = ?", (number,)).fetchone()
    return json.loads(row["terms"]) if row else {}
