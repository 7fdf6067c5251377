"""Words and vectors that are kept in mind: a search answers as one that keeps none, whatever was written meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import psycopg
import pytest

from muniment import access, lexical, models
from muniment.conformance.loading import project
from muniment.errors import MunimentError, StorageUnavailable
from muniment.models import Share
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
    ShareChange,
)
from muniment.ranking import Fusion
from muniment_storage_postgres import mind, search, settling, vectors, words
from muniment_storage_postgres.storage import PostgresStorage

Raw = psycopg.AsyncConnection[Any]
Clients = Callable[..., PostgresStorage]

SPACE = "test:8"
ANN = Audience("ann")
STEPS = 100
ALL = 50


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few memories or passages are worth being kept."""
    monkeypatch.setattr(mind, "WORTH", 3)


@pytest.fixture
async def cold(storage: PostgresStorage, clients: Clients) -> AsyncGenerator[PostgresStorage]:
    """Another client on the same data, which keeps nothing."""
    made = clients(search_cache_mb=0)
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


def by_words(text: str) -> SearchQuery:
    """A query by words and by the tag red."""
    return SearchQuery(lexical.query_terms(text), frozenset({"red"}), None, None, Fusion.weighted, None, 0, ALL)


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
    found = storage._mind.scopes.now()  # pyright: ignore[reportPrivateUsage]
    return sum(one.vectors is not None for one in found.values())


def words_kept(storage: PostgresStorage) -> int:
    """Of how many scopes the words are kept."""
    return len(storage._mind.scopes.now())  # pyright: ignore[reportPrivateUsage]


async def same(warm: PostgresStorage, cold: PostgresStorage, text: str) -> None:
    """Both find the same memories in the same order: by words with the same scores, by meaning with scores that differ
    by no more than single precision."""
    ours, theirs = await found(warm, text), await found(cold, text)
    assert [one.memory for one in ours] == [one.memory for one in theirs]
    scores = [[one.ranked.score for one in page] for page in (ours, theirs)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)
    for selector in (Selector(), Selector(scope=models.Scope.USER), Selector(tags=("red",))):
        assert await warm.search(ANN, selector, by_words(text)) == await cold.search(ANN, selector, by_words(text))


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


