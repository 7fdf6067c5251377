"""Vectors that are kept in mind: each search answers as one that keeps none, whatever was written in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import psycopg
import pytest

from muniment import access
from muniment.conformance.loading import project
from muniment.errors import StorageUnavailable
from muniment.ports import (
    Audience,
    Found,
    Index,
    Passages,
    PassageVector,
    Remove,
    Restore,
    Revise,
    SearchQuery,
    Selector,
)
from muniment.ranking import Fusion
from muniment_storage_postgres import database, search, vectors
from muniment_storage_postgres.storage import PostgresStorage

Raw = psycopg.AsyncConnection[Any]
Clients = Callable[..., PostgresStorage]

SPACE = "test:8"
ANN = Audience("ann")
STEPS = 100
ALL = 50


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few passages are worth being kept."""
    monkeypatch.setattr(vectors, "WORTH", 3)


@pytest.fixture
async def cold(storage: PostgresStorage, clients: Clients) -> AsyncGenerator[PostgresStorage]:
    """Another client on the same data, which keeps nothing."""
    made = clients(vector_cache_mb=0)
    await made.open()
    yield made
    await made.close()


def vector(text: str) -> Any:
    """A text's vector."""
    drawn = np.random.default_rng(list(text.encode())).normal(size=8)
    return (drawn / np.linalg.norm(drawn)).astype(np.float32)


def index(writer: Any, text: str, *, complete: bool = True) -> Index:
    """Of a text with a passage for each of its words, or without passages until they come in the background."""
    words = sorted(set(text.split()))
    made = writer.index(text, words, [vector(word).tolist() for word in words])
    return made if complete else Index(made.analyser, made.terms, None)


def by(text: str) -> SearchQuery:
    """A query by meaning alone."""
    return SearchQuery({}, frozenset(), vector(text), SPACE, Fusion.weighted, None, 0, ALL)


async def found(storage: PostgresStorage, text: str, audience: Audience = ANN) -> Sequence[Found]:
    """What is near a text."""
    return await storage.search(audience, Selector(), by(text))


async def cosine(storage: PostgresStorage, text: str, memory: str) -> float | None:
    """How near a memory is to a text."""
    for one in await found(storage, text):
        if one.memory.id == memory:
            return None if one.ranked.meaning is None else one.ranked.meaning.score
    return None


def kept(storage: PostgresStorage) -> int:
    """Of how many scopes the vectors are kept."""
    return len(storage._mind.vectors.now())  # pyright: ignore[reportPrivateUsage]


async def same(warm: PostgresStorage, cold: PostgresStorage, text: str) -> None:
    """Both find the same memories in the same order, with scores that differ by no more than single precision."""
    ours, theirs = await found(warm, text), await found(cold, text)
    assert [one.memory for one in ours] == [one.memory for one in theirs]
    scores = [[one.ranked.score for one in page] for page in (ours, theirs)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)


async def three(storage: PostgresStorage, writer: Any) -> None:
    """Three memories of one passage each, whose vectors are kept."""
    for name in ("m1", "m2", "m3"):
        await storage.apply(writer.create(name, name, index=index(writer, name)))
    for _ in range(2):
        await found(storage, "m1")
    assert kept(storage) == 1


async def test_a_scope_is_kept_when_it_is_searched_again(storage: PostgresStorage, writer: Any) -> None:
    """The first search counts its passages, the second one reads them; a scope with fewer stays the server's."""
    for number in range(2):
        await storage.apply(writer.create(f"m{number}", f"m{number}", index=index(writer, f"m{number}")))
    for _ in range(3):
        await found(storage, "m1")
        assert kept(storage) == 0
    await storage.apply(writer.create("m2", "m2", index=index(writer, "m2")))
    await found(storage, "m1")
    assert kept(storage) == 0
    await found(storage, "m1")
    assert kept(storage) == 1
    assert await cosine(storage, "m2", "m2") == pytest.approx(1.0)


