"""The registry of spaces and how one is filled, from several clients at once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

import numpy as np
import pytest

from muniment.errors import ConfigurationError
from muniment.ports import Audience, Passages, PassageVector, Progress, Remove, Space
from muniment_storage_mongo.storage import MongoStorage

SPACE = Space("test:8", "test", "test", 8, "mean", True, 100)
OTHER = replace(SPACE, id="other.$8")
"""A name that would be an expression, or a path, if it were no value."""
PROBES = np.eye(8, dtype=np.float32)[:2]
MINUTE = timedelta(minutes=1)
ANN = Audience("ann")


@pytest.fixture
async def other(storage: MongoStorage, clients: Any) -> MongoStorage:
    """Another client, on the same data with one more space."""
    made: MongoStorage = clients()
    await made.open()
    await made.register_space(OTHER, PROBES)
    return made


def passages(*fresh: str, kept: tuple[str, ...] = (), complete: bool = True, space: str = OTHER.id) -> Passages:
    """Passages with new vectors, besides those that are stored."""
    vectors = tuple(PassageVector(one, np.ones(8, dtype=np.float32)) for one in fresh)
    return Passages(space, frozenset((*fresh, *kept)), vectors, complete=complete)


async def leased(storage: MongoStorage, *, after: str | None = None, limit: int = 99) -> list[str]:
    """The ids of what is leased for a minute."""
    found = await storage.lease_unembedded(OTHER.id, after=after, limit=limit, lease=MINUTE)
    return [one.memory_id for one in found]


async def active(storage: MongoStorage) -> list[str]:
    """The spaces with the latest time of activation."""
    found = [one for one in await storage.list_spaces() if one.activated_at is not None]
    latest = max(one.activated_at for one in found if one.activated_at is not None)
    return [one.space.id for one in found if one.activated_at == latest]


async def test_a_space_is_registered_once_and_activated_by_name(storage: MongoStorage, other: MongoStorage) -> None:
    """The first probes count; a space is active from its activation on, under the name that was given then."""
    assert (await storage.register_space(OTHER, PROBES * 2) == PROBES).all()
    first, second = await storage.list_spaces()
    assert (first.space, second.space) == (SPACE, OTHER)
    assert first.registered_at <= second.registered_at
    assert (second.embedder, second.activated_at) == (None, None)
    assert await other.activate_space(OTHER.id, "$embedder")
    assert not await storage.activate_space(OTHER.id, "another name")
    _, second = await storage.list_spaces()
    assert second.embedder == "$embedder"
    assert await active(storage) == [OTHER.id]
    with pytest.raises(ConfigurationError, match="absent is not registered"):
        await storage.activate_space("absent", "any")


async def test_a_space_that_several_clients_register_at_once_is_one(clients: Any, storage: MongoStorage) -> None:
    """All get the vectors that were first."""
    several: list[MongoStorage] = [clients() for _ in range(4)]
    await asyncio.gather(*(one.open() for one in several))
    given = await asyncio.gather(
        *(one.register_space(OTHER, PROBES * number) for number, one in enumerate(several, start=1))
    )
    assert all((one == given[0]).all() for one in given)
    assert [one.space.id for one in await storage.list_spaces()] == [SPACE.id, OTHER.id]


async def test_an_activation_is_after_the_one_before_it(storage: MongoStorage, other: MongoStorage, raw: Any) -> None:
    """Also where the server's clock went back meanwhile."""
    ahead = datetime(2100, 1, 1, tzinfo=UTC)
    await storage.activate_space(SPACE.id, "one")
    await raw.spaces.update_one({"_id": SPACE.id}, {"$set": {"activated_at": ahead}})
    assert await storage.activate_space(OTHER.id, "other")
    found = {one.space.id: one.activated_at for one in await storage.list_spaces()}
    assert found == {SPACE.id: ahead, OTHER.id: ahead + timedelta(milliseconds=1)}


async def test_of_two_activations_at_once_one_is_the_later(
    storage: MongoStorage, other: MongoStorage, raw: Any
) -> None:
    """However often they meet, one space is the active one; also where its time follows from the last one's alone."""
    third = replace(SPACE, id="third:8")
    await storage.register_space(third, PROBES)
    for _ in range(10):
        await raw.spaces.update_many({}, {"$set": {"activated_at": None}})
        await raw.spaces.update_one({"_id": third.id}, {"$set": {"activated_at": datetime(2100, 1, 1, tzinfo=UTC)}})
        await asyncio.gather(storage.activate_space(SPACE.id, "one"), other.activate_space(OTHER.id, "other"))
        assert len(await active(storage)) == 1


async def test_each_memory_is_leased_to_one(storage: MongoStorage, other: MongoStorage, writer: Any) -> None:
    """Callers of two clients at once divide the memories among themselves, and leave none."""
    ids = [f"m{number:02}" for number in range(40)]
    for memory_id in ids:
        await storage.apply(writer.create(memory_id))
    given = await asyncio.gather(*(leased(one, limit=7) for one in (storage, other) for _ in range(3)))
    assert all(one == sorted(one) for one in given)
    assert max(map(len, given)) <= 7
    assert sorted(chain.from_iterable(given)) == ids
    assert await leased(other) == []


