"""Which connection a call has, what one keeps, how edits are planned on it, and what is packed for it."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any, cast

import numpy as np
import psycopg
import pytest
from pgvector.psycopg.vector import register_vector_info
from psycopg.types import TypeInfo

from muniment.lexical import ANALYSER, analyse
from muniment.ports import Index, Space
from muniment_storage_postgres import connection as connections
from muniment_storage_postgres import lists
from muniment_storage_postgres.connection import Connection, cursor_for, keep_cursor
from muniment_storage_postgres.database import Database
from muniment_storage_postgres.lists import Texts, VectorList
from muniment_storage_postgres.storage import PostgresStorage

SPACE = Space("test:8", "test", "test", 8, "mean", True, 100)

Raw = psycopg.AsyncConnection[Any]


def database(storage: PostgresStorage) -> Database:
    """The storage's connections."""
    return storage._database  # pyright: ignore[reportPrivateUsage]


async def process(connection: Connection) -> int:
    """The server's process of a connection."""
    return connection.info.backend_pid


async def two_at_once(opened: Database) -> set[int]:
    """Have two connections in use at the same time; their processes."""

    async def outer(first: Connection) -> set[int]:
        return {await process(first), await opened.read(process)}

    return await opened.read(outer)


async def test_the_connection_that_was_used_last_is_used_next(storage: PostgresStorage) -> None:
    """However many there are: its server's process has at hand what the next call needs."""
    opened = database(storage)
    assert len(await two_at_once(opened)) == 2
    assert len({await opened.read(process) for _ in range(6)}) == 1


async def test_a_pool_sees_its_connections_again(storage: PostgresStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that went from caller to caller for long goes back, so that the pool can replace it when it is too old."""
    opened = database(storage)
    await two_at_once(opened)
    monkeypatch.setattr(connections, "_LENT", 0.0)
    assert len({await opened.read(process) for _ in range(6)}) > 1


async def test_a_connection_that_was_left_is_closed_with_the_others(storage: PostgresStorage, raw: Raw) -> None:
    """Nothing of a closed storage stays in the server."""
    opened = database(storage)
    used = await two_at_once(opened)
    await opened.close()
    gone = b"SELECT count(*) FROM pg_stat_activity WHERE pid = ANY(%s)"
    for _ in range(100):
        if await (await raw.execute(gone, ([*used],))).fetchone() == (0,):
            return
        await asyncio.sleep(0.02)
    raise AssertionError("a connection is still there")


async def test_a_left_connection_that_breaks_is_noticed_before_it_is_used(storage: PostgresStorage, raw: Raw) -> None:
    """So a write, which is sent once, succeeds."""
    opened = database(storage)
    left = await opened.write(process)
    await raw.execute(b"SELECT pg_terminate_backend(%s, 5000)", (left,))
    assert await opened.write(process) != left


async def test_a_connection_is_given_back_although_its_user_is_cancelled(
    storage: PostgresStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is; otherwise the pool would have one fewer from then on."""
    opened = database(storage)
    pool = opened._pool  # pyright: ignore[reportPrivateUsage]
    giving, given, busy = asyncio.Event(), asyncio.Event(), asyncio.Event()
    really = pool.putconn

    async def putconn(connection: Any) -> None:
        giving.set()
        await busy.wait()
        await really(connection)
        given.set()

    monkeypatch.setattr(pool, "putconn", putconn)
    user = asyncio.create_task(opened.read(lambda connection: connection.close()))
    await giving.wait()
    user.cancel()
    with pytest.raises(asyncio.CancelledError):
        await user
    busy.set()
    await asyncio.wait_for(given.wait(), 10)


async def test_a_statement_keeps_its_cursor_where_it_is_told_to(storage: PostgresStorage, raw: Raw) -> None:
    """On a connection of the pool, and no other statement's."""

    async def kept(connection: Connection, statement: str) -> bool:
        return cursor_for(connection, statement) is cursor_for(connection, statement)

    async def work(connection: Connection) -> None:
        assert not await kept(connection, "history")
        keep_cursor(connection, "history")
        assert await kept(connection, "history")
        keep_cursor(connection, "history")
        assert await kept(connection, "history")
        assert not await kept(connection, "list_memories")

    await database(storage).read(work)
    keep_cursor(raw, "history")
    assert not await kept(raw, "history")


async def test_a_connection_that_is_gone_leaves_no_cursors(clients: Any, writer: Any) -> None:
    """Nor itself: a cursor holds its connection."""
    storage = cast(PostgresStorage, clients(pool_size=1))
    await storage.open()
    await storage.apply(writer.create("m", index=Index(ANALYSER, analyse("words"), None)))
    gone = await database(storage).read(weakly)
    await storage.close()
    del storage
    gc.collect()
    assert gone() is None


async def weakly(connection: Connection) -> weakref.ref[Connection]:
    """A connection, which this does not keep."""
    return weakref.ref(connection)


@pytest.fixture
async def packed(raw: Raw) -> Raw:
    """A connection that takes lists."""
    vector = await TypeInfo.fetch(raw, "vector")
    assert vector is not None
    register_vector_info(raw, vector)
    lists.register(raw, vector)
    return raw


@pytest.mark.parametrize("texts", [(), ("content",), ("a", "", "b c")])
async def test_texts_arrive(packed: Raw, texts: tuple[str, ...]) -> None:
    """As the driver's own lists would."""
    for format in (b"%b", b"%s"):
        assert await (await packed.execute(b"SELECT " + format, (Texts(texts),))).fetchone() == (list(texts),)


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_vectors_arrive(packed: Raw, count: int) -> None:
    """To the last bit, whatever the layout in memory."""
    made = np.random.default_rng(count).normal(size=(16, count)).astype(np.float32).T
    cursor = await packed.execute(b"SELECT %b", (VectorList([*made]),), binary=True)
    ((found,),) = await cursor.fetchall()
    assert [one.to_numpy().tolist() for one in found] == made.tolist()


async def test_text_that_an_encoding_could_change_is_not_packed(packed: Raw) -> None:
    """It fails here instead of being stored as something else."""
    with pytest.raises(UnicodeEncodeError):
        await packed.execute(b"SELECT %b", (Texts(("é",)),))


async def test_edits_are_planned_once(clients: Any, writer: Any) -> None:
    """With as many partitions as there are: planning takes longer than the edit."""
    storage = cast(PostgresStorage, clients(partitions=32, pool_size=1))
    await storage.open()
    try:
        await storage.register_space(SPACE, np.eye(8, dtype=np.float32)[:2])
        await storage.apply(writer.create("m"))
        for version in range(1, 10):
            await storage.apply(writer.edit("m", version, f"words {version}"))
        planned = b"SELECT statement, generic_plans, custom_plans FROM pg_prepared_statements"

        async def plans(connection: Connection) -> list[tuple[str, int, int]]:
            return cast(Any, await (await connection.execute(planned)).fetchall())

        found = await database(storage).read(plans)
        assert [(generic, custom) for text, generic, custom in found if "version + 1" in text] == [(4, 5)]
    finally:
        await storage.close()
