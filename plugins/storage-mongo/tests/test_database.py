"""Writes that are cancelled, and reads while the primary changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest
from pymongo import AsyncMongoClient, monitoring

from muniment.errors import StorageUnavailable
from muniment_storage_mongo.database import Database, Session


class Watched(monitoring.CommandListener):
    """The names of the commands that were answered."""

    def __init__(self) -> None:
        self.answered: list[str] = []

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        """Nothing."""

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        self.answered.append(event.command_name)

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        """Nothing."""


@pytest.fixture
def watched() -> Watched:
    """What the database under test was answered."""
    return Watched()


@pytest.fixture
async def used(url: str, database_name: str, watched: Watched) -> AsyncGenerator[Database]:
    """A database by a client of its own, which has greeted the primary and read nothing."""
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(url, event_listeners=[watched])
    made = Database(client, database_name, place="the test's", patience=1)
    await made.command({"hello": 1})
    yield made
    await client.drop_database(database_name)
    await made.close()


def writes(
    used: Database, work: Callable[[Session | None], Awaitable[None]]
) -> dict[str, Callable[[], Awaitable[Any]]]:
    """The ways to write."""
    return {"write": lambda: used.write(lambda: work(None)), "transaction": lambda: used.transaction(work)}


@pytest.mark.parametrize("way", ["write", "transaction"])
async def test_a_write_that_is_cancelled_is_over_when_it_leaves(used: Database, raw: Any, way: str) -> None:
    """It runs to its end and is stored, however often its caller is cancelled; only then does CancelledError leave."""
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def work(session: Session | None) -> None:
        begun.set()
        await may_end.wait()
        await used.collection("things").insert_one({"_id": 1}, session=session)

    call = asyncio.ensure_future(writes(used, work)[way]())
    await begun.wait()
    for _ in range(2):
        call.cancel()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not call.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await raw.things.count_documents({}) == 1


async def test_a_primary_is_asked_only_after_it_was_confirmed(used: Database, watched: Watched) -> None:
    """Also by a read that another one overtakes: no answer is older than the confirmation of its primary."""
    asked: list[int] = []
    first_asks, may_answer = asyncio.Event(), asyncio.Event()

    async def slow() -> int:
        asked.append(watched.answered.count("delete"))
        first_asks.set()
        await may_answer.wait()
        return asked[-1]

    async def quick() -> None:
        await used.collection("things").find_one({})

    reading = asyncio.ensure_future(used.read(slow))
    await first_asks.wait()
    await used.read(quick)
    may_answer.set()
    assert await reading >= 1
    before = len(watched.answered)
    await used.read(quick)
    assert watched.answered[before:] == ["find"]


async def test_a_slow_confirmation_is_no_election(url: str, database_name: str) -> None:
    """A client that reads at once, of a primary that nobody changed, gets its answer however short its patience is."""
    async with AsyncMongoClient[dict[str, Any]](url) as client:
        fresh = Database(client, database_name, place="the test's", patience=0)
        assert await fresh.read(lambda: fresh.collection("things").find_one({})) is None


async def test_a_read_that_one_election_overtakes_is_repeated(
    url: str, database_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its time is over: the next primary is confirmed, and asked."""
    terms: list[object] = ["first", "first", "second", "second", "second", "second"]

    def term(_: Database) -> object:
        return terms.pop(0)

    answers = iter(("before the election", "after it"))

    async def work() -> str:
        return next(answers)

    async with AsyncMongoClient[dict[str, Any]](url) as client:
        hasty = Database(client, database_name, place="the test's", patience=0)
        await hasty.command({"hello": 1})
        monkeypatch.setattr(Database, "_term", term)
        assert await hasty.read(work) == "after it"


async def test_a_read_that_every_election_overtakes_is_refused(used: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no majority has confirmed in time is not answered."""
    elections = iter(range(1_000_000))

    def term(_: Database) -> int:
        return next(elections)

    monkeypatch.setattr(Database, "_term", term)

    async def work() -> str:
        return "from a primary of no majority"

    with pytest.raises(StorageUnavailable, match="no majority confirmed"):
        await used.read(work)


async def test_a_primary_that_is_not_known_is_not_confirmed(used: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two elections the driver knows of none; a read that ended then is repeated."""
    terms: list[object] = [None, "first", "first", None, None, "second", "second", "second"]

    def term(_: Database) -> object:
        return terms.pop(0)

    monkeypatch.setattr(Database, "_term", term)
    answers = iter(("before the election", "after it"))

    async def work() -> str:
        return next(answers)

    assert await used.read(work) == "after it"
