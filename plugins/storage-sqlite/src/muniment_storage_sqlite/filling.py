"""How a space fills: which memories lack passages in it, who works on which of them, and what comes of it.

Live memories have few different sets of spaces that they are embedded in. Each set without the space is looked at by
itself, in an index by set and id, so that memories that are complete cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from heapq import merge
from itertools import islice
from sqlite3 import Connection
from typing import Final

from muniment.ports import Passages, Progress, Unembedded
from muniment_storage_sqlite import entries
from muniment_storage_sqlite.entries import space_number
from muniment_storage_sqlite.memories import live, passages_of
from muniment_storage_sqlite.times import length, now

_SETS: Final = """
    WITH RECURSIVE sets (embedded_in) AS (
        SELECT min(embedded_in) FROM memories WHERE NOT deleted
        UNION ALL
        SELECT (SELECT min(embedded_in) FROM memories WHERE NOT deleted AND embedded_in > sets.embedded_in)
        FROM sets WHERE sets.embedded_in IS NOT NULL
    )
    SELECT embedded_in FROM sets WHERE embedded_in IS NOT NULL
"""
_FREE: Final = """
    NOT EXISTS (
        SELECT 1 FROM leases
        WHERE memory = memories.number AND space = :space AND version = memories.version AND until > :now
    )
"""


def sets_with(connection: Connection, space: int) -> list[str]:
    """The different values of ``embedded_in`` that live memories have and that list a space."""
    return [one for one in _sets(connection) if f",{space}," in one]


def progress(connection: Connection, space: str) -> Progress:
    """How many memories are live, and complete in a space."""
    number = _number(connection, space)
    counted = connection.execute(
        "SELECT embedded_in, count(*) FROM memories WHERE NOT deleted GROUP BY embedded_in"
    ).fetchall()
    complete = [count for of, count in counted if f",{number}," in of]
    return Progress(sum(complete), sum(count for _, count in counted))


def pending(connection: Connection, space: str) -> int:
    """How many ``unembedded`` would find."""
    count = "SELECT count(*) FROM memories WHERE NOT deleted AND embedded_in = ?"
    return sum(connection.execute(count, (of,)).fetchone()[0] for of in _lacking(connection, space))


def unembedded(connection: Connection, space: str, *, limit: int) -> Sequence[Unembedded]:
    """Live memories whose passages in a space are not complete, whoever works on them."""
    select = "SELECT number FROM memories WHERE NOT deleted AND embedded_in = ? LIMIT ?"
    found: list[int] = []
    for of in _lacking(connection, space):
        found += [number for (number,) in connection.execute(select, (of, limit - len(found)))]
    return _to_embed(connection, space, found)


def is_any_free(connection: Connection, space: str, *, after: str | None) -> bool:
    """Whether ``lease`` would find anything. Raises ConfigurationError as it does."""
    return bool(_first_free(connection, space, after, 1, now()))


def lease(
    connection: Connection, space: str, *, after: str | None, limit: int, lease: timedelta
) -> Sequence[Unembedded]:
    """Lease the first memories that nobody has a lease on, by id. Raises ConfigurationError."""
    at = now()
    connection.execute("DELETE FROM leases WHERE until <= ?", (at,))
    found = _first_free(connection, space, after, limit, at)
    number = space_number(connection, space)
    connection.executemany(
        """
        INSERT OR REPLACE INTO leases (memory, space, version, until)
        SELECT number, ?, version, ? FROM memories WHERE number = ?
        """,
        ((number, at + length(lease), memory) for memory in found),
    )
    return _to_embed(connection, space, found)


def store_passages(connection: Connection, memory_id: str, version: int, passages: Passages) -> bool:
    """Store background vectors if the live memory is still at ``version``; whether it was. Its lease ends."""
    row = live(connection, memory_id, version)
    if row is None:
        return False
    entries.add_passages(connection, row["scope"], row["number"], passages)
    entries.touch(connection, row["scope"])
    space = space_number(connection, passages.space)
    connection.execute("DELETE FROM leases WHERE memory = ? AND space = ?", (row["number"], space))
    return True


def _sets(connection: Connection) -> list[str]:
    """The different values of ``embedded_in`` that live memories have, each found by one look into the index."""
    return [of for (of,) in connection.execute(_SETS)]


def _lacking(connection: Connection, space: str) -> list[str]:
    """Those without a space; all of them, where it is not registered."""
    number = _number(connection, space)
    return [of for of in _sets(connection) if f",{number}," not in of]


def _number(connection: Connection, space: str) -> int | None:
    row = connection.execute("SELECT number FROM spaces WHERE id = ?", (space,)).fetchone()
    return row and row["number"]


def _first_free(connection: Connection, space: str, after: str | None, limit: int, at: int) -> list[int]:
    """The numbers of the first memories above ``after``, by id, that lack a space and that nobody has a lease on."""
    number = space_number(connection, space)
    select = f"""
        SELECT id, number FROM memories
        WHERE NOT deleted AND embedded_in = :of AND id > :after AND {_FREE} ORDER BY id LIMIT :limit
    """
    asked = {"space": number, "after": after or "", "now": at, "limit": limit}
    by_set = [connection.execute(select, {**asked, "of": of}).fetchall() for of in _lacking(connection, space)]
    return [number for _, number in islice(merge(*(map(tuple, rows) for rows in by_set)), limit)]


def _to_embed(connection: Connection, space: str, numbers: Iterable[int]) -> list[Unembedded]:
    found: list[Unembedded] = []
    for number in numbers:
        select = "SELECT id, version, content FROM memories WHERE number = ?"
        memory, version, content = connection.execute(select, (number,)).fetchone()
        found.append(Unembedded(memory, version, content, passages_of(connection, number, space)[0]))
    return found
