"""The registry of spaces, and how a space is dropped; how one is filled is ``filling``'s."""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Connection, Row
from typing import Final

import numpy as np

from muniment.ports import RegisteredSpace, Space, Vectors
from muniment.ports.refusals import no_space
from muniment_storage_sqlite.audiences import listed
from muniment_storage_sqlite.entries import STORED
from muniment_storage_sqlite.filling import sets_with
from muniment_storage_sqlite.times import moment, now

_PASSAGES: Final = 500
"""Passages that are looked at for the memories of one step of a drop."""
_MEMORIES: Final = 100
"""Memories of one step that have none."""


def register(connection: Connection, space: Space, probes: Vectors) -> Vectors:
    """Insert the space with its probes unless it is there; the stored ones."""
    if not connection.execute("SELECT 1 FROM spaces WHERE id = ?", (space.id,)).fetchone():
        (number,) = connection.execute("INSERT INTO space_numbers DEFAULT VALUES RETURNING number").fetchone()
        connection.execute("DELETE FROM space_numbers")
        connection.execute(
            """
            INSERT INTO spaces (
                number, id, provider, model, dimensions, pooling, normalised, passage_tokens, probes, registered_at
            ) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
            """,
            (
                number,
                space.id,
                space.provider,
                space.model,
                space.dimensions,
                space.pooling,
                space.normalised,
                space.passage_tokens,
                np.asarray(probes, dtype=STORED).tobytes(),
                now(),
            ),
        )
    dimensions, stored = connection.execute(
        "SELECT dimensions, probes FROM spaces WHERE id = ?", (space.id,)
    ).fetchone()
    return np.frombuffer(stored, dtype=STORED).reshape(-1, dimensions).astype(np.float32)


def list_them(connection: Connection) -> Sequence[RegisteredSpace]:
    """In the order in which they were registered."""
    return [_registered(row) for row in connection.execute("SELECT * FROM spaces ORDER BY registered_at, id")]


def activate(connection: Connection, space: str, embedder: str) -> bool:
    """Make a space the active one, at a time after every other one's. Raises ConfigurationError."""
    row = _standing(connection, space)
    if row is None:
        raise no_space(space)
    if row["active"]:
        return False
    connection.execute(
        """
        UPDATE spaces SET
            embedder = ?, activated_at = max(?, coalesce((SELECT max(activated_at) FROM spaces) + 1, 0))
        WHERE number = ?
        """,
        (embedder, now(), row["number"]),
    )
    return True


def drop_some(connection: Connection, space: str) -> bool | None:
    """One step of a drop: take the space from some memories, and the last time delete it.

    None where more is to be done; else whether it is dropped. One that is activated in between stays, and lacks what
    was taken.
    """
    row = _standing(connection, space)
    if row is None or row["active"]:
        return False
    number = row["number"]
    memories = _some_with(connection, number)
    if memories:
        _clear(connection, number, memories)
        return None
    connection.execute("DELETE FROM leases WHERE space = ?", (number,))
    connection.execute("DELETE FROM spaces WHERE number = ?", (number,))
    return True


def _standing(connection: Connection, space: str) -> Row | None:
    """A space's number, and whether it is the active one."""
    return connection.execute(
        """
        SELECT number, activated_at IS (SELECT max(activated_at) FROM spaces) AND activated_at IS NOT NULL AS active
        FROM spaces WHERE id = ?
        """,
        (space,),
    ).fetchone()


def _some_with(connection: Connection, space: int) -> list[int]:
    """Some memories with passages in a space; where none has, some that count as complete without any."""
    rows = connection.execute(
        "SELECT DISTINCT memory FROM (SELECT memory FROM passages WHERE space = ? LIMIT ?)", (space, _PASSAGES)
    ).fetchall()
    for of in [] if rows else sets_with(connection, space):
        rows += connection.execute(
            "SELECT number FROM memories WHERE NOT deleted AND embedded_in = ? LIMIT ?", (of, _MEMORIES)
        ).fetchall()
    return [number for (number,) in rows]


def _clear(connection: Connection, space: int, memories: Sequence[int]) -> None:
    """Take a space from memories, under a new generation of their scopes."""
    asked = {"space": space, "memories": listed(memories)}
    connection.execute(
        """
        UPDATE scopes SET generation = generation + 1 WHERE number IN (
            SELECT scope FROM memories WHERE number IN (SELECT value FROM json_each(:memories))
        )
        """,
        asked,
    )
    connection.execute(
        "DELETE FROM passages WHERE memory IN (SELECT value FROM json_each(:memories)) AND space = :space", asked
    )
    connection.execute(
        """
        UPDATE memories SET embedded_in = replace(embedded_in, ',' || :space || ',', ',')
        WHERE number IN (SELECT value FROM json_each(:memories))
        """,
        asked,
    )


def _registered(row: Row) -> RegisteredSpace:
    space = Space(
        id=row["id"],
        provider=row["provider"],
        model=row["model"],
        dimensions=row["dimensions"],
        pooling=row["pooling"],
        normalised=bool(row["normalised"]),
        passage_tokens=row["passage_tokens"],
    )
    activated_at = row["activated_at"]
    return RegisteredSpace(
        space, row["embedder"], moment(row["registered_at"]), None if activated_at is None else moment(activated_at)
    )
