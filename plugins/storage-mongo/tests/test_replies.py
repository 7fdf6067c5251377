"""Replies that are decoded as a whole: all of them, in a snapshot, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from pymongo import AsyncMongoClient

from muniment.errors import StorageUnavailable
from muniment_storage_mongo import replies
from muniment_storage_mongo.database import Database, Session
from muniment_storage_mongo.mongod import ReplicaSet
from muniment_storage_mongo.replies import Query, batches

THINGS = "things"
COUNT = 25
WHOLE = [(f"t{number:02}", number) for number in range(COUNT)]


@pytest.fixture
async def used(url: str, database_name: str) -> AsyncGenerator[Database]:
    """A database with a few alike things, which have an index."""
    async with AsyncMongoClient[dict[str, Any]](url) as client:
        made = Database(client, database_name, place="the test's", patience=5)
        await fill(made)
        yield made
        await client.drop_database(database_name)


async def fill(database: Database) -> None:
    """Things and their index."""
    await database.collection(THINGS).insert_many([{"_id": one, "n": number, "more": [1]} for one, number in WHOLE])
    await database.collection(THINGS).create_index([("n", 1), ("_id", 1)], name="n")


async def read(database: Database, session: Session, query: Query) -> list[tuple[str, int]]:
    """All that a query finds."""
    await database.collection(THINGS).find_one({}, session=session)
    found: list[tuple[str, int]] = []
    async for batch in batches(database, session, query):
        found += zip(batch.texts("_id"), batch.numbers("n").tolist(), strict=True)
    return found


@pytest.mark.parametrize("behind_router", [False, True])
@pytest.mark.parametrize("fields", [{"n": 1}, None], ids=["documents", "keys"])
@pytest.mark.parametrize("size", [1, 10, 24, 25, 1_000])
async def test_every_batch_comes_in_the_order_of_the_index(
    used: Database, monkeypatch: pytest.MonkeyPatch, size: int, fields: dict[str, int] | None, behind_router: bool
) -> None:
    """However many a reply holds; of a query that finds nothing there is none. Behind a router it is the same."""
    if behind_router:
        monkeypatch.setattr(replies, "_BEHIND_ROUTERS", (used.client.topology_description.topology_type,))
    every = Query(THINGS, {"n": {"$gte": 0}}, "n", size, fields)
    none = Query(THINGS, {"n": {"$lt": 0}}, "n", size, fields)
    assert await used.snapshot(lambda session: read(used, session, every)) == WHOLE
    assert await used.snapshot(lambda session: read(used, session, none)) == []


async def test_what_is_written_meanwhile_is_not_seen(used: Database, raw: Any) -> None:
    """Neither between the snapshot and the query, nor between two batches."""
    query = Query(THINGS, {"n": {"$gte": 0}}, "n", 10, {"n": 1})

    async def work(session: Session) -> list[tuple[str, int]]:
        await used.collection(THINGS).find_one({}, session=session)
        await raw.things.update_one({"_id": "t03"}, {"$set": {"n": 3_000}})
        found: list[tuple[str, int]] = []
        async for batch in batches(used, session, query):
            await raw.things.delete_one({"_id": f"t{len(found) + 15}"})
            found += zip(batch.texts("_id"), batch.numbers("n").tolist(), strict=True)
        return found

    assert await used.snapshot(work) == WHOLE


async def test_a_query_is_sent_again_once(started: Callable[..., ReplicaSet]) -> None:
    """As the driver does for a cursor: a connection that is lost once is no error, one that is lost twice is."""
    with started(arguments=["--setParameter", "enableTestCommands=1"]) as running:
        async with AsyncMongoClient[dict[str, Any]](running.url("test")) as client:
            database = Database(client, "test", place="the test's", patience=5)
            await fill(database)

            async def work(session: Session, times: int) -> int:
                await database.collection(THINGS).find_one({}, session=session)
                failing = {"failCommands": ["find"], "closeConnection": True}
                point = {"configureFailPoint": "failCommand", "mode": {"times": times}, "data": failing}
                await client.admin.command(point)
                query = Query(THINGS, {}, "n", 10, {"n": 1})
                return sum([len(batch.texts("_id")) async for batch in batches(database, session, query)])

            assert await database.snapshot(lambda session: work(session, 1)) == COUNT
            with pytest.raises(StorageUnavailable, match="connection"):
                await database.snapshot(lambda session: work(session, 2))


async def test_a_reader_may_leave_in_the_middle(used: Database) -> None:
    """What was asked for ahead is over when it has left."""
    query = Query(THINGS, {"n": {"$gte": 0}}, "n", 1, {"n": 1})

    async def work(session: Session) -> list[str]:
        await used.collection(THINGS).find_one({}, session=session)
        coming = batches(used, session, query)
        first = await anext(coming)
        await coming.aclose()
        return first.texts("_id")

    before = asyncio.all_tasks()
    assert await used.snapshot(work) == ["t00"]
    assert {one for one in asyncio.all_tasks() - before if "_cursor" in repr(one)} == set()
    assert await used.snapshot(lambda session: read(used, session, query)) == WHOLE


async def test_no_cursor_stays_with_the_server(used: Database, raw: Any) -> None:
    """When a reader leaves in the middle, or is cancelled there: it would keep its snapshot for ten minutes."""
    query = Query(THINGS, {"n": {"$gte": 0}}, "n", 1, {"n": 1})
    reached = asyncio.Event()

    async def opened() -> int:
        return (await raw.client.admin.command("serverStatus"))["metrics"]["cursor"]["open"]["total"]

    async def leave(session: Session) -> None:
        await used.collection(THINGS).find_one({}, session=session)
        coming = batches(used, session, query)
        await anext(coming)
        await coming.aclose()

    async def stay(session: Session) -> None:
        await used.collection(THINGS).find_one({}, session=session)
        async for _ in batches(used, session, query):
            reached.set()
            await asyncio.sleep(0.01)

    before = await opened()
    await used.snapshot(leave)
    assert await opened() == before
    staying = asyncio.ensure_future(used.snapshot(stay))
    await reached.wait()
    staying.cancel()
    await asyncio.wait((staying,))
    gc.collect()
    async with asyncio.timeout(20):
        while await opened() > before:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
