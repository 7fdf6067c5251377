"""A space is dropped while others fill it, search it and make it the active one: none of its vectors outlives it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from muniment import access
from muniment.errors import ConfigurationError, MunimentError
from muniment.ports import (
    Audience,
    NewProject,
    Passages,
    PassageVector,
    Progress,
    ReceiptClaim,
    ReceiptTaken,
    SearchQuery,
    Selector,
    Space,
)
from muniment.ranking import Fusion
from muniment_storage_mongo import dropping, gates, vectors
from muniment_storage_mongo.storage import MongoStorage

SPACE = Space("test:8", "test", "test", 8, "mean", True, 100)
"""The one that is dropped; the writer's."""
OTHER = replace(SPACE, id="other:8")
PROBES = np.eye(8, dtype=np.float32)[:2]
ANN = Audience("ann")
HOUR = timedelta(hours=1)


@pytest.fixture
async def other(storage: MongoStorage, clients: Any) -> MongoStorage:
    """Another client, on the same data with one more space, which is the active one."""
    made: MongoStorage = clients()
    await made.open()
    await made.register_space(OTHER, PROBES)
    await made.activate_space(OTHER.id, "other")
    return made


def passages(*hashes: str, space: str = OTHER.id) -> Passages:
    """Passages, all new."""
    stored = tuple(PassageVector(one, np.ones(8, dtype=np.float32)) for one in hashes)
    return Passages(space, frozenset(hashes), stored, complete=True)


async def left(raw: Any, space: str = SPACE.id) -> int:
    """How many passages of a space are stored, and memories that count as complete in it."""
    passages = await raw.passages.count_documents({"space": space})
    return passages + await raw.memories.count_documents({"embedded_in.spaces": space})


async def found(storage: MongoStorage) -> set[str]:
    """What a search finds by meaning."""
    query = SearchQuery({}, frozenset(), np.ones(8, dtype=np.float32), SPACE.id, Fusion.rrf, None, 0, 99)
    return {one.memory.id for one in await storage.search(ANN, Selector(), query)}


async def test_a_dropped_space_is_gone_for_every_client(
    storage: MongoStorage, other: MongoStorage, writer: Any, raw: Any
) -> None:
    """Its passages, complete or not, wherever they moved; other spaces keep theirs. Who believes in it is refused, and
    stores nothing."""
    for number in range(40):
        await storage.apply(writer.create(f"m{number:02}", index=writer.index("words", ("h", "g"))))
        await storage.store_passages(f"m{number:02}", 1, passages("x"))
    await storage.apply(writer.create("whole", index=writer.index("words", ())))
    partial = Passages(SPACE.id, frozenset({"h"}), (), complete=False)
    await storage.store_passages("m01", 1, partial)
    await storage.register_project(NewProject("p1", "p1", "ann", writer.audit(None, 1, access.project_key("p1"))))
    await storage.apply(writer.move("m02", 1, access.project_placement("p1")))
    assert await storage.space_progress(SPACE.id) == Progress(40, 41)

    assert await other.drop_space(SPACE.id)

    assert await left(raw) == 0
    assert await raw.passages.count_documents({"space": OTHER.id}) == 40
    assert await other.space_progress(OTHER.id) == Progress(40, 41)
    assert await other.space_progress(SPACE.id) == Progress(0, 41)
    assert [one.space.id for one in await storage.list_spaces()] == [OTHER.id]
    assert not await other.drop_space(SPACE.id)
    before = await raw.memories.find().to_list()
    for refused in (
        storage.apply(writer.create("new")),
        storage.apply(writer.edit("m00", 1, "text")),
        storage.store_passages("m00", 1, passages("y", space=SPACE.id)),
        storage.store_passages("m00", 1, Passages(SPACE.id, frozenset(), (), complete=True)),
        storage.activate_space(SPACE.id, "test"),
        storage.lease_unembedded(SPACE.id, after=None, limit=1, lease=HOUR),
    ):
        with pytest.raises(ConfigurationError, match="test:8 is not registered"):
            await refused
    assert await raw.memories.find().to_list() == before
    assert await left(raw) == 0


