"""What a process has in mind for its searches: how little it asks for then, and that others' writes are seen."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeAlias

import numpy as np
import pytest
from pymongo import AsyncMongoClient, monitoring

from muniment import access
from muniment.models import Share
from muniment.ports import Audience, NewProject, Remove, SearchQuery, Selector, ShareChange
from muniment.ranking import Fusion
from muniment_storage_mongo import corpus, search
from muniment_storage_mongo.corpus import Corpus
from muniment_storage_mongo.database import Database
from muniment_storage_mongo.storage import MongoStorage
from muniment_storage_mongo.vector_cache import VectorCache

ANN = Audience("ann")
QUERY = np.ones(8, dtype=np.float32)
PROJECT = "p1"

Scores: TypeAlias = tuple[float | None, float | None, float | None]
Search: TypeAlias = Callable[..., Awaitable[dict[str, tuple[str, Scores]]]]


def asked(*words: str, tags: tuple[str, ...] = ()) -> SearchQuery:
    """A search by meaning, and by these words and tags."""
    return SearchQuery(dict.fromkeys(words, 1.0), frozenset(tags), QUERY, "test:8", Fusion.weighted, None, 0, 1_000)


class Watched(monitoring.CommandListener):
    """The names of the commands that were sent."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        self.sent.append(event.command_name)

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        """Nothing."""

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        """Nothing."""


@pytest.fixture
def watched() -> Watched:
    """What was sent for the searches under test."""
    return Watched()


@pytest.fixture
async def find(storage: MongoStorage, url: str, database_name: str, watched: Watched) -> AsyncGenerator[Search]:
    """Searches as a process of its own, which has a cache; contents and scores by id. The storage makes the schema."""
    async with AsyncMongoClient[dict[str, Any]](url, tz_aware=True, event_listeners=[watched]) as client:
        database = Database(client, database_name, place="the test's")
        kept = Corpus(database, VectorCache(1 << 24))

        async def find(
            query: SearchQuery, audience: Audience = ANN, *, selector: Selector | None = None, cold: bool = False
        ) -> dict[str, tuple[str, Scores]]:
            known = Corpus(database, VectorCache(0)) if cold else kept
            hits = await search.search(database, known, audience, selector or Selector(), query)
            return {hit.memory.id: (hit.memory.content, scores(hit.ranked)) for hit in hits}

        def scores(ranked: Any) -> Scores:
            parts = ranked.meaning, ranked.words, ranked.tags
            meaning, words, tags = (part.score if part else None for part in parts)
            return meaning, words, tags

        yield find


def towards(writer: Any, text: str, first: float = 1.0) -> Any:
    """An index with one passage, whose cosine with the query follows from ``first``."""
    return writer.index(text, ("h",), ([first, *[1.0] * 7],))


async def settled(find: Search, query: SearchQuery, audience: Audience = ANN) -> dict[str, tuple[str, Scores]]:
    """What a search finds that is repeated until all that it needs is in mind."""
    for _ in range(3):
        await find(query, audience)
    return await find(query, audience)


async def test_a_search_asks_for_little_once_all_is_in_mind(
    storage: MongoStorage, find: Search, watched: Watched, writer: Any
) -> None:
    """By meaning alone it is one request. With words and tags two, and one for each word that was not searched for."""
    for number in range(3):
        await storage.apply(writer.create(f"m{number}", f"words {number}", tags=("blue",)))
    first = await settled(find, asked())
    watched.sent.clear()
    assert await find(asked()) == first
    assert watched.sent == ["aggregate"]
    whole = await settled(find, asked("word", tags=("blue", "red")))
    assert [parts[1:] for _, parts in whole.values()] == [(pytest.approx(whole["m0"][1][1]), 0.5)] * 3
    watched.sent.clear()
    assert await find(asked("word", tags=("blue", "red"))) == whole
    assert watched.sent == ["aggregate", "find"]
    watched.sent.clear()
    assert len(await find(asked("word", "another", "1", tags=("blue",)))) == 3
    assert watched.sent == ["aggregate", "find", "find", "find"]


