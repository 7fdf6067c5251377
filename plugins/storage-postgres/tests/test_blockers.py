"""Whoever keeps an ``optimize`` waiting is named, with what it is and since when, on every kind of server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import psycopg
import pytest

from muniment_storage_postgres import blockers, upkeep, waiting
from muniment_storage_postgres.sql import STATEMENTS
from muniment_storage_postgres.storage import PostgresStorage

Raw = psycopg.AsyncConnection[Any]
Soon = Callable[..., Any]


@pytest.fixture(autouse=True)
def soon_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait is told after a moment."""
    monkeypatch.setattr(waiting, "_PROMPT", 0.3)
    monkeypatch.setattr(blockers, "_TURN", 0.1)


async def test_an_older_transaction_is_named_while_an_index_waits_for_it(
    storage: PostgresStorage, raw: Raw, url: str, caplog: pytest.LogCaptureFixture, soon: Soon
) -> None:
    """With its process, its application and its begin; the index is made when it has ended."""
    async with await psycopg.AsyncConnection.connect(url, application_name="a report") as older:
        pid = older.info.backend_pid
        await older.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await older.execute("SELECT count(*) FROM pg_class")
        database = storage._database  # pyright: ignore[reportPrivateUsage]
        async with database.apart() as connection, blockers.told(database, connection):
            building = asyncio.ensure_future(
                connection.execute("CREATE INDEX CONCURRENTLY waited_for ON memory (content, id)")
            )
            assert await soon(lambda: "waiting for" in caplog.text)
            assert not building.done()
            await older.rollback()
            await asyncio.wait_for(building, 30)
    said = caplog.messages[0]
    assert f"PostgreSQL's process {pid} (application a report, user postgres, idle in transaction, its" in said
    assert "transaction began at 20" in said
    assert "for as long as it takes" in said
    assert caplog.records[0].levelno == logging.WARNING


async def optimized(storage: PostgresStorage) -> bool:
    """Whether it did what there was to do."""
    return not any("another process" in step for step in await storage.optimize())


async def alone(storage: PostgresStorage) -> bool:
    """As whoever drops a space is."""
    async with upkeep.alone(storage._database):  # pyright: ignore[reportPrivateUsage]
        return True


@pytest.mark.parametrize("work", [optimized, alone])
async def test_who_is_at_it_already_is_named(
    storage: PostgresStorage,
    raw: Raw,
    caplog: pytest.LogCaptureFixture,
    soon: Soon,
    work: Callable[[PostgresStorage], Coroutine[Any, Any, bool]],
) -> None:
    """Another one's upkeep is waited for outside the server, and told all the same."""
    await raw.execute(STATEMENTS["try_upkeep"])
    working = asyncio.ensure_future(work(storage))
    assert await soon(lambda: f"PostgreSQL's process {raw.info.backend_pid} (" in caplog.text)
    await raw.execute("SELECT pg_advisory_unlock_all()")
    assert await asyncio.wait_for(working, 30)


async def test_nobody_is_named_who_is_not_in_the_way(
    storage: PostgresStorage, caplog: pytest.LogCaptureFixture
) -> None:
    """However long it takes."""
    database = storage._database  # pyright: ignore[reportPrivateUsage]
    async with database.apart() as connection, blockers.told(database, connection):
        await connection.execute("SELECT pg_sleep(1)")
    assert caplog.messages == []
