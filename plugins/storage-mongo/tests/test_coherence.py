"""The cache of vectors against other clients: a search sees what is committed, whoever wrote it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from muniment import access
from muniment.errors import NotFound, VersionConflict
from muniment.ports import (
    Audience,
    NewProject,
    Passages,
    PassageVector,
    Remove,
    Restore,
    Revise,
    SearchQuery,
    Selector,
    Space,
)
from muniment.ranking import Fusion
from muniment_storage_mongo import lanes
from muniment_storage_mongo.corpus import Corpus
from muniment_storage_mongo.storage import MongoStorage

ANN = Audience("ann")
SPACE = Space("test:8", "test", "test", 8, "mean", True, 100)
QUERY = np.ones(8, dtype=np.float32)


async def found(
    storage: MongoStorage, audience: Audience = ANN, *, terms: Sequence[str] = ("word",)
) -> dict[str, tuple[int, float | None, float | None]]:
    """Every memory that a search finds: its version, and its scores by meaning and by words."""
    query = SearchQuery(dict.fromkeys(terms, 1.0), frozenset(), QUERY, SPACE.id, Fusion.weighted, None, 0, 1_000)
    hits = await storage.search(audience, Selector(), query)
    return {
        hit.memory.id: (
            hit.memory.version,
            round(hit.ranked.meaning.score, 6) if hit.ranked.meaning else None,
            hit.ranked.words.score if hit.ranked.words else None,
        )
        for hit in hits
    }


def towards(writer: Any, text: str, first: float) -> Any:
    """An index with one passage, whose cosine with the query follows from ``first``."""
    return writer.index(text, ("h",), ([first, *[1.0] * 7],))


async def test_a_search_sees_what_another_client_did(storage: MongoStorage, clients: Any, writer: Any) -> None:
    """Creation, an edit, deletion, restoring, background vectors and background terms, each at the next search."""
    other = clients()
    await other.open()
    assert await found(storage) == {}
    await other.apply(writer.create("m1", "word", index=towards(writer, "word", 1.0)))
    assert (await found(storage))["m1"][:2] == (1, 1.0)
    await other.apply(writer.edit("m1", 1, "word word", towards(writer, "word word", -1.0)))
    assert (await found(storage))["m1"][:2] == (2, 0.75)
    await other.apply(Remove(memory_id="m1", editor="ann", audit=writer.audit("m1", 3), expected_version=2))
    assert await found(storage) == {}
    index = writer.index("word", ())
    await other.apply(
        Restore(memory_id="m1", editor="ann", audit=writer.audit("m1", 4), expected_version=3, index=index)
    )
    assert (await found(storage))["m1"][:2] == (4, None)
    vectors = (PassageVector("x", QUERY),)
    assert await other.store_passages("m1", 4, Passages(SPACE.id, frozenset({"x"}), vectors, complete=True))
    assert (await found(storage))["m1"][:2] == (4, 1.0)
    assert await other.store_terms("m1", 4, "another", writer.index("nothing of the query").terms)
    assert (await found(storage))["m1"] == (4, 1.0, None)


async def test_a_memory_that_moved_is_found_where_it_is(storage: MongoStorage, clients: Any, writer: Any) -> None:
    """Both scopes' caches learn of a move by another client, and of the way back."""
    other = clients()
    await other.open()
    audit = writer.audit(None, 1, access.project_key("p1"))
    await storage.register_project(NewProject("p1", "p1", "bob", audit))
    places = [access.project_placement("p1"), writer.placement]
    bob = Audience("bob")
    await other.apply(writer.create("m1", "word", index=towards(writer, "word", 1.0)))
    for version in range(1, 6):
        here, there = (ANN, bob) if version % 2 else (bob, ANN)
        assert set(await found(storage, here)) == {"m1"}
        assert await found(storage, there) == {}
        target, source = places[(version - 1) % 2], places[version % 2]
        await other.apply(writer.move("m1", version, target, source))