async def test_what_has_no_room_stays_the_servers(clients: Clients, storage: PostgresStorage, writer: Any) -> None:
    """Nothing is read again and again for being too large."""
    for number in range(3):
        await storage.apply(writer.create(f"m{number}", f"m{number}", index=index(writer, f"m{number}")))
    small = clients(vector_cache_mb=0)
    await small.open()
    for _ in range(3):
        assert await cosine(small, "m2", "m2") == pytest.approx(1.0)
    assert kept(small) == 0
    await small.close()


def test_a_search_reads_no_more_than_has_room_beside_what_it_needs() -> None:
    """Half of the budget is for one search, so that what grows still fits; who was chosen is counted anew."""
    known = vectors.KnownVectors(2_000)
    mine, theirs, small = (1, 1), (2, 1), (3, 1)
    known.note({mine: 10, theirs: 10, small: 2})
    needed = vectors.Vectors.of(1, np.arange(15), np.zeros((15, 8), dtype=np.float32))
    assert known.to_read([mine, theirs, small], 8, beside=[needed]) == []
    assert known.to_read([mine, theirs, small], 8, beside=[]) == [mine, theirs]
    assert known.to_read([mine, theirs, small], 8, beside=[]) == []


async def test_a_history_is_answered_as_by_who_keeps_nothing(
    storage: PostgresStorage, cold: PostgresStorage, writer: Any
) -> None:
    """Creations, edits, tags, moves there and back, removals, restorations, passages that come in the background."""
    dice = Random(3)
    texts: dict[str, str] = {}
    standing: dict[str, tuple[int, bool, str]] = {}
    made = project("ann", "key", dice)
    await storage.register_project(made)
    homes = [access.own_placement("ann"), access.project_placement(made.id), access.own_placement("bob")]

    def text() -> str:
        return " ".join(dice.choices([f"word{number}" for number in range(30)], k=dice.randint(1, 4)))

    for number in range(STEPS):
        if len(standing) < 8 or dice.random() < 0.2:
            name, complete = f"m{len(standing):03}", dice.random() < 0.7
            texts[name], standing[name] = text(), (1, False, homes[0].scope_key)
            await storage.apply(writer.create(name, texts[name], index=index(writer, texts[name], complete=complete)))
        else:
            name = dice.choice(sorted(standing))
            version, deleted, key = standing[name]
            common: dict[str, Any] = {
                **{"memory_id": name, "editor": "ann", "expected_version": version},
                "audit": writer.audit(name, version + 1, key),
            }
            change = dice.randrange(5)
            if deleted:
                await storage.apply(Restore(**common, index=index(writer, texts[name])))
            elif change == 0:
                await storage.apply(Remove(**common))
            elif change == 1:
                await storage.apply(Revise(**common, tags=("red",)))
            elif change == 2:
                placement = dice.choice(homes)
                await storage.apply(Revise(**common, placement=placement, tags=()))
                key = placement.scope_key
            else:
                texts[name] = text()
                entries = index(writer, texts[name], complete=change == 3)
                await storage.apply(Revise(**common, content=texts[name], index=entries))
            standing[name] = version + 1, not deleted and change == 0, key
        if number % 3 == 0:
            for late in await storage.unembedded(SPACE, limit=2):
                words = sorted(set(texts[late.memory_id].split()))
                passages = tuple(PassageVector(word, vector(word)) for word in words)
                await storage.store_passages(
                    late.memory_id, late.version, Passages(SPACE, frozenset(words), passages, complete=True)
                )
        await same(storage, cold, text())
        await same(storage, cold, dice.choice(sorted(texts.values())))
    assert (kept(storage), kept(cold)) == (2, 0)


async def test_what_was_being_written_when_the_vectors_were_read_is_seen_later(
    storage: PostgresStorage, url: str, schema: str, writer: Any
) -> None:
    """A transaction that began before and ends after it is older than others that are seen already."""
    for name in ("m1", "m2", "m3"):
        await storage.apply(writer.create(name, name, index=index(writer, name)))
    async with await psycopg.AsyncConnection.connect(url) as slow:
        await slow.execute(f"SET search_path = {schema}, public".encode())
        await slow.execute(b"UPDATE search_entry SET changed = pg_current_xact_id()::text::bigint WHERE memory = 2")
        moved = f"UPDATE passage SET embedding = '{vector('elsewhere').tolist()}' WHERE memory = 2"
        await slow.execute(moved.encode())
        for number in range(3):
            await storage.apply(writer.create(f"later{number}", "later", index=index(writer, "later")))
            await found(storage, "m1")
        assert kept(storage) == 1
        assert await cosine(storage, "m2", "m2") == pytest.approx(1.0)
        await slow.commit()
    assert await cosine(storage, "elsewhere", "m2") == pytest.approx(1.0)


