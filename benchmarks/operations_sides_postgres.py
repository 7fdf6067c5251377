"""PostgreSQL for the benchmark of operations: the bare driver, the server, and what is in its tables.

The bare driver is psycopg with the storage's own statements, prepared, on as many connections as the storage's pool
has, and with what the storage would send. A search is its statements in one snapshot with all rows fetched, and the
contents of a page that is known beforehand: no score is computed, which is what the storage does in Python. The tables
are in the order in which `muniment optimize` leaves them.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import event_sides_postgres
import psycopg
from estate import Estate, Memory
from event_sides import CONNECTIONS, DRIVER, Whole
from event_sides_postgres import connected
from measuring import Call
from operations_sides import EMBEDDER, PAGE, READERS, SPACE_ID, Bare, Ground, Ours, Question, Side, loads
from pgvector import Vector
from psycopg import AsyncConnection, AsyncCursor
from search_load import load_ours

from muniment import access
from muniment.engine import Engine
from muniment.models import Agent
from muniment.ports import Audience, Create, PluginContext, Remove, Revise
from muniment_storage_postgres import keys, records
from muniment_storage_postgres.arrays import BigInts, bigints
from muniment_storage_postgres.connection import configure
from muniment_storage_postgres.embedded import server
from muniment_storage_postgres.sql import STATEMENTS
from muniment_storage_postgres.storage import create

SETTINGS = ("shared_buffers = '2GB'", "max_wal_size = '8GB'")
PLAIN, CROWDED = "plain", "crowded"
"""The schemas: one with the readers' memories alone, one with those of others too."""
SPACE = 1
"""The number of the first space of a schema."""
NOBODY = 10_000_000
"""Passages from which an owner would be searched by an approximate index: the bare driver compares every vector."""
_BEGIN = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_ROWS = b"""
SELECT
    (SELECT count(*) FROM memory m WHERE m.scope_key = %(key)s AND NOT m.deleted),
    (SELECT sum(m.version) FROM memory m WHERE m.scope_key = %(key)s),
    (SELECT count(*) FROM audit a WHERE a.scope_key = %(key)s),
    (SELECT sum(e.length) FROM search_entry e JOIN scope s ON s.number = e.scope WHERE s.key = %(key)s),
    (SELECT sum(octet_length(k.terms) + octet_length(k.tags)) FROM search_keys k JOIN scope s ON s.number = k.scope
        WHERE s.key = %(key)s),
    (SELECT count(p.embedding) FROM passage p JOIN scope s ON s.number = p.scope WHERE s.key = %(key)s)
"""

Connection = AsyncConnection[Any]