async def test_others_are_served_while_much_is_put_in_order(
    storage: PostgresStorage, writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a second where many memories are read, or have changed."""
    threads: list[threading.Thread] = []
    really = words.Segment.of

    def of(*entries: Any, **how: Any) -> words.Segment:
        threads.append(threading.current_thread())
        return really(*entries, **how)

    monkeypatch.setattr(words.Segment, "of", of)
    monkeypatch.setattr(search, "_MANY", 1)
    await three(storage, writer)
    assert len(threads) == 1
    await storage.apply(writer.edit("m2", 1, "tower", index(writer, "tower")))
    assert await words_of(storage, "tower") == {"m2"}
    assert len(threads) > 1
    assert threading.main_thread() not in threads


async def test_what_has_no_room_stays_the_servers(clients: Clients, storage: PostgresStorage, writer: Any) -> None:
    """Nothing is read again and again for being too large."""
    for number in range(3):
        await storage.apply(writer.create(f"m{number}", f"m{number}", index=index(writer, f"m{number}")))
    small = clients(search_cache_mb=0)
    await small.open()
    for _ in range(3):
        assert await cosine(small, "m2", "m2") == pytest.approx(1.0)
    assert kept(small) == 0
    await small.close()


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
                await storage.apply(Revise(**common, tags=dice.choice([("red",), ("red", "blue"), ()])))
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
    assert (words_kept(storage), words_kept(cold)) == (2, 0)


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
    really = search._answers  # pyright: ignore[reportPrivateUsage]

    async def answers(*given: Any) -> Any:
        if not under_way.is_set():
            under_way.set()
            await go_on.wait()
        return await really(*given)

    monkeypatch.setattr(search, "_answers", answers)
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
    really = vectors.Vectors.with_changes

    def with_changes(self: vectors.Vectors, seen: int, changed: Any, *passages: Any) -> vectors.Vectors:
        read.append(len(changed))
        return really(self, seen, changed, *passages)

    await three(storage, writer)
    await raw.execute(b"UPDATE search_entry SET changed = changed + 1000000000")
    monkeypatch.setattr(vectors.Vectors, "with_changes", with_changes)
    assert await cosine(storage, "m2", "m2") == pytest.approx(1.0)
    await storage.apply(writer.edit("m2", 1, "elsewhere", index(writer, "elsewhere")))
    assert await cosine(storage, "elsewhere", "m2") == pytest.approx(1.0)
    assert read == [0, 1]


async def words_of(storage: PostgresStorage, text: str, audience: Audience = ANN) -> set[str]:
    """Who is found by a word."""
    page = await storage.search(audience, Selector(), by_words(text))
    return {one.memory.id for one in page if one.ranked.words}


async def test_who_lost_the_access_is_asked_for_in_vain(
    storage: PostgresStorage, writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search asks what has become of the scopes of the one before, and answers of those that it may read now."""
    monkeypatch.setattr(mind, "WORTH", 1)
    made = project("bob", "key", Random(2))
    await storage.register_project(made)
    key = access.project_key(made.id)
    await storage.change_share(ShareChange(made.id, 1, "team", Share.RO, writer.audit(None, 2, key)))
    await storage.apply(writer.create("m1", "tower", placement=access.project_placement(made.id)))
    await storage.apply(writer.create("m2", "tower"))
    audience = Audience("ann", frozenset({"team"}))
    for _ in range(3):
        assert await words_of(storage, "tower", audience) == {"m1", "m2"}
    assert words_kept(storage) == 2
    await storage.change_share(ShareChange(made.id, 2, "team", None, writer.audit(None, 3, key)))
    assert await words_of(storage, "tower", audience) == {"m2"}
    await storage.change_share(ShareChange(made.id, 3, "team", Share.RW, writer.audit(None, 4, key)))
    await storage.apply(writer.create("m3", "tower", placement=access.project_placement(made.id)))
    assert await words_of(storage, "tower", audience) == {"m1", "m2", "m3"}


async def three_and_a_stranger(storage: PostgresStorage, cold: PostgresStorage, raw: Raw, writer: Any) -> None:
    """Three memories that are kept, and one more that no transaction of this server has put there."""
    await three(storage, writer)
    await cold.apply(writer.create("m4", "tower", index=index(writer, "tower")))
    await raw.execute(b"UPDATE search_entry SET changed = 1 WHERE memory = 4")


async def test_what_came_by_no_transaction_of_the_server_is_read_too(
    storage: PostgresStorage, cold: PostgresStorage, raw: Raw, writer: Any
) -> None:
    """As while a dump is being restored: there is one more than what was kept and what has changed."""
    await three_and_a_stranger(storage, cold, raw, writer)
    assert await words_of(storage, "tower") == {"m4"}


async def test_what_lacks_its_words_is_not_found_by_words(
    storage: PostgresStorage, cold: PostgresStorage, raw: Raw, writer: Any
) -> None:
    """As while a dump is being restored, table by table."""
    await three_and_a_stranger(storage, cold, raw, writer)
    await raw.execute(b"DELETE FROM search_keys")
    assert await words_of(storage, "tower") == set()
    await storage.apply(writer.create("m5", "tower", index=index(writer, "tower")))
    assert await words_of(storage, "tower") == {"m5"}


async def test_a_dump_that_is_restored_under_a_process_is_seen(storage: PostgresStorage, raw: Raw, writer: Any) -> None:
    """Its rows are older than what the process has in mind, and as many; but they are in another file."""
    tables = ("memory", "search_entry", "search_keys", "passage")
    await three(storage, writer)
    for table in tables:
        await raw.execute(f"CREATE TABLE dumped_{table} AS TABLE {table}".encode())
    await storage.apply(writer.edit("m2", 1, "tower", index(writer, "tower")))
    assert await words_of(storage, "tower") == {"m2"}
    async with raw.transaction():
        await raw.execute(f"TRUNCATE {', '.join(tables)} CASCADE".encode())
        for table in tables:
            await raw.execute(f"INSERT INTO {table} OVERRIDING SYSTEM VALUE TABLE dumped_{table}".encode())
    assert (await words_of(storage, "tower"), await words_of(storage, "m2")) == (set(), {"m2"})
    assert await cosine(storage, "m2", "m2") == pytest.approx(1.0)


async def test_a_query_of_another_width_is_refused_as_by_the_server(
    storage: PostgresStorage, cold: PostgresStorage, writer: Any
) -> None:
    """What is kept is not compared with it."""
    await three(storage, writer)
    query = replace(by_words("m1"), vector=np.ones(6, dtype=np.float32), space=SPACE)
    for each in (storage, cold):
        with pytest.raises(MunimentError, match="SQLSTATE 22000"):
            await each.search(ANN, Selector(), query)
    assert await cosine(storage, "m2", "m2") == pytest.approx(1.0)


async def test_terms_that_are_made_anew_are_seen(storage: PostgresStorage, writer: Any) -> None:
    """By who has the earlier ones in mind."""
    await three(storage, writer)
    assert await words_of(storage, "m2") == {"m2"}
    assert await storage.store_terms("m2", 1, "another", lexical.analyse("tower"))
    assert (await words_of(storage, "m2"), await words_of(storage, "tower")) == (set(), {"m2"})


async def test_a_few_memories_of_many_passages_are_read_once(
    storage: PostgresStorage, writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scope is kept for its passages too, and then with its words."""
    read: list[str] = []
    really = search.sent  # pyright: ignore[reportPrivateImportUsage]

    async def sent(connection: Any, statement: str, parameters: Any, **where: int) -> Any:
        read.append(statement)
        return await really(connection, statement, parameters, **where)

    monkeypatch.setattr(search, "sent", sent)
    await storage.apply(writer.create("m1", "a b c d", index=index(writer, "a b c d")))
    for _ in range(4):
        await found(storage, "a")
    assert read == ["scopes", "holders", "scanned", "scopes", "words", "passages"] + 2 * ["scopes", "changes"]


async def test_a_search_that_went_wrong_forgets_why(storage: PostgresStorage, writer: Any) -> None:
    """The next one asks the server, which answers whatever is the matter with what was kept."""
    await three(storage, writer)
    scopes = storage._mind.scopes  # pyright: ignore[reportPrivateUsage]
    ((number, one),) = scopes.now().items()
    scopes.keep(number, replace(one, words=replace(one.words, partition=100)))
    with pytest.raises(MunimentError):
        await found(storage, "m1")
    assert await cosine(storage, "m2", "m2") == pytest.approx(1.0)


async def test_what_is_gone_is_not_carried_along(
    storage: PostgresStorage, writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither words nor vectors of memories that were removed."""
    for module, name in ((words, "_GONE_SLOTS"), (vectors, "_GONE_ROWS")):
        monkeypatch.setattr(module, name, 5)
    await three(storage, writer)
    for number in range(30):
        name = f"n{number}"
        await storage.apply(writer.create(name, name, index=index(writer, name)))
        await found(storage, name)
        audit = writer.audit(name, 2)
        await storage.apply(Remove(memory_id=name, editor="ann", expected_version=1, audit=audit))
        await found(storage, name)
    (one,) = storage._mind.scopes.now().values()  # pyright: ignore[reportPrivateUsage]
    assert one.vectors is not None
    assert len(one.vectors.memories) <= 12
    assert len(one.words.content.memories) <= 12


async def test_a_scope_that_is_kept_is_settled_too(
    storage: PostgresStorage, raw: Raw, writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written since it was read waits for who keeps nothing."""
    monkeypatch.setattr(settling, "BATCH", 4)
    await three(storage, writer)
    for number in range(4):
        await storage.apply(writer.create(f"n{number}", "tower", index=index(writer, "tower")))
    assert await words_of(storage, "tower") == {f"n{number}" for number in range(4)}
    for _ in range(100):
        cursor = await raw.execute(b"SELECT count(*) FROM search_entry WHERE batch <> 0")
        if await cursor.fetchone() == (4,):
            break
        await asyncio.sleep(0.05)
    else:
        pytest.fail("nothing was settled")
    assert await words_of(storage, "tower") == {f"n{number}" for number in range(4)}


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