async def test_an_older_snapshot_does_not_see_what_a_later_one_left(
    storage: PostgresStorage, url: str, writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a search is under way the memory changes, and another search of this process reads the change. Something
    older is not over yet, so that both have the same oldest transaction."""
    await three(storage, writer)
    under_way, go_on = asyncio.Event(), asyncio.Event()
    really = database.rows

    async def rows(connection: Any, statement: str, parameters: Any) -> Any:
        answer = await really(connection, statement, parameters)
        if statement == "scopes" and not under_way.is_set():
            under_way.set()
            await go_on.wait()
        return answer

    monkeypatch.setattr(search, "rows", rows)
    async with await psycopg.AsyncConnection.connect(url) as older:
        await older.execute(b"SELECT pg_current_xact_id()")
        early = asyncio.ensure_future(cosine(storage, "m2", "m2"))
        await under_way.wait()
        await storage.apply(writer.edit("m2", 1, "elsewhere", index(writer, "elsewhere")))
        assert await cosine(storage, "elsewhere", "m2") == pytest.approx(1.0)
        go_on.set()
        assert await early == pytest.approx(1.0)
    assert await cosine(storage, "elsewhere", "m2") == pytest.approx(1.0)


async def test_who_moved_to_a_scope_that_is_not_kept_has_left_nothing(storage: PostgresStorage, writer: Any) -> None:
    """The scope that it came from is not told of what becomes of it."""
    await three(storage, writer)
    made = project("ann", "key", Random(1))
    await storage.register_project(made)
    away = access.project_placement(made.id)
    audit = writer.audit("m2", 2)
    await storage.apply(Revise(memory_id="m2", editor="ann", audit=audit, expected_version=1, placement=away))
    audit = writer.audit("m2", 3, away.scope_key)
    elsewhere = index(writer, "elsewhere")
    await storage.apply(
        Revise(
            memory_id="m2", editor="ann", audit=audit, expected_version=2, content="elsewhere", tags=(), index=elsewhere
        )
    )
    assert await cosine(storage, "elsewhere", "m2") == pytest.approx(1.0)
    assert (await cosine(storage, "m2", "m2") or 0.0) < 0.5


async def test_a_restored_dump_is_not_read_with_every_search(
    storage: PostgresStorage, raw: Raw, writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows bear transactions that this server has not had yet; what is written here is seen all the same."""
    read: list[int] = []
    really = vectors.changed

    def changed(answers: Any) -> Any:
        found = really(answers)
        read.append(len(found))
        return found

    await three(storage, writer)
    await raw.execute(b"UPDATE search_entry SET changed = changed + 1000000000")
    monkeypatch.setattr(vectors, "changed", changed)
    assert await cosine(storage, "m2", "m2") == pytest.approx(1.0)
    await storage.apply(writer.edit("m2", 1, "elsewhere", index(writer, "elsewhere")))
    assert await cosine(storage, "elsewhere", "m2") == pytest.approx(1.0)
    assert read == [0, 1]


async def test_new_connections_forget_what_was_kept(storage: PostgresStorage, raw: Raw, writer: Any) -> None:
    """After a failover the server may be one that lacks the last commits, whose numbers are given again."""
    await three(storage, writer)
    await raw.execute(b"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'muniment'")
    assert await cosine(storage, "m2", "m2") == pytest.approx(1.0)
    assert kept(storage) == 0
    assert await cosine(storage, "m2", "m2") == pytest.approx(1.0)
    assert kept(storage) == 1
    opened = storage._database  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(StorageUnavailable):
        await opened.write(lambda connection: connection.execute(b"SELECT pg_terminate_backend(pg_backend_pid())"))
    assert kept(storage) == 0