async def test_a_space_can_be_registered_again(
    storage: MongoStorage, other: MongoStorage, writer: Any, raw: Any
) -> None:
    """By either client; both may fill it then, a lease of its former life counts for nothing, and searches that had its
    vectors in mind find the new ones alone."""
    await storage.apply(writer.create("m1", index=writer.index("words", ("h",), ([1.0] * 8,))))
    await storage.apply(writer.create("m2", index=writer.index("words", ("h",), ([1.0] * 8,))))
    await storage.apply(writer.create("m3", index=replace(writer.index("words"), passages=None)))
    assert await found(storage) == {"m1", "m2"}
    assert len(await storage.lease_unembedded(SPACE.id, after=None, limit=9, lease=HOUR)) == 1
    assert await other.drop_space(SPACE.id)
    assert await found(storage) == set()
    await other.register_space(SPACE, PROBES)
    again = await storage.lease_unembedded(SPACE.id, after=None, limit=9, lease=HOUR)
    assert [one.memory_id for one in again] == ["m1", "m2", "m3"]
    assert await storage.store_passages("m1", 1, passages("h", space=SPACE.id))
    assert await other.store_passages("m3", 1, passages("h", space=SPACE.id))
    assert (await storage.apply(writer.edit("m2", 1, "again"))).version == 2
    assert await found(storage) == {"m1", "m2", "m3"}
    assert await storage.space_progress(SPACE.id) == Progress(3, 3)


async def test_a_key_that_is_taken_is_told_before_a_space_that_is_gone(
    storage: MongoStorage, other: MongoStorage, writer: Any
) -> None:
    """A call that is sent again after the space was dropped was done the first time."""
    claim = ReceiptClaim("ann", "key", "body", "m1", {})
    await storage.apply(writer.create("m1", claim=claim))
    await other.drop_space(SPACE.id)
    with pytest.raises(ReceiptTaken):
        await storage.apply(writer.create("m2", claim=claim))


async def test_the_active_space_stays(storage: MongoStorage, other: MongoStorage, writer: Any, raw: Any) -> None:
    """Nothing of it is touched; what was never registered is no more dropped."""
    await storage.apply(writer.create("m1"))
    await storage.activate_space(SPACE.id, "test")
    before = await raw.memories.find().to_list()
    assert not await other.drop_space(SPACE.id)
    assert not await other.drop_space("absent")
    assert await raw.memories.find().to_list() == before
    assert await left(raw) == 2


async def test_a_drop_and_an_activation_at_once_do_not_both_win(
    storage: MongoStorage, other: MongoStorage, writer: Any, raw: Any
) -> None:
    """The space is gone, and the activation refused; or it is the active one, and stays."""
    won: set[bool] = set()
    await storage.apply(writer.create("m1"))
    for _ in range(20):
        dropped, activated = await asyncio.gather(
            other.drop_space(SPACE.id), storage.activate_space(SPACE.id, "test"), return_exceptions=True
        )
        won.add(dropped is True)
        assert (dropped is True) == isinstance(activated, ConfigurationError), (dropped, activated)
        assert (await left(raw) > 0) == (dropped is False and await raw.passages.count_documents({}) > 0)
        await storage.register_space(SPACE, PROBES)
        await storage.activate_space(OTHER.id, "other")
        await storage.store_passages("m1", 1, passages("h", space=SPACE.id))
    assert won