@pytest.mark.parametrize("query", [asked(), asked("word", "common"), asked("common", tags=("blue",))])
async def test_what_is_in_mind_gives_way_to_what_others_wrote(
    storage: MongoStorage, find: Search, writer: Any, query: SearchQuery
) -> None:
    """Each write is seen by the very next search, in contents and in scores, however often nothing had changed."""
    steps: list[Callable[[], Any]] = [
        lambda: writer.create("m1", "word", tags=("blue",), index=towards(writer, "common word")),
        lambda: writer.create("m2", "common", tags=("red",), index=towards(writer, "common common")),
        lambda: writer.edit("m1", 1, "common text", towards(writer, "common common text", -1.0)),
        lambda: writer.edit("m2", 1, "word", towards(writer, "word", 3.0)),
        lambda: writer.edit("m1", 2, "other", towards(writer, "other", 2.0)),
        lambda: Remove(memory_id="m2", editor="ann", audit=writer.audit("m2", 3), expected_version=2),
    ]
    await storage.apply(writer.create("m0", "common", tags=("blue",), index=towards(writer, "common")))
    before = await settled(find, query)
    for step in steps:
        await storage.apply(step())
        now = await find(query)
        assert now == await find(query, cold=True) != before
        before = await settled(find, query)
        assert before == now


@pytest.mark.parametrize("few", [0, 100])
async def test_words_in_mind_go_on_with_few_changes_and_are_read_anew_after_many(
    storage: MongoStorage, find: Search, watched: Watched, writer: Any, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """Either way the scores are those of a process that had nothing in mind."""
    monkeypatch.setattr(corpus, "_FEW", few)
    query = asked("common", "rare", "absent")
    for number in range(6):
        text = "common " * (number + 1)
        await storage.apply(writer.create(f"m{number}", text, index=towards(writer, text)))
    await settled(find, query)
    for number, text in ((1, "rare"), (2, "common rare rare"), (3, "nothing")):
        await storage.apply(writer.edit(f"m{number}", 1, text, towards(writer, text)))
    await storage.apply(Remove(memory_id="m0", editor="ann", audit=writer.audit("m0", 2), expected_version=1))
    watched.sent.clear()
    found = await find(query)
    of_changes = ["aggregate", "find", "find", "find"]
    assert watched.sent == [*of_changes, *["find"] * (1 if few else 3), "find"]
    assert found == await find(query, cold=True)
    assert set(found) == {"m1", "m2", "m3", "m4", "m5"}


@pytest.mark.parametrize("query", [asked(), asked("word"), asked("word", tags=("blue",))])
async def test_scopes_that_come_and_go_are_seen_at_once(
    storage: MongoStorage, find: Search, writer: Any, query: SearchQuery
) -> None:
    """A grant counts from the next search and no longer; what was in mind of the scope is not shown without it."""
    member = Audience("bob", frozenset({"crew"}))
    placement = access.project_placement(PROJECT)
    audit = writer.audit(None, 1, placement.scope_key)
    await storage.register_project(NewProject(PROJECT, PROJECT, "ann", audit))

    async def grant(version: int, share: Share | None) -> None:
        audit = writer.audit(None, version + 1, placement.scope_key)
        await storage.change_share(ShareChange(PROJECT, version, "crew", share, audit))

    assert await settled(find, query, member) == {}
    await grant(1, Share.RO)
    assert await settled(find, query, member) == {}
    create = writer.create("m1", "word", tags=("blue",), index=towards(writer, "word"), placement=placement)
    await storage.apply(create)
    assert set(await find(query, member)) == {"m1"}
    whole = await settled(find, query, member)
    assert set(whole) == {"m1"}
    await grant(2, None)
    assert await find(query, member) == {}
    assert set(await find(query)) == {"m1"}
    await grant(3, Share.RW)
    assert await find(query, member) == whole
    own = writer.create("m2", "word", index=towards(writer, "word"), placement=access.own_placement("bob"))
    await storage.apply(own)
    assert set(await find(query, member)) == {"m1", "m2"}
    assert set(await find(query, member, selector=Selector(scope_key=placement.scope_key))) == {"m1"}
    assert await find(query, member) == await find(query, member, cold=True)
