"""``muniment.ports.MaintainedStorage`` on PostgreSQL: which approximate indexes there are, and order in what is read.

Owns the lock under which one process at a time builds and drops indexes, and the order in which a search may rely on
them: a scope is told to be searched by an index after it was built, and not any more before it is dropped. Everything
is done on a connection of its own, which no call waits for.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from muniment_storage_postgres import approximate, blockers, order
from muniment_storage_postgres.approximate import Large, Place
from muniment_storage_postgres.connection import Connection
from muniment_storage_postgres.database import Database, rows, sent
from muniment_storage_postgres.settling import settle_all

_POLL = 0.2
"""Seconds between looks whether the lock is free; who waits for it inside the server would keep a build waiting."""
_PATIENCE = 10.0
"""Seconds that an ``optimize`` waits for another one: as long as the server may take to see that a process was killed,
and some more."""
_MEMORY = 2_000_000
"""Kilobytes that building an index may take at most; what does not fit makes it slower."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A registered space."""

    id: str
    dimensions: int


async def optimize(database: Database, least: int) -> Sequence[str]:
    """What was done, a sentence each. Another process that is at it is waited for a while, and then told of."""
    async with database.apart() as connection, blockers.told(database, connection):
        ends = time.monotonic() + _PATIENCE
        while not await _locked(connection):
            if time.monotonic() > ends:
                return ("Nothing was done: another process does it just now.",)
            await asyncio.sleep(_POLL)
        await sent(connection, "for_upkeep", {})
        settled = await settle_all(connection)
        return [*settled, *await _index(connection, least), *await order.restore(connection)]


@asynccontextmanager
async def alone(database: Database) -> AsyncGenerator[Connection]:
    """The only one that builds and drops indexes; waits for whoever is at it."""
    async with database.apart() as connection, blockers.told(database, connection):
        while True:
            if await _locked(connection):
                break
            await asyncio.sleep(_POLL)
        await sent(connection, "for_upkeep", {})
        yield connection


async def drop_indexes(connection: Connection, space: int) -> None:
    """Drop the indexes of a space, by its number, after no search relies on them any more."""
    await sent(connection, "forget_approximate", {"number": space})
    for one in await _indexes(connection):
        if one.space == space:
            await connection.execute(approximate.drop(one))


async def _locked(connection: Connection) -> bool:
    ((locked,),) = await rows(connection, "try_upkeep", {})
    return locked


async def _index(connection: Connection, least: int) -> Sequence[str]:
    """Build the indexes that pay, drop the others, and tell searches."""
    known = {number: _Known(*rest) for number, *rest in await rows(connection, "numbered_spaces", {})}
    told: set[tuple[int, int]] = {(space, scope) for space, scope in await rows(connection, "approximate_scopes", {})}
    wanted = await _wanted(connection, least, known, told)
    there = await _indexes(connection)
    done: list[str] = []
    for space in {space for space, _ in told}:
        paying = {one.scope for found in wanted.values() for one in found if one.place.space == space}
        gone = [scope for of, scope in told if of == space and scope not in paying]
        await sent(connection, "remove_approximate", {"space": space, "scopes": gone})
    for place, whole in there.items():
        if place not in wanted or not whole:
            await connection.execute(approximate.drop(place))
            done.append(_dropped(place, known, whole=whole))
    for place, found in wanted.items():
        if not there.get(place, False):
            await _build(connection, place, known[place.space].dimensions, found)
            done.append(_built(place, known, found, least))
        new = [one for one in found if (place.space, one.scope) not in told]
        if new and there.get(place, False):
            done.append(_joined(place, known, len(new)))
        for one in found:
            parameters = {"space": place.space, "scope": one.scope, "passages": one.passages}
            await sent(connection, "add_approximate", parameters)
    return done


async def _wanted(
    connection: Connection, least: int, known: Mapping[int, _Known], told: set[tuple[int, int]]
) -> Mapping[Place, Sequence[Large]]:
    """The places where an index pays, and for which scopes."""
    wanted: defaultdict[Place, list[Large]] = defaultdict(list)
    for (table,) in await rows(connection, "partitions", {}):
        partition = int(table.rpartition("_")[2])
        cursor = await connection.execute(approximate.large(partition), {"least": least // 2})
        for space, scope, passages, beside in await cursor.fetchall():
            one = Large(Place(partition, space), scope, passages, beside)
            possible = space in known and approximate.can_be(known[space].dimensions)
            if possible and one.pays(least, known=(space, scope) in told):
                wanted[one.place].append(one)
    return wanted


async def _indexes(connection: Connection) -> Mapping[Place, bool]:
    """The indexes of spaces that there are, and whether each is whole."""
    found = {approximate.place(name): whole for name, whole in await rows(connection, "indexes_of_spaces", {})}
    return {place: whole for place, whole in found.items() if place is not None}


async def _build(connection: Connection, place: Place, dimensions: int, found: Sequence[Large]) -> None:
    needed = approximate.memory_for([one.beside for one in found], dimensions)
    await sent(connection, "grant_memory", {"kilobytes": min(needed, _MEMORY)})
    await connection.execute(approximate.create(place, dimensions))


def _name(place: Place, known: Mapping[int, _Known]) -> str:
    return known[place.space].id if place.space in known else f"number {place.space}, which is gone"


def _built(place: Place, known: Mapping[int, _Known], found: Sequence[Large], least: int) -> str:
    return (
        f"Built the index {place.index} of the space {_name(place, known)}: {len(found)} owners or projects in that "
        f"partition have outgrown exact search ({least} passages), with {max(one.passages for one in found)} at most."
    )


def _dropped(place: Place, known: Mapping[int, _Known], *, whole: bool) -> str:
    why = "nobody there has that many passages any more" if whole else "its making had been interrupted"
    return f"Dropped the index {place.index} of the space {_name(place, known)}: {why}."


def _joined(place: Place, known: Mapping[int, _Known], count: int) -> str:
    return f"{count} more owners or projects are searched by the index {place.index} of {_name(place, known)}."