@pytest.mark.parametrize("terms", [("word",), ()], ids=["words", "meaning alone"])
async def test_a_cache_is_never_stale_under_concurrent_writers(
    storage: MongoStorage, clients: Any, writer: Any, terms: Sequence[str]
) -> None:
    """Three clients change a few memories at random while a fourth searches; after each round a warm and a cold client
    find the same, and no search in between finds a memory at an older version than an earlier one did."""
    writers = [clients() for _ in range(3)]
    for one in writers:
        await one.open()
    ids = [f"m{number}" for number in range(12)]
    chance = random.Random(5)
    for memory_id in ids:
        await writers[0].apply(writer.create(memory_id, "word", index=towards(writer, "word", 1.0)))

    async def change(storage: MongoStorage) -> None:
        memory_id = chance.choice(ids)
        facts = await storage.load(ANN, memory_id)
        assert facts is not None
        version = facts.memory.version
        index = towards(writer, "word " * chance.randrange(1, 5), chance.uniform(-9, 9))
        common: dict[str, Any] = {
            "memory_id": memory_id,
            "editor": "ann",
            "audit": writer.audit(memory_id, version + 1),
            "expected_version": version,
        }
        try:
            if facts.deleted:
                await storage.apply(Restore(**common, index=index))
            elif chance.random() < 0.3:
                await storage.apply(Remove(**common))
            else:
                await storage.apply(Revise(**common, content="word", index=index))
        except (VersionConflict, NotFound):
            pass

    async def watch() -> None:
        newest: dict[str, int] = {}
        for _ in range(10):
            for memory_id, (version, *_) in (await found(storage, terms=terms)).items():
                assert version >= newest.get(memory_id, 0)
                newest[memory_id] = version

    for _ in range(4):
        await asyncio.gather(watch(), *(change(one) for one in writers for _ in range(10)))
        cold = clients(vector_cache_mb=0)
        await cold.open()
        for _ in range(3):
            assert await found(storage, terms=terms) == await found(cold, terms=terms)


async def test_a_database_that_was_restored_is_read_anew(storage: MongoStorage, writer: Any, raw: Any) -> None:
    """Lanes that went back, as by a backup, are believed after a few tries."""
    await storage.apply(writer.create("m1", "word", index=towards(writer, "word", 1.0)))
    await storage.apply(writer.create("m2", "word", index=towards(writer, "word", 1.0)))
    assert set(await found(storage)) == {"m1", "m2"}
    await raw.memories.delete_one({"_id": "m2"})
    await raw.passages.delete_one({"memory": "m2"})
    await raw.lanes.update_many({}, {"$set": {"rev": 1}})
    assert set(await found(storage)) == {"m1"}


async def test_what_does_not_fit_what_is_stored_is_read_anew(
    storage: MongoStorage, writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever went wrong with it; a search fails only if it goes wrong once more."""
    await storage.apply(writer.create("m1", "word", index=towards(writer, "word", 1.0)))
    before = await found(storage)
    failures, read = list[KeyError](), list[Any]()
    whole, really = Corpus._whole, Corpus.postings  # pyright: ignore[reportPrivateUsage]

    async def counted(*asked: Any) -> Any:
        read.append(asked)
        return await whole(*asked)

    async def postings(*asked: Any) -> Any:
        if failures:
            raise failures.pop()
        return await really(*asked)

    monkeypatch.setattr(Corpus, "_whole", counted)
    monkeypatch.setattr(Corpus, "postings", postings)
    failures.append(KeyError("m1"))
    assert await found(storage, terms=("word", "other")) == before
    assert len(read) == 1
    failures += [KeyError("m1"), KeyError("m1")]
    with pytest.raises(KeyError):
        await found(storage, terms=("word", "another"))


async def test_writers_of_one_scope_meet_in_its_lanes(
    storage: MongoStorage, clients: Any, writer: Any, raw: Any, monkeypatch: Any
) -> None:
    """With a single lane for everybody all are stored, one after the other, and the lane counts them without a gap."""
    monkeypatch.setattr(lanes, "COUNT", 1)
    storages = [storage, clients(), clients()]
    for one in storages[1:]:
        await one.open()
    await asyncio.gather(
        *(one.apply(writer.create(f"{number} {place}")) for number in range(6) for place, one in enumerate(storages))
    )
    stamped = [one["rev"] async for one in raw["memories"].find({}, {"rev": 1})]
    assert sorted(stamped) == list(range(1, 19))
