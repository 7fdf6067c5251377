"""The registry of spaces, and how one is filled and dropped, from two processes."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import replace
from datetime import timedelta
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from muniment.errors import ConfigurationError
from muniment.ports import (
    Audience,
    Create,
    Passages,
    PassageVector,
    Progress,
    ReceiptClaim,
    ReceiptTaken,
    Remove,
    Revise,
    SearchQuery,
    Selector,
    Space,
    Storage,
)
from muniment.ranking import Fusion
from muniment_storage_sqlite import filling, spaces, times
from muniment_storage_sqlite.apart import Apart

Opened = Callable[..., AbstractAsyncContextManager[Storage]]
Creation = Callable[[str, str], Create]
Revision = Callable[[str, int, str, str], Revise]
OWN = Space(id="own", provider="p", model="m", dimensions=8, pooling="mean", normalised=False, passage_tokens=10)
NEW = replace(OWN, id="new")
PROBES = np.eye(8, dtype=np.float32)[:2]
OWNER = Audience("alice")
HOUR = timedelta(hours=1)


@pytest.fixture
async def storage(path: Path, opened: Opened) -> AsyncGenerator[Storage]:
    """A storage in this process, with two spaces."""
    async with opened(path) as made:
        for space in (OWN, NEW):
            await made.register_space(space, PROBES)
        yield made


@pytest.fixture
async def other(storage: Storage, path: Path) -> AsyncGenerator[Storage]:
    """A client on the same file in a process of its own."""
    apart, made = await Apart.start(path)
    yield made
    await apart.end()


def passages(*fresh: str, kept: Sequence[str] = (), complete: bool = True, space: Space = NEW) -> Passages:
    """Passages with new vectors, besides those that are stored."""
    vectors = tuple(PassageVector(one, np.ones(8, dtype=np.float32)) for one in fresh)
    return Passages(space.id, frozenset((*fresh, *kept)), vectors, complete=complete)


def embedded(mutation: Create | Revise, *hashes: str, space: Space = OWN) -> Create | Revise:
    """The mutation with passages, all new."""
    assert mutation.index is not None
    return replace(mutation, index=replace(mutation.index, passages=passages(*hashes, space=space)))


async def leased(storage: Storage, *, after: str | None = None, limit: int = 99, space: Space = NEW) -> list[str]:
    """The ids of what is leased for an hour."""
    return [one.memory_id for one in await storage.lease_unembedded(space.id, after=after, limit=limit, lease=HOUR)]


async def active(storage: Storage) -> list[str]:
    """The spaces with the latest time of activation."""
    found = [(one.activated_at, one.space.id) for one in await storage.list_spaces() if one.activated_at is not None]
    return [space for at, space in found if at == max(found)[0]]


def rows(path: Path, select: str) -> list[tuple[object, ...]]:
    """What a connection of its own reads."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(select).fetchall()


# ------------------------------------------------------------ the registry


async def test_a_space_is_registered_once_and_activated_by_name(storage: Storage, other: Storage) -> None:
    """The first probes count; a space is active from its activation on, under the name that was given then."""
    assert (await other.register_space(NEW, PROBES * 2) == PROBES).all()
    first, second = await storage.list_spaces()
    assert (first.space, second.space, second.embedder, second.activated_at) == (OWN, NEW, None, None)
    assert first.registered_at < second.registered_at
    assert await other.activate_space(NEW.id, "its name")
    assert not await storage.activate_space(NEW.id, "another name")
    assert [one.embedder for one in await storage.list_spaces()] == [None, "its name"]
    assert await active(storage) == [NEW.id]
    with pytest.raises(ConfigurationError, match="absent is not registered"):
        await storage.activate_space("absent", "any")


