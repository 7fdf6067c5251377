"""Words in batches of postings: found as before they were put there, whatever happens to the memories meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import psycopg
import pytest

from muniment import access, lexical
from muniment.errors import MunimentError
from muniment.ports import (
    Applied,
    Audience,
    Found,
    Mutation,
    PluginContext,
    Remove,
    Restore,
    Revise,
    SearchQuery,
    Selector,
    Space,
)
from muniment.ranking import Fusion
from muniment_storage_postgres import database, keys, settling
from muniment_storage_postgres.storage import PostgresStorage, create

Raw = psycopg.AsyncConnection[Any]
Clients = Callable[..., PostgresStorage]

SPACE = Space("test:8", "test", "test", 8, "mean", True, 100)
ANN = Audience("ann")
WORDS = [f"word{number}" for number in range(12)]
TAGS = ["red", "green", "größe"]
STEPS = 120


@pytest.fixture
async def other(url: str) -> AsyncGenerator[PostgresStorage]:
    """A storage of which nothing is ever settled."""
    made = create(PluginContext(url, Path(), {"schema": "never_settled", "partitions": 2}))
    await made.open()
    await made.register_space(SPACE, np.eye(8, dtype=np.float32)[:2])
    yield made
    await made.close()


async def settle(storage: PostgresStorage, raw: Raw, monkeypatch: pytest.MonkeyPatch, *, batch: int) -> int:
    """Settle every scope, in batches of so many memories."""
    cursor = await raw.execute(b"SELECT number FROM scope ORDER BY number")
    scopes = [scope for (scope,) in await cursor.fetchall()]
    opened = storage._database  # pyright: ignore[reportPrivateUsage]
    done = 0
    with monkeypatch.context() as patch:
        patch.setattr(settling, "BATCH", batch)
        for scope in scopes:
            done += await opened.write(lambda connection, scope=scope: settling.settle(connection, scope))
    return done


def by(words: Sequence[str] = (), tags: Sequence[str] = ()) -> SearchQuery:
    """A query by words and tags."""
    terms = lexical.query_terms(" ".join(words))
    return SearchQuery(terms, frozenset(tags), None, None, Fusion.weighted, None, 0, 50)


async def found(storage: PostgresStorage, words: Sequence[str] = (), tags: Sequence[str] = ()) -> Sequence[Found]:
    """What is found, in order, with all scores."""
    return await storage.search(ANN, Selector(), by(words, tags))


async def ids(storage: PostgresStorage, word: str) -> set[str]:
    """Who is found by a word."""
    return {one.memory.id for one in await found(storage, [word]) if one.ranked.words}


async def held_batches(raw: Raw) -> tuple[int, int]:
    """How many batches there are, and how many memories are in one."""
    cursor = await raw.execute(
        b"SELECT (SELECT count(*) FROM posting_batch), (SELECT count(*) FROM search_entry WHERE batch <> 0)"
    )
    ((batches, memories),) = await cursor.fetchall()
    return batches, memories


class History:
    """Mutations at random of memories that are known by what was done to them."""

    def __init__(self, writer: Any, dice: Random) -> None:
        self._writer = writer
        self._dice = dice
        self._standing: dict[str, tuple[int, bool, str]] = {}
        self._texts: dict[str, str] = {}

    def next(self) -> Mutation:
        """A mutation that is right for what was done until now."""
        dice = self._dice
        if len(self._standing) < 12 or dice.random() < 0.25:
            return self._create(f"m{len(self._standing):03}")
        memory = dice.choice(sorted(self._standing))
        version, deleted, key = self._standing[memory]
        self._standing[memory] = version + 1, deleted, key
        audit = self._writer.audit(memory, version + 1, key)
        common: dict[str, Any] = {"memory_id": memory, "editor": "ann", "audit": audit, "expected_version": version}
        if deleted:
            self._standing[memory] = version + 1, False, key
            return Restore(**common, index=self._writer.index(self._texts[memory]))
        match dice.randrange(4):
            case 0:
                self._standing[memory] = version + 1, True, key
                return Remove(**common)
            case 1:
                return Revise(**common, tags=self._tags())
            case 2:
                placement = access.own_placement(dice.choice(["ann", "bob"]))
                self._standing[memory] = version + 1, False, placement.scope_key
                return Revise(**common, placement=placement)
            case _:
                return Revise(**common, content=self._text(memory), index=self._writer.index(self._texts[memory]))

    def _create(self, memory: str) -> Mutation:
        self._standing[memory] = 1, False, access.user_key("ann")
        return self._writer.create(memory, self._text(memory), tags=self._tags())

    def _text(self, memory: str) -> str:
        self._texts[memory] = " ".join(self._dice.choices(WORDS, k=self._dice.randint(1, 9)))
        return self._texts[memory]

    def _tags(self) -> tuple[str, ...]:
        return tuple(self._dice.sample(TAGS, self._dice.randrange(3)))


async def test_settled_memories_are_found_as_unsettled_ones(
    storage: PostgresStorage, other: PostgresStorage, raw: Raw, writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A history of every kind of mutation, settled all the while, gives the orders and scores of one that never was."""
    dice = Random(7)
    history = History(writer, dice)
    settled = 0
    for number in range(STEPS):
        mutation = history.next()
        applied: list[Applied] = [await one.apply(mutation) for one in (storage, other)]
        assert applied[0].version == applied[1].version
        if number % 9 == 8:
            settled += await settle(storage, raw, monkeypatch, batch=5)
        words, tags = dice.sample(WORDS, dice.randrange(1, 4)), dice.sample(TAGS, dice.randrange(2))
        ours, theirs = await found(storage, words, tags), await found(other, words, tags)
        assert [one.ranked for one in ours] == [one.ranked for one in theirs]
    assert settled > STEPS / 2
    batches, memories = await held_batches(raw)
    assert (batches > 1, memories > 10) == (True, True)


