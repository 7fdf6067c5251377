"""Memories as they are read: one, or a page of a list."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from sqlite3 import Connection, Row
from typing import Any

from muniment.models import MemoryRecord, Scope, Share
from muniment.ports import Audience, MemoryFacts, Outdated, Position, Selector
from muniment_storage_sqlite.audiences import GRANTS, READABLE, listed, parameters
from muniment_storage_sqlite.times import moment, stored

HAS_ALL_TAGS = """
    NOT EXISTS (
        SELECT 1 FROM json_each(:tags) AS wanted WHERE NOT EXISTS (
            SELECT 1 FROM tags WHERE scope = memories.scope AND tag = wanted.value AND memory = memories.number
        )
    )
"""
"""That a row of ``memories`` has all tags of ``:tags``, a list in JSON."""


def load(connection: Connection, audience: Audience, memory_id: str, *, space: str | None) -> MemoryFacts | None:
    """The memory, live or deleted, if the audience reads its scope; with the passage hashes of ``space``."""
    asked = {**parameters(audience), "id": memory_id, "space": space}
    row = connection.execute(
        READABLE
        + """
        SELECT memories.*, scopes.key AS scope_key, scopes.project, coalesce(scopes.user, projects.owner) AS owner
        FROM memories JOIN scopes ON scopes.number = memories.scope LEFT JOIN projects ON projects.id = scopes.project
        WHERE memories.id = :id AND memories.scope IN (SELECT scope FROM readable)
        """,
        asked,
    ).fetchone()
    if row is None:
        return None
    grants = connection.execute(GRANTS, {**asked, "project": row["project"]})
    hashes, embedded = passages_of(connection, row["number"], space)
    return MemoryFacts(
        memory=record(row),
        scope_key=row["scope_key"],
        owner=row["owner"],
        grants=tuple(Share(share) for (share,) in grants),
        deleted=bool(row["deleted"]),
        passages=hashes,
        embedded=embedded,
    )


def passages_of(connection: Connection, number: int, space: str | None) -> tuple[frozenset[str], bool]:
    """The hashes of a memory's passages in a space, and whether they are complete."""
    hashes = connection.execute(
        """
        SELECT hash FROM passages
        WHERE memory = ? AND space = (SELECT number FROM spaces WHERE id = ?)
        """,
        (number, space),
    )
    (complete,) = connection.execute(
        """
        SELECT instr(embedded_in, ',' || (SELECT number FROM spaces WHERE id = ?) || ',') FROM memories WHERE number = ?
        """,
        (space, number),
    ).fetchone()
    return frozenset(one for (one,) in hashes), bool(complete)


def live(connection: Connection, memory_id: str, version: int) -> Row | None:
    """The number and the scope of a live memory that is at ``version``."""
    return connection.execute(
        "SELECT number, scope FROM memories WHERE id = ? AND version = ? AND NOT deleted", (memory_id, version)
    ).fetchone()


def list_them(
    connection: Connection, audience: Audience, selector: Selector, *, after: Position | None, limit: int
) -> Sequence[MemoryRecord]:
    """Readable memories by ``created_at`` descending, then ``id``: the first of each scope, merged."""
    asked = {
        "deleted": selector.deleted,
        "tags": listed(selector.tags),
        "at": stored(after.created_at) if after else None,
        "after": after.id if after else None,
    }
    scopes = [scope for scope, _ in scopes_of(connection, audience, selector)]
    ordered = merge(*(_in_order(connection, scope, asked) for scope in scopes))
    numbers = [number for _, _, number in islice(ordered, limit)]
    return records(connection, numbers)


def scopes_of(connection: Connection, audience: Audience, selector: Selector) -> list[tuple[int, int]]:
    """The readable scopes that a selector covers: their numbers and generations."""
    rows = connection.execute(
        READABLE
        + """
        SELECT number, generation FROM scopes
        WHERE number IN (SELECT scope FROM readable) AND (:key IS NULL OR key = :key)
            AND (:kind IS NULL OR (user IS NOT NULL) = (:kind = 'user'))
        """,
        {**parameters(audience), "key": selector.scope_key, "kind": selector.scope},
    )
    return [(number, generation) for number, generation in rows]


def records(connection: Connection, numbers: Iterable[int]) -> list[MemoryRecord]:
    """The memories of these numbers, in their order."""
    select = """
        SELECT memories.*, scopes.project FROM memories JOIN scopes ON scopes.number = memories.scope
        WHERE memories.number = ?
    """
    return [record(connection.execute(select, (number,)).fetchone()) for number in numbers]


def outdated(connection: Connection, analyser: str, *, limit: int) -> Sequence[Outdated]:
    """Live memories whose terms are not of ``analyser``."""
    rows = connection.execute(
        """
        SELECT id, version, content FROM memories
        WHERE NOT deleted AND (analyser < :analyser OR analyser > :analyser) LIMIT :limit
        """,
        {"analyser": analyser, "limit": limit},
    )
    return [Outdated(*row) for row in rows]


def record(row: Row) -> MemoryRecord:
    """The nine fields, of a row of ``memories`` with the ``project`` of its scope."""
    return MemoryRecord(
        id=row["id"],
        scope=Scope.USER if row["project"] is None else Scope.PROJECT,
        project_id=row["project"],
        content=row["content"],
        tags=tuple(json.loads(row["tags"])),
        version=row["version"],
        last_edited_by=row["last_edited_by"],
        created_at=moment(row["created_at"]),
        updated_at=moment(row["updated_at"]),
    )


def _in_order(connection: Connection, scope: int, asked: dict[str, Any]) -> Iterator[tuple[int, str, int]]:
    """The place in the order, and the number, of each selected memory of one scope; read as far as it is used."""
    rows = connection.execute(
        f"""
        SELECT -created_at, id, number FROM memories
        WHERE scope = :scope AND deleted = :deleted AND (:at IS NULL OR created_at <= :at)
            AND (:at IS NULL OR created_at < :at OR id > :after) AND {HAS_ALL_TAGS}
        ORDER BY created_at DESC, id
        """,
        {**asked, "scope": scope},
    )
    return ((place, id_, number) for place, id_, number in rows)