async def test_an_activation_is_after_the_one_before_it(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the clock stands still, or went back."""
    for space, at in ((OWN, 5_000), (NEW, 5_000), (OWN, 1_000)):
        monkeypatch.setattr(times, "time", SimpleNamespace(time_ns=lambda at=at: at))
        assert await storage.activate_space(space.id, "any")
        assert await active(storage) == [space.id]
    own, new = await storage.list_spaces()
    assert own.activated_at is not None
    assert new.activated_at is not None
    assert own.activated_at - new.activated_at == timedelta(microseconds=1)


async def test_of_two_activations_at_once_one_is_the_later(storage: Storage, other: Storage) -> None:
    """However often they meet, one space is the active one."""
    for _ in range(20):
        await asyncio.gather(storage.activate_space(OWN.id, "own"), other.activate_space(NEW.id, "new"))
        assert len(await active(storage)) == 1


# ------------------------------------------------------------ filling


async def test_each_memory_is_leased_to_one(storage: Storage, other: Storage, creation: Creation) -> None:
    """Callers of two processes at once divide the memories among themselves, and leave none."""
    ids = [f"m{number:02}" for number in range(40)]
    for memory in ids:
        await storage.apply(creation(memory, "text"))
    given = await asyncio.gather(*(leased(one, limit=7) for one in (storage, other) for _ in range(3)))
    assert max(map(len, given)) <= 7
    assert sorted(chain.from_iterable(given)) == ids
    assert await leased(other) == []


async def test_leases_go_by_id(storage: Storage, creation: Creation) -> None:
    """Above ``after``, whatever spaces a memory is embedded in; with what it has of the space already."""
    for number in reversed(range(6)):
        made = creation(f"m{number}", "text")
        await storage.apply(made if number % 2 else embedded(made, "h"))
    await storage.store_passages("m3", 1, passages("x", complete=False))
    assert await leased(storage, after="m1", limit=2) == ["m2", "m3"]
    assert await leased(storage, limit=2) == ["m0", "m1"]
    assert await leased(storage, after="m5") == []
    found = {one.memory_id: one.passages for one in await storage.unembedded(NEW.id, limit=9)}
    assert found == {**{f"m{number}": frozenset() for number in range(6)}, "m3": {"x"}}
    assert len(await storage.unembedded(NEW.id, limit=2)) == 2


async def test_a_lease_ends(
    storage: Storage, other: Storage, creation: Creation, revision: Revision, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With vectors, complete or not, with a change of the memory, and with its time; not by an attempt that is late."""
    for memory in ("changed", "complete", "deleted", "over", "partial"):
        await storage.apply(creation(memory, "text"))
    assert len(await leased(storage)) == 5
    assert not await storage.store_passages("over", 9, passages("x"))
    assert await leased(other) == []
    await storage.store_passages("complete", 1, passages("x"))
    await storage.store_passages("partial", 1, passages("x", complete=False))
    await storage.apply(revision("changed", 1, "again", "alice"))
    audit = replace(creation("deleted", "text").audit, id="deletion")
    await storage.apply(Remove(memory_id="deleted", editor="alice", audit=audit, expected_version=1))
    assert await leased(other) == ["changed", "partial"]
    later = times.now() + times.length(HOUR)
    monkeypatch.setattr(filling, "now", lambda: later - times.length(HOUR) // 2)
    assert await leased(storage) == []
    monkeypatch.setattr(filling, "now", lambda: later)
    assert await leased(storage) == ["changed", "over", "partial"]
    with pytest.raises(ConfigurationError, match="absent is not registered"):
        await storage.lease_unembedded("absent", after=None, limit=1, lease=HOUR)


async def test_what_is_complete_costs_a_lease_nothing(storage: Storage, creation: Creation, path: Path) -> None:
    """The work for three memories is the same beside ten complete ones and beside 200."""
    for number in range(3):
        await storage.apply(creation(f"n{number}", "text"))
    steps: list[int] = []
    for start, end in ((0, 10), (10, 200)):
        for number in range(start, end):
            await storage.apply(embedded(creation(f"m{number:03}", "text"), "h"))
            await storage.store_passages(f"m{number:03}", 1, passages("x"))
        with closing(sqlite3.connect(path)) as connection:
            connection.row_factory = sqlite3.Row
            counted = 0

            def count() -> None:
                nonlocal counted
                counted += 1

            connection.set_progress_handler(count, 1)
            assert filling.pending(connection, NEW.id) == 3
            assert len(filling.unembedded(connection, NEW.id, limit=99)) == 3
            assert len(filling.lease(connection, NEW.id, after=None, limit=99, lease=HOUR)) == 3
            steps.append(counted)
    assert steps[1] < 1.2 * steps[0]


async def test_a_memory_is_complete_only_with_all_that_it_keeps(
    storage: Storage, creation: Creation, revision: Revision
) -> None:
    """Whoever counts on a passage that is gone stores the others, and the memory goes on waiting."""
    await storage.apply(creation("m", "text"))
    await storage.store_passages("m", 1, passages("x", complete=False))
    await storage.store_passages("m", 1, passages("y", kept=("x", "gone")))
    assert await storage.space_progress(NEW.id) == Progress(0, 1)
    await storage.store_passages("m", 1, passages("z", kept=("x", "y")))
    assert await storage.space_progress(NEW.id) == Progress(1, 1)
    for version, kept, complete in ((1, ("x", "gone"), 0), (2, ("x", "a1"), 1)):
        made = revision("m", version, "text", "alice")
        assert made.index is not None
        index = replace(made.index, passages=passages(f"a{version}", kept=kept))
        await storage.apply(replace(made, index=index))
        assert await storage.space_progress(NEW.id) == Progress(complete, 1)
    assert await storage.space_progress("absent") == Progress(0, 1)


# ------------------------------------------------------------ dropping


async def found(storage: Storage) -> set[str]:
    """What a search in the own space finds by meaning."""
    query = SearchQuery({}, frozenset(), np.ones(8, dtype=np.float32), OWN.id, Fusion.rrf, None, 0, 99)
    return {one.memory.id for one in await storage.search(OWNER, Selector(), query)}


def left(path: Path) -> list[tuple[object, ...]]:
    """What is stored of the own space, whose number is 1."""
    return rows(
        path,
        """
        SELECT memory FROM passages WHERE space = 1 UNION ALL SELECT memory FROM leases WHERE space = 1
        UNION ALL SELECT number FROM memories WHERE embedded_in LIKE '%,1,%'
        """,
    )


@pytest.fixture
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drop in which each step is one memory or two."""
    monkeypatch.setattr(spaces, "_PASSAGES", 2)


@pytest.mark.usefixtures("short_steps")
async def test_a_dropped_space_is_gone_for_every_process(
    storage: Storage, other: Storage, creation: Creation, revision: Revision, path: Path
) -> None:
    """Its passages, complete or not; other spaces keep theirs. Who believes in it is refused, and stores nothing."""
    for number in range(9):
        await storage.apply(embedded(creation(f"m{number}", "text"), "h", "g"))
        await storage.store_passages(f"m{number}", 1, passages("x"))
    await storage.store_passages("m1", 1, passages(kept=("h",), complete=False, space=OWN))
    await storage.apply(embedded(creation("whole", "text")))
    await leased(storage, space=OWN)
    assert await storage.space_progress(OWN.id) == Progress(9, 10)
    await other.activate_space(NEW.id, "new")

    assert await storage.drop_space(OWN.id)

    assert left(path) == []
    assert await other.space_progress(NEW.id) == Progress(9, 10)
    assert await other.space_progress(OWN.id) == Progress(0, 10)
    assert [one.space.id for one in await other.list_spaces()] == [NEW.id]
    assert not await other.drop_space(OWN.id)
    before = rows(path, "SELECT * FROM memories"), rows(path, "SELECT * FROM audit")
    for refused in (
        other.apply(embedded(creation("new", "text"), "h")),
        other.apply(embedded(revision("m0", 1, "again", "alice"), "h")),
        other.store_passages("m0", 1, passages("h", space=OWN)),
        other.store_passages("m0", 1, passages(space=OWN)),
        other.activate_space(OWN.id, "own"),
        other.lease_unembedded(OWN.id, after=None, limit=1, lease=HOUR),
    ):
        with pytest.raises(ConfigurationError, match="own is not registered"):
            await refused
    assert (rows(path, "SELECT * FROM memories"), rows(path, "SELECT * FROM audit")) == before
    assert left(path) == []


async def test_a_space_can_be_registered_again(
    storage: Storage, other: Storage, creation: Creation, revision: Revision, path: Path
) -> None:
    """By either process, with a number of its own; both may fill it then, a lease of its former life counts for
    nothing, and a search that had its vectors in mind finds the new ones alone."""
    for memory in ("m1", "m2"):
        await storage.apply(embedded(creation(memory, "text"), "h"))
    await storage.apply(creation("m3", "text"))
    assert await found(storage) == {"m1", "m2"}
    assert await leased(storage, space=OWN) == ["m3"]
    await other.activate_space(NEW.id, "new")
    assert await other.drop_space(OWN.id)
    assert await found(storage) == set()
    await other.register_space(OWN, PROBES)
    assert await leased(storage, space=OWN) == ["m1", "m2", "m3"]
    assert await storage.store_passages("m1", 1, passages("h", space=OWN))
    assert await other.store_passages("m3", 1, passages("h", space=OWN))
    assert (await storage.apply(embedded(revision("m2", 1, "again", "alice"), "h"))).version == 2
    assert await found(storage) == {"m1", "m2", "m3"}
    assert await storage.space_progress(OWN.id) == Progress(3, 3)
    assert rows(path, "SELECT id, number FROM spaces ORDER BY number") == [(NEW.id, 2), (OWN.id, 3)]


async def test_a_key_that_is_taken_is_told_before_a_space_that_is_gone(
    storage: Storage, other: Storage, creation: Creation
) -> None:
    """A call that is sent again after the space was dropped was done the first time."""
    claim = ReceiptClaim("alice", "key", "body", "m", {})
    await storage.apply(replace(embedded(creation("m", "text"), "h"), claim=claim))
    assert await other.drop_space(OWN.id)
    with pytest.raises(ReceiptTaken):
        await storage.apply(replace(embedded(creation("n", "text"), "h"), claim=claim))


async def test_the_active_space_stays(storage: Storage, other: Storage, creation: Creation, path: Path) -> None:
    """Nothing of it is touched; of a drop and its activation at once one is refused."""
    await storage.apply(embedded(creation("m", "text"), "h"))
    await storage.activate_space(OWN.id, "own")
    before = rows(path, "SELECT * FROM memories"), left(path)
    assert not await other.drop_space(OWN.id)
    assert not await other.drop_space("absent")
    assert (rows(path, "SELECT * FROM memories"), left(path)) == before
    for _ in range(20):
        await storage.activate_space(NEW.id, "new")
        dropped, activated = await asyncio.gather(
            other.drop_space(OWN.id), storage.activate_space(OWN.id, "own"), return_exceptions=True
        )
        assert (dropped is True) == isinstance(activated, ConfigurationError)
        await storage.register_space(OWN, PROBES)


@pytest.mark.usefixtures("short_steps")
async def test_an_interrupted_drop_is_ended_by_the_next(
    storage: Storage, creation: Creation, monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    """In between the space is registered and can be used, and what counts as complete has all its passages."""
    for number in range(6):
        await storage.apply(embedded(creation(f"m{number}", "text"), "h", "g"))
    assert len(await found(storage)) == 6
    step = spaces.drop_some
    steps = 0

    def counted(connection: sqlite3.Connection, space: str) -> bool | None:
        nonlocal steps
        steps += 1
        if steps == 4:
            raise KeyboardInterrupt
        return step(connection, space)

    with monkeypatch.context() as broken:
        broken.setattr(spaces, "drop_some", counted)
        with pytest.raises(KeyboardInterrupt):
            await storage.drop_space(OWN.id)
    assert await storage.space_progress(OWN.id) == Progress(3, 6)
    assert [one.space.id for one in await storage.list_spaces()] == [OWN.id, NEW.id]
    lacking = {one.memory_id for one in await storage.unembedded(OWN.id, limit=9)}
    assert await found(storage) == {f"m{number}" for number in range(6)} - lacking
    for number in range(6):
        facts = await storage.load(OWNER, f"m{number}", space=OWN.id)
        assert facts is not None
        assert (facts.passages, facts.embedded) == ((set(), False) if f"m{number}" in lacking else ({"h", "g"}, True))
    assert await storage.store_passages(min(lacking), 1, passages("h", "g", space=OWN))
    assert await storage.drop_space(OWN.id)
    assert left(path) == []


@pytest.mark.usefixtures("short_steps")
async def test_writes_go_on_between_the_steps_of_a_drop(
    storage: Storage, other: Storage, creation: Creation, monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    """Those that come into the space meanwhile are taken too, and those that come later refused."""
    for number in range(40):
        await storage.apply(embedded(creation(f"m{number}", "text"), "h"))
    database: Any = vars(storage)["_database"]
    step, written = database.write, 0

    async def stepped(work: Callable[[sqlite3.Connection], bool | None]) -> bool | None:
        nonlocal written
        ended = await step(work)
        if ended is None and written < 20:
            await other.apply(embedded(creation(f"n{written}", "text"), "h"))
            written += 1
        return ended

    monkeypatch.setattr(database, "write", stepped)
    assert await storage.drop_space(OWN.id)
    with pytest.raises(ConfigurationError):
        await other.apply(embedded(creation("late", "text"), "h"))
    assert written == 20
    assert left(path) == []
    assert len(rows(path, "SELECT id FROM memories")) == 40 + written
