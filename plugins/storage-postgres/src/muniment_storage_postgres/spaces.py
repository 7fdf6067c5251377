"""``muniment.ports.SpaceStorage`` on PostgreSQL, and what fills a space: the statements of ``spaces.sql``.

Owns which of them share a transaction, and what an answer without rows means. No number of a space outlives a call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import numpy as np
from pgvector import Vector as PgVector

from muniment.ports import Passages, Progress, RegisteredSpace, Space, Unembedded, Vectors
from muniment.ports.refusals import memory_kept_changing, no_space
from muniment_storage_postgres import records, upkeep
from muniment_storage_postgres.connection import Connection
from muniment_storage_postgres.database import Database, rows, sent
from muniment_storage_postgres.records import Parameters, Row

_ATTEMPTS = 8
_PAGE = 500
"""How many memories are looked at in one step of a drop, and so locked at most."""


class PostgresSpaces:
    """The spaces' part of the storage."""

    @property
    def _database(self) -> Database:
        raise NotImplementedError

    # ------------------------------------------------------------ the registry

    async def register_space(self, space: Space, probes: Vectors) -> Vectors:
        """Insert the space unless it is there; the stored vectors of its probe sentences."""
        parameters = {
            "space": space.id,
            "provider": space.provider,
            "model": space.model,
            "dimensions": space.dimensions,
            "pooling": space.pooling,
            "normalised": space.normalised,
            "passage_tokens": space.passage_tokens,
            "probes": [PgVector(probe) for probe in probes],
        }
        row: Row | None = None
        while row is None:  # another process may drop it in between
            await self._database.change("register_space", parameters)
            row = await self._database.row("probes", parameters)
        stored: list[PgVector] = row[0]
        if not stored:
            return np.zeros((0, space.dimensions), dtype=np.float32)
        return np.stack([vector.to_numpy() for vector in stored]).astype(np.float32)

    async def list_spaces(self) -> Sequence[RegisteredSpace]:
        """In the order in which they were registered."""
        return [records.registered_space(row) for row in await self._database.rows("list_spaces", {})]

    async def activate_space(self, space: str, embedder: str) -> bool:
        """At the server's time, one activation after the other."""
        parameters = {"space": space, "embedder": embedder, "turn": "activation"}
        if await self._in_turn(parameters, "activate_space"):
            return True
        if await self._database.row("space_number", parameters) is None:
            raise no_space(space)
        return False

    # ------------------------------------------------------------ how a space fills

    async def space_progress(self, space: str) -> Progress:
        """Counted in one index."""
        row = await self._database.row("space_progress", {"space": space})
        return Progress(*row) if row else Progress(0, 0)

    async def unembedded(self, space: str, *, limit: int) -> Sequence[Unembedded]:
        """Live memories whose passages in the space are not complete, whoever works on them."""
        found = await self._database.rows("unembedded", {"space": space, "limit": limit})
        return [_unembedded(row) for row in found]

    async def lease_unembedded(
        self, space: str, *, after: str | None, limit: int, lease: timedelta
    ) -> Sequence[Unembedded]:
        """One caller after the other, so that each gets what the others left."""
        parameters = {"space": space, "after": after, "limit": limit, "lease": lease, "turn": f"leases in {space}"}
        found = await self._in_turn(parameters, "forget_leases", "lease_unembedded")
        if not found:
            raise no_space(space)
        return [_unembedded(row) for row in found if row[0] is not None]

    async def store_passages(self, memory_id: str, version: int, passages: Passages) -> bool:
        """Store background vectors if the memory is still at this version; its lease ends."""
        parameters = {**records.of_passages(passages), "id": memory_id, "expected": version}
        for _ in range(_ATTEMPTS):
            ((stored, present, registered),) = await self._database.changes("store_passages", parameters)
            if not registered:
                raise no_space(passages.space)
            if stored or not present:
                return stored
        raise memory_kept_changing(memory_id)

    # ------------------------------------------------------------ how a space goes

    async def drop_space(self, space: str) -> bool:
        """Page by page while others write, then what came meanwhile and the registry's row while they wait."""
        row = await self._database.row("droppable_space", {"space": space})
        if row is None:
            return False
        parameters: Parameters = {"number": row[0], "limit": _PAGE}
        async with upkeep.alone(self._database) as connection:
            await upkeep.drop_indexes(connection, row[0])
            if not await _cleared(self._database.changes, parameters):
                return False
            return await self._database.write(lambda connection: _delete_space(connection, parameters))

    async def _in_turn(self, parameters: Parameters, *statements: str) -> list[Row]:
        """Run statements in one transaction while no other caller has the same ``turn``; the last one's rows.

        Each sees what was committed before the turn began.
        """

        async def work(connection: Connection) -> list[Row]:
            found: list[Row] = []
            async with connection.transaction():
                for statement in ("take_turn", *statements):
                    cursor = await sent(connection, statement, parameters)
                    found = [] if cursor.description is None else await cursor.fetchall()
            return found

        return await self._database.write(work)


async def _cleared(send: Callable[[str, Parameters], Awaitable[list[Row]]], parameters: Parameters) -> bool:
    """Take the space's passages from every memory; False once it is the active one, or gone."""
    after: int | None = 0
    inactive = True
    while inactive and after is not None:
        ((inactive, after),) = await send("clear_space", {**parameters, "after": after})
    return inactive


async def _delete_space(connection: Connection, parameters: Parameters) -> bool:
    """Whether the space was deleted, which the active one is not.

    Whoever writes into it waits, holding nothing yet that is waited for here: a mutation locks its space first.
    """

    async def send(statement: str, values: Parameters) -> list[Row]:
        return await rows(connection, statement, values)

    async with connection.transaction():
        await sent(connection, "lock_space", parameters)
        ((inactive, deleted),) = await rows(connection, "delete_space", parameters)
        if inactive and not deleted and await _cleared(send, parameters):
            ((_, deleted),) = await rows(connection, "delete_space", parameters)
    return deleted


def _unembedded(row: Row) -> Unembedded:
    return Unembedded(row[0], row[1], row[2], frozenset(row[3]))