async def test_a_tag_has_the_same_key_in_both_languages(storage: PostgresStorage, raw: Raw, writer: Any) -> None:
    """The server makes the key of a stored tag, this process that of one that is asked for."""
    tags = ["plain", "größe", "日本", "a:b", "e\u0301"]
    await storage.apply(writer.create("m1", tags=tags))
    cursor = await raw.execute(b"SELECT tags FROM search_keys")
    ((packed,),) = await cursor.fetchall()
    entries, _ = keys.entries([packed])
    assert sorted((entries >> keys.FREQUENCY_BITS).tolist()) == sorted(map(keys.tag_key, tags))
    assert set((entries & keys.FREQUENCY).tolist()) == {1}


async def test_a_search_that_meets_many_has_them_settled(
    storage: PostgresStorage, raw: Raw, writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Soon after it, and no sooner; what is left over stays as it is, and all are found."""
    monkeypatch.setattr(settling, "BATCH", 5)
    for number in range(12):
        await storage.apply(writer.create(f"m{number}", "harbour kelp" if number == 3 else "harbour"))
        if number == 3:
            assert len(await ids(storage, "harbour")) == 4
    assert await held_batches(raw) == (0, 0)
    assert len(await ids(storage, "harbour")) == 12
    for _ in range(500):
        if await held_batches(raw) == (2, 10):
            break
        await asyncio.sleep(0.02)
    assert await held_batches(raw) == (2, 10)
    assert len(await ids(storage, "harbour")) == 12
    assert await ids(storage, "kelp") == {"m3"}


async def test_optimize_settles_what_is_worth_it_and_says_so(
    storage: PostgresStorage, writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once; a second run has nothing to say."""
    monkeypatch.setattr(settling, "BATCH", 4)
    for number in range(9):
        await storage.apply(writer.create(f"m{number}"))
    assert any(said.startswith("Settled the words of 8 memories") for said in await storage.optimize())
    assert not any(said.startswith("Settled") for said in await storage.optimize())


async def test_a_batch_that_few_are_in_is_dissolved(
    storage: PostgresStorage, raw: Raw, writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of removed and of edited memories nothing is left, and the others are found still."""
    for number in range(8):
        await storage.apply(writer.create(f"m{number}", f"harbour word{number}"))
    assert await settle(storage, raw, monkeypatch, batch=8) == 8
    for number in range(5):
        removed = Remove(memory_id=f"m{number}", editor="ann", audit=writer.audit(f"m{number}", 2), expected_version=1)
        await storage.apply(removed if number % 2 else writer.edit(f"m{number}", 1, f"pier word{number}"))
    assert await settle(storage, raw, monkeypatch, batch=8) == 0
    assert await held_batches(raw) == (0, 0)
    cursor = await raw.execute(b"SELECT count(*) FROM posting")
    assert await cursor.fetchall() == [(0,)]
    assert await ids(storage, "harbour") == {"m5", "m6", "m7"}
    assert await ids(storage, "pier") == {"m0", "m2", "m4"}


async def test_optimize_dissolves_also_where_nothing_is_unsettled(
    storage: PostgresStorage, raw: Raw, writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of memories that were all removed no posting stays."""
    for number in range(4):
        await storage.apply(writer.create(f"m{number}", "harbour"))
    assert await settle(storage, raw, monkeypatch, batch=4) == 4
    for number in range(4):
        audit = writer.audit(f"m{number}", 2)
        await storage.apply(Remove(memory_id=f"m{number}", editor="ann", audit=audit, expected_version=1))
    await storage.optimize()
    cursor = await raw.execute(b"SELECT (SELECT count(*) FROM posting_batch), (SELECT count(*) FROM posting)")
    assert await cursor.fetchall() == [(0, 0)]


async def test_a_start_settles_what_is_there(
    storage: PostgresStorage, clients: Clients, raw: Raw, writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an upgrade, which leaves all unsettled; nobody has to search for it."""
    for number in range(5):
        await storage.apply(writer.create(f"m{number}", "harbour"))
    monkeypatch.setattr(settling, "BATCH", 5)
    other = clients()
    await other.open()
    for _ in range(500):
        if await held_batches(raw) == (1, 5):
            break
        await asyncio.sleep(0.02)
    assert await held_batches(raw) == (1, 5)
    await other.close()


async def test_an_edit_during_the_settling_is_found_by_its_new_words_only(
    storage: PostgresStorage, raw: Raw, writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that comes when the memory is taken waits for the batch, and takes the memory out of it again."""
    for number in range(3):
        await storage.apply(writer.create(f"m{number}", "harbour"))
    taken, go_on = asyncio.Event(), asyncio.Event()
    really = database.rows

    async def rows(connection: Any, statement: str, parameters: Any) -> Any:
        if statement == "keys_of":
            taken.set()
            await go_on.wait()
        return await really(connection, statement, parameters)

    monkeypatch.setattr(settling, "rows", rows)
    settled = asyncio.ensure_future(settle(storage, raw, monkeypatch, batch=3))
    await taken.wait()
    edit = asyncio.ensure_future(storage.apply(writer.edit("m1", 1, "pier")))
    await asyncio.sleep(0.3)
    assert not edit.done()
    go_on.set()
    assert await settled == 3
    assert (await edit).version == 2
    assert await held_batches(raw) == (1, 2)
    assert (await ids(storage, "harbour"), await ids(storage, "pier")) == ({"m0", "m2"}, {"m1"})


async def test_a_memory_that_is_being_edited_is_left_for_later(
    storage: PostgresStorage, raw: Raw, url: str, schema: str, writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever settles does not wait for it, and takes the words that it has afterwards."""
    for number in range(4):
        await storage.apply(writer.create(f"m{number}", "harbour"))
    async with await psycopg.AsyncConnection.connect(url) as editing:
        await editing.execute(f"SET search_path = {schema}, public".encode())
        await editing.execute(b"UPDATE search_entry SET length = 1 WHERE memory = 2")
        async with asyncio.timeout(5):
            assert await settle(storage, raw, monkeypatch, batch=3) == 3
        await editing.commit()
    await storage.apply(writer.edit("m1", 1, "pier"))
    assert await settle(storage, raw, monkeypatch, batch=1) == 1
    assert (await ids(storage, "harbour"), await ids(storage, "pier")) == ({"m0", "m2", "m3"}, {"m1"})


async def test_a_settling_that_is_cut_off_leaves_all_as_it_was(
    storage: PostgresStorage, raw: Raw, writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is there as a whole or not at all."""
    for number in range(3):
        await storage.apply(writer.create(f"m{number}", "harbour"))
    fault = (
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'cut off'; END $$;"
        "CREATE TRIGGER fail BEFORE INSERT ON posting FOR EACH ROW EXECUTE FUNCTION fail()"
    )
    await raw.execute(fault.encode())
    with pytest.raises(MunimentError, match="P0001"):
        await settle(storage, raw, monkeypatch, batch=3)
    assert await held_batches(raw) == (0, 0)
    assert await ids(storage, "harbour") == {"m0", "m1", "m2"}
    await raw.execute(b"DROP FUNCTION fail CASCADE")
    assert await settle(storage, raw, monkeypatch, batch=3) == 3
    assert await ids(storage, "harbour") == {"m0", "m1", "m2"}