class Halted:
    """A step of a transaction that waits, the first time that it comes to ``point``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
        self.arrived, self.may_go_on = asyncio.Event(), asyncio.Event()
        self._step: Callable[..., Awaitable[Any]] = getattr(module, name)
        monkeypatch.setattr(module, name, self._halting)

    async def _halting(self, *given: Any) -> Any:
        first = not self.arrived.is_set()
        self.arrived.set()
        if first:
            await self.may_go_on.wait()
        return await self._step(*given)


@pytest.mark.parametrize(
    ("write", "lane_is_open", "halts", "meets"),
    [
        ("create", True, "add", (gates, "close_lanes")),
        ("create", False, "add", (gates, "delete")),
        ("store_passages", True, "add", (dropping, "_clear")),
        ("move", True, "carry", (dropping, "_clear")),
    ],
)
async def test_a_write_that_a_drop_overtakes_leaves_nothing(
    storage: MongoStorage,
    other: MongoStorage,
    writer: Any,
    raw: Any,
    monkeypatch: pytest.MonkeyPatch,
    write: str,
    lane_is_open: bool,
    halts: str,
    meets: tuple[Any, str],
) -> None:
    """A transaction that was let in before, and is about to store vectors when the drop comes to it, is waited for."""
    await storage.apply(writer.create("m1"))
    await storage.register_project(NewProject("p1", "p1", "ann", writer.audit(None, 1, access.project_key("p1"))))
    if not lane_is_open:
        await raw.lanes.update_many({}, {"$set": {"spaces": []}})
    halted = Halted(monkeypatch, vectors, halts)
    met = Halted(monkeypatch, *meets)
    met.may_go_on.set()

    async def writes() -> object:
        match write:
            case "create":
                return await storage.apply(writer.create("m2"))
            case "move":
                return await storage.apply(writer.move("m1", 1, access.project_placement("p1")))
            case _:
                return await storage.store_passages("m1", 1, passages("late", space=SPACE.id))

    writing = asyncio.ensure_future(writes())
    await halted.arrived.wait()
    drop = asyncio.ensure_future(other.drop_space(SPACE.id))
    await met.arrived.wait()
    halted.may_go_on.set()
    assert await writing
    assert await drop
    assert await left(raw) == 0
    assert await raw.gates.count_documents({"space": SPACE.id}) == 0


async def test_a_space_is_dropped_under_those_who_write_into_it(
    storage: MongoStorage, other: MongoStorage, clients: Any, writer: Any, raw: Any
) -> None:
    """All of them are refused in the end, and nothing is left."""
    third: MongoStorage = clients()
    await third.open()

    due = asyncio.Event()

    async def write(client: MongoStorage, name: str) -> int:
        for number in range(1_000):
            try:
                await client.apply(writer.create(f"{name}-{number}"))
            except ConfigurationError:
                return number
            if number == 5:
                due.set()
        raise AssertionError("it was never refused")

    async def drop() -> bool:
        await due.wait()
        return await other.drop_space(SPACE.id)

    names = [(client, f"{place}-{name}") for place, client in enumerate((storage, third)) for name in range(4)]
    *written, dropped = await asyncio.gather(*(write(client, name) for client, name in names), drop())
    assert dropped
    assert await left(raw) == 0
    assert await raw.memories.count_documents({}) == sum(written)


async def test_an_interrupted_drop_is_ended_by_the_next(
    storage: MongoStorage, other: MongoStorage, writer: Any, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In between the space is registered and can be used, and what counts as complete has all its passages."""
    monkeypatch.setattr(dropping, "_MEMORIES", 1)
    for number in range(6):
        await storage.apply(writer.create(f"m{number}", index=writer.index("words", ("h", "g"))))
    steps = 0
    clear: Callable[..., Awaitable[int]] = vars(dropping)["_clear"]
    drop: asyncio.Future[bool]

    async def counted(*given: Any) -> int:
        nonlocal steps
        steps += 1
        if steps == 3:
            drop.cancel()
        return await clear(*given)

    monkeypatch.setattr(dropping, "_clear", counted)
    drop = asyncio.ensure_future(other.drop_space(SPACE.id))
    with pytest.raises(asyncio.CancelledError):
        await drop
    assert await storage.space_progress(SPACE.id) == Progress(3, 6)
    assert [one.space.id for one in await storage.list_spaces()] == [SPACE.id, OTHER.id]
    whole = {one.memory_id for one in await storage.unembedded(SPACE.id, limit=9)}
    for number in range(6):
        facts = await storage.load(ANN, f"m{number}", space=SPACE.id)
        assert facts is not None
        assert (facts.passages, facts.embedded) == ((set(), False) if f"m{number}" in whole else ({"h", "g"}, True))
    assert await storage.store_passages(min(whole), 1, passages("h", "g", space=SPACE.id))
    assert await other.drop_space(SPACE.id)
    assert await left(raw) == 0


async def test_a_drop_whose_end_is_lost_leaves_the_space_as_it_is(
    storage: MongoStorage, other: MongoStorage, writer: Any, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error behind closed gates opens them again."""
    await storage.apply(writer.create("m1"))

    async def fails(*_: Any) -> None:
        raise MunimentError("the end is lost")

    with monkeypatch.context() as broken:
        broken.setattr(gates, "close_lanes", fails)
        with pytest.raises(MunimentError, match="the end is lost"):
            await other.drop_space(SPACE.id)
    assert await storage.store_passages("m1", 1, passages("h", space=SPACE.id))
    assert await storage.space_progress(SPACE.id) == Progress(1, 1)
    assert await other.drop_space(SPACE.id)
