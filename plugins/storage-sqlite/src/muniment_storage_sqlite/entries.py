"""A memory's search entries as they are written: terms, tags, passages and their vectors."""

from __future__ import annotations

import json
from collections.abc import Iterable
from sqlite3 import Connection

import numpy as np

from muniment.lexical import Terms
from muniment.ports import Passages, Placement
from muniment.ports.refusals import no_project, no_space
from muniment_storage_sqlite.audiences import listed
from muniment_storage_sqlite.trail import as_json

STORED = np.dtype("<f4")
"""How the numbers of a vector are stored."""


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
    """Let a memory have exactly these passages, in their space alone. Raises as ``add_passages``."""
    space = None if passages is None else space_number(connection, passages.space)
    connection.execute("DELETE FROM passages WHERE memory = ? AND space IS NOT ?", (number, space))
    connection.execute("UPDATE memories SET embedded_in = ',' WHERE number = ?", (number,))
    if passages is not None:
        add_passages(connection, scope, number, passages)


def add_passages(connection: Connection, scope: int, number: int, passages: Passages) -> None:
    """Let a memory have exactly these passages in their space; other spaces' stay.

    It is complete there only if all of them are stored: a space that is being dropped may have lost what was to be
    kept. Raises ConfigurationError for a space that is not registered.
    """
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
    (stored,) = connection.execute(
        "SELECT count(*) FROM passages WHERE memory = ? AND space = ?", (number, space)
    ).fetchone()
    _note(connection, number, space, complete=passages.complete and stored == len(passages.hashes))


def space_number(connection: Connection, space: str) -> int:
    """The number of a space. Raises ConfigurationError where it is not registered."""
    row = connection.execute("SELECT number FROM spaces WHERE id = ?", (space,)).fetchone()
    if row is None:
        raise no_space(space)
    return row["number"]


def _note(connection: Connection, number: int, space: int, *, complete: bool) -> None:
    """Note whether a memory's passages in a space are complete."""
    (text,) = connection.execute("SELECT embedded_in FROM memories WHERE number = ?", (number,)).fetchone()
    spaces = {int(one) for one in text.split(",") if one} - {space}
    if complete:
        spaces.add(space)
    noted = "".join(f",{one}" for one in sorted(spaces)) + ","
    connection.execute("UPDATE memories SET embedded_in = ? WHERE number = ?", (noted, number))


def _terms(connection: Connection, number: int) -> dict[str, int]:
    """A memory's terms and their frequencies. By its list: an index by memory would double what a write touches."""
    row = connection.execute("SELECT terms FROM term_lists WHERE memory = ?", (number,)).fetchone()
    return json.loads(row["terms"]) if row else {}