async def test_leases_go_by_id(storage: MongoStorage, other: MongoStorage, writer: Any) -> None:
    """Above ``after``, whatever spaces a memory is embedded in; with what it has of the space already."""
    for number in range(6):
        index = None if number % 2 else writer.index("words", ())
        await storage.apply(writer.create(f"m{number}", index=index))
    await storage.store_passages("m3", 1, passages("x", complete=False))
    assert await leased(storage, after="m1", limit=2) == ["m2", "m3"]
    assert await leased(storage, limit=2) == ["m0", "m1"]
    assert await leased(storage, after="m5") == []
    found = await storage.unembedded(OTHER.id, limit=9)
    assert {one.memory_id: set(one.passages) for one in found} == {
        **{f"m{number}": set() for number in range(6)},
        "m3": {"x"},
    }


async def test_a_lease_ends(storage: MongoStorage, other: MongoStorage, writer: Any, raw: Any) -> None:
    """With vectors, complete or not, with a change of the memory, and with its time; not by an attempt that is late."""
    for memory_id in ("changed", "complete", "over", "partial"):
        await storage.apply(writer.create(memory_id))
    assert len(await leased(storage)) == 4
    assert not await storage.store_passages("over", 9, passages("x"))
    assert await leased(other) == []
    await storage.store_passages("complete", 1, passages("x"))
    await storage.store_passages("partial", 1, passages("x", complete=False))
    await storage.apply(writer.edit("changed", 1, "again"))
    assert await leased(other) == ["changed", "partial"]
    past = datetime.now(UTC) - MINUTE
    await raw.memories.update_one({"_id": "over"}, {"$set": {"leases.0.until": past}})
    assert await leased(other) == ["over"]
    with pytest.raises(ConfigurationError, match="absent is not registered"):
        await storage.lease_unembedded("absent", after=None, limit=1, lease=MINUTE)


async def test_a_deleted_memory_is_not_leased(storage: MongoStorage, other: MongoStorage, writer: Any) -> None:
    """Nor counted."""
    await storage.apply(writer.create("m1"))
    removal = Remove(memory_id="m1", editor="ann", audit=writer.audit("m1", 2), expected_version=1)
    await storage.apply(removal)
    assert await leased(storage) == []
    assert await storage.space_progress(SPACE.id) == Progress(0, 0)


async def test_what_is_complete_costs_a_lease_nothing(
    storage: MongoStorage, other: MongoStorage, writer: Any, raw: Any
) -> None:
    """Where 60 memories are complete in both spaces and three lack one, a few keys and documents are looked at."""
    for number in range(60):
        await storage.apply(writer.create(f"m{number:02}"))
        await storage.store_passages(f"m{number:02}", 1, passages("x"))
    for number in range(3):
        await storage.apply(writer.create(f"n{number}"))
    await raw.command({"profile": 2})
    assert await leased(storage) == ["n0", "n1", "n2"]
    assert [one.memory_id for one in await storage.unembedded(OTHER.id, limit=99)] == ["n0", "n1", "n2"]
    assert (await storage.backlog(OTHER.id, attempts_max=5)).embeddings_pending == 3
    await raw.command({"profile": 0})
    done = await raw["system.profile"].find({"ns": f"{raw.name}.memories"}).to_list()
    assert len(done) >= 6
    assert sum(one.get("keysExamined", 0) for one in done) < 60
    assert sum(one.get("docsExamined", 0) for one in done) < 60


async def test_progress_is_read_from_an_index(
    storage: MongoStorage, other: MongoStorage, writer: Any, raw: Any
) -> None:
    """Live memories and the complete ones among them, no document looked at; of an unknown space none is complete."""
    for number in range(5):
        await storage.apply(writer.create(f"m{number}"))
    await storage.store_passages("m1", 1, passages("x"))
    await storage.store_passages("m2", 1, passages("x", complete=False))
    await raw.command({"profile": 2})
    assert await storage.space_progress(OTHER.id) == Progress(1, 5)
    assert await storage.space_progress(SPACE.id) == Progress(5, 5)
    assert await storage.space_progress("absent") == Progress(0, 5)
    await raw.command({"profile": 0})
    done = await raw["system.profile"].find({"ns": f"{raw.name}.memories"}).to_list()
    assert {one["docsExamined"] for one in done} == {0}


async def test_a_memory_is_complete_only_with_all_that_it_keeps(
    storage: MongoStorage, other: MongoStorage, writer: Any
) -> None:
    """Whoever counts on a passage that is gone stores the others, and the memory goes on waiting."""
    await storage.apply(writer.create("m1"))
    await storage.apply(writer.create("m2"))
    await storage.store_passages("m1", 1, passages("x", complete=False))
    await storage.store_passages("m1", 1, passages("y", kept=("x", "gone")))
    assert await storage.space_progress(OTHER.id) == Progress(0, 2)
    await storage.store_passages("m1", 1, passages("z", kept=("x", "y")))
    assert await storage.space_progress(OTHER.id) == Progress(1, 2)

    def edit(version: int, *fresh: str, kept: tuple[str, ...]) -> Any:
        index = replace(writer.index("text"), passages=passages(*fresh, kept=kept))
        return writer.edit("m1", version, "text", index)

    await storage.apply(edit(1, "a", kept=("x", "y")))
    assert await storage.space_progress(OTHER.id) == Progress(1, 2)
    await storage.store_passages("m1", 2, passages(kept=("x",), complete=False))
    await storage.apply(edit(2, "b", kept=("x", "a")))
    assert await storage.space_progress(OTHER.id) == Progress(0, 2)
    await storage.apply(edit(3, "c", kept=("x", "b")))
    assert await storage.space_progress(OTHER.id) == Progress(1, 2)
    facts = await storage.load(ANN, "m1", space=OTHER.id)
    assert facts is not None
    assert (facts.passages, facts.embedded) == ({"x", "b", "c"}, True)