class Raw(Bare):
    """psycopg alone."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self._free: asyncio.Queue[Connection] = asyncio.Queue()
        for connection in connections:
            self._free.put_nowait(connection)
        self._scope: int | None = None

    def get(self, user: str, memory: str) -> Call:
        """One statement, which decides who may read."""
        return self._sending("load_without_passages", {**records.of_audience(Audience(user)), "id": memory})

    def newest(self, user: str) -> Call:
        """One statement."""
        parameters: dict[str, Any] = {
            **records.of_audience(Audience(user)),
            **records.of_position(None),
            **{"scope_key": None, "scope": None, "tags": [], "deleted": False, "limit": PAGE},
        }
        return self._sending("list_memories", parameters)

    def search(self, question: Question) -> Call:
        """Scopes, then rows to rank by, then contents."""
        within = {
            **records.of_audience(Audience(question.user)),
            **{"scope_key": None, "scope": None, "space": SPACE_ID},
        }
        asked = bigints([*map(keys.key, sorted(question.terms)), *map(keys.tag_key, sorted(question.tags))])
        return partial(self._search, within, asked, Vector(question.vector), list(question.page))

    def create(self, made: Create) -> Call:
        """One statement."""
        parameters = {
            **records.of_mutation(made),
            **{"content": made.content, "tags": list(made.tags)},
            **records.of_index(made.index),
            **records.of_placement(made.placement),
        }
        return self._sending("create", parameters)

    def change(self, made: Revise | Remove, *, read: bool = True) -> Call:
        """One statement, or two."""
        mutation = {**records.of_mutation(made), "expected": made.expected_version}
        if isinstance(made, Remove):
            return partial(self._change, "remove", {**mutation, "space": None}, read)
        edit = {**mutation, **records.of_index(made.index), "content": made.content, "tags": None}
        return partial(self._change, "edit", edit, read)

    async def _change(self, statement: str, parameters: dict[str, Any], read: bool) -> None:
        if self._scope is None:
            found = await self._sent("scope_number", {"scope_key": access.user_key(DRIVER)})
            self._scope = found[0][0]
        if read:
            loading = {**records.of_audience(Audience(DRIVER)), "id": parameters["id"], "space": SPACE_ID}
            await self._sent("load", loading)
        assert await self._sent(statement, {**parameters, "scope": self._scope}), "nothing was changed"

    async def _search(self, within: dict[str, Any], asked: BigInts, vector: Vector, page: list[str]) -> object:
        connection = await self._free.get()
        try:
            async with connection.pipeline():
                await connection.execute(_BEGIN)
                scopes = await _rows(connection, "scopes", within)
            numbers = [number for number, *_ in scopes]
            parameters = {
                **{"held": numbers, "scanned": numbers},
                **{"keys": asked, "vector": vector, "space": scopes[0][2]},
            }
            async with connection.pipeline():
                asking = [await _sent(connection, statement, parameters) for statement in ("holders", "scanned")]
            answers = [await cursor.fetchall() for cursor in asking]
            async with connection.pipeline():
                contents = await _rows(connection, "contents", {"ids": page})
                await connection.execute(b"COMMIT")
            assert len(contents) == len(page)
            return answers
        finally:
            self._free.put_nowait(connection)

    def _sending(self, statement: str, parameters: dict[str, Any]) -> Call:
        return partial(self._sent, statement, parameters)

    async def _sent(self, statement: str, parameters: dict[str, Any]) -> list[Any]:
        connection = await self._free.get()
        try:
            return await _rows(connection, statement, parameters)
        finally:
            self._free.put_nowait(connection)


async def _rows(connection: Connection, statement: str, parameters: dict[str, Any]) -> list[Any]:
    return await (await _sent(connection, statement, parameters)).fetchall()


async def _sent(connection: Connection, statement: str, parameters: dict[str, Any]) -> AsyncCursor[Any]:
    return await connection.execute(STATEMENTS[statement], parameters, prepare=True, binary=True)


class Tables(Ground):
    """The server."""

    of_search = "it fetches what the storage's statements give, and scores nothing"

    def __init__(self, connection: Connection, *given: Any) -> None:
        super().__init__(*given)
        self._connection = connection

    async def rows(self, user: str) -> object:
        """Sums that tell different rows apart."""
        key = access.user_key(user)
        return await (await self._connection.execute(_ROWS, {"key": key})).fetchone()


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the server is."""

    directory: Path
    conninfo: str


@asynccontextmanager
async def ground(estate: Estate, foreign: int, agents: Sequence[Agent]) -> AsyncGenerator[Tables]:
    """A server of its own, and the sides on it; ``foreign`` memories of others are in the crowded schema."""
    directory = Path(tempfile.mkdtemp(prefix="muniment-bench-"))
    running = server(directory / "postgres")
    try:
        with psycopg.connect(running.start(), autocommit=True) as connection:
            for setting in SETTINGS:
                connection.execute(f"ALTER SYSTEM SET {setting}".encode())
        running.stop()
        place = _Place(directory, running.start())
        process = int((directory / "postgres" / "postmaster.pid").read_text().split()[0])
        async with AsyncExitStack() as stack:
            made, mixed = loads(estate, foreign)
            plain, engine, connections = await _filled(stack, place, PLAIN, estate, made)
            crowded, _, _ = await _filled(stack, place, CROWDED, estate, mixed)
            events = [event_sides_postgres.Raw(connections), Whole(engine)]
            own = await _connection(stack, place, PLAIN)
            rows = event_sides_postgres.Rows(events, process, own, agents)
            readable = {user: [one.id for one in made if one.owner == user] for user in READERS}
            await own.execute(b"CHECKPOINT")
            yield Tables(own, process, plain, crowded, rows, readable)
    finally:
        running.stop()
        shutil.rmtree(directory, ignore_errors=True)


async def _filled(
    stack: AsyncExitStack, place: _Place, schema: str, estate: Estate, made: Sequence[Memory]
) -> tuple[Sequence[Side], Engine, Sequence[Connection]]:
    """The engine and the bare driver on a schema with these memories, and the driver's connections."""
    options = {"schema": schema, "pool_size": CONNECTIONS, "approximate_from": NOBODY}
    storage = create(PluginContext(f"embedded:{place.directory / 'postgres'}", place.directory, options))
    engine = await stack.enter_async_context(Engine(storage, EMBEDDER, background=False))
    await engine.embeddings.space()
    load_ours(place.conninfo, schema, SPACE, estate, made)
    await storage.optimize()
    connections = [await _connection(stack, place, schema) for _ in range(CONNECTIONS)]
    return (Ours(engine), Raw(connections)), engine, connections


async def _connection(stack: AsyncExitStack, place: _Place, schema: str) -> Connection:
    connection = await connected(place.conninfo, schema)
    stack.push_async_callback(connection.close)
    await configure(connection, f"{schema}, public", None)
    return connection
