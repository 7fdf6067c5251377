"""Dropping a space while others use it: nothing is ever stored under a space that is gone, nothing is half complete."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import psycopg
import pytest

from muniment import ranking
from muniment.errors import ConfigurationError
from muniment.ports import Audience, Passages, PassageVector, Progress, SearchQuery, Selector, Space
from muniment_storage_postgres import spaces
from muniment_storage_postgres.storage import PostgresStorage

Clients = Callable[..., PostgresStorage]
Raw = psycopg.AsyncConnection[Any]

SPACE = Space("test:8", "test", "test", 8, "mean", True, 100)
OTHER = Space("other:8", "test", "other", 8, "mean", True, 100)
PROBES = np.eye(8, dtype=np.float32)[:2]
HOUR = timedelta(hours=1)
ANN = Audience("ann")
MEMORIES = 9

DROP = """
import asyncio, sys
from pathlib import Path
from muniment.ports import PluginContext
from muniment_storage_postgres import spaces
from muniment_storage_postgres.storage import create

async def main(url, schema):
    spaces._PAGE = 1
    storage = create(PluginContext(url, Path.cwd(), {"schema": schema}))
    await storage.open()
    await storage.drop_space("test:8")

asyncio.run(main(*sys.argv[1:]))
"""
"""A process that drops a space memory by memory."""


@pytest.fixture
async def second(storage: PostgresStorage, clients: Clients) -> AsyncGenerator[PostgresStorage]:
    """Another client on the same data."""
    made = clients()
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def filled(storage: PostgresStorage, writer: Any) -> PostgresStorage:
    """With another space, which is active, and memories whose passages ``a`` and ``b`` are complete in both."""
    await storage.register_space(OTHER, PROBES)
    await storage.activate_space(SPACE.id, "test")
    await storage.activate_space(OTHER.id, "other")
    for number in range(MEMORIES):
        await storage.apply(writer.create(f"m{number}", index=writer.index("some words", ("a", "b"))))
        await storage.store_passages(f"m{number}", 1, vectors(OTHER.id, "a", "b"))
    return storage


def vectors(space: str, *fresh: str, kept: frozenset[str] = frozenset()) -> Passages:
    """Passages, complete; all but ``kept`` come with a vector."""
    made = tuple(PassageVector(one, np.ones(8, dtype=np.float32)) for one in fresh)
    return Passages(space, frozenset(fresh) | kept, made, complete=True)


async def numbers(raw: Raw, query: str) -> int:
    """The one number that a query gives."""
    row = await (await raw.execute(query.encode())).fetchone()
    assert row is not None
    return row[0]


async def traces(raw: Raw) -> int:
    """How much there is under numbers that are no space's."""
    return await numbers(
        raw,
        "SELECT (SELECT count(*) FROM passage WHERE space NOT IN (SELECT number FROM space))"
        " + (SELECT count(*) FROM embedding_lease WHERE space NOT IN (SELECT number FROM space))"
        " + (SELECT count(*) FROM memory WHERE NOT embedded_in <@ ARRAY(SELECT number FROM space))",
    )


async def half_complete(raw: Raw) -> int:
    """How many memories count as complete in a space although they lack one of their two passages there."""
    return await numbers(
        raw,
        "SELECT count(*) FROM memory m CROSS JOIN unnest(m.embedded_in) AS s (number) WHERE 2 <> ("
        "SELECT count(*) FROM passage p WHERE p.scope = m.scope_number AND p.space = s.number AND p.memory = m.number)",
    )


async def waits(raw: Raw) -> None:
    """Return once a statement of the plugin waits for another one's row."""
    await until(
        lambda: numbers(
            raw,
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND wait_event = 'transactionid'"
            " AND application_name = 'muniment'",
        )
    )


async def until(condition: Callable[[], Awaitable[Any]]) -> None:
    """Return once a condition is true."""
    for _ in range(3_000):
        if await condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to that")


# ------------------------------------------------------------ what goes and what stays


async def test_a_dropped_space_leaves_nothing_and_takes_nothing_else(
    filled: PostgresStorage, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In steps of a few memories; the other space, the memories and their versions are as they were."""
    monkeypatch.setattr(spaces, "_PAGE", 2)
    await filled.lease_unembedded(SPACE.id, after=None, limit=9, lease=HOUR)
    assert await filled.drop_space(SPACE.id)
    assert await traces(raw) == 0
    assert [one.space for one in await filled.list_spaces()] == [OTHER]
    assert await filled.space_progress(OTHER.id) == Progress(MEMORIES, MEMORIES)
    facts = await filled.load(ANN, "m1", space=OTHER.id)
    assert facts is not None
    assert (facts.memory.version, facts.passages, facts.embedded) == (1, {"a", "b"}, True)
    assert not await filled.drop_space(SPACE.id)


async def test_no_step_of_a_drop_locks_more_than_a_page(
    filled: PostgresStorage, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever holds one memory stops the drop, and nobody else: memories of other pages are edited meanwhile."""
    monkeypatch.setattr(spaces, "_PAGE", 2)
    await raw.execute("BEGIN")
    await raw.execute("SELECT FROM memory WHERE id = 'm4' FOR UPDATE")
    dropping = asyncio.create_task(filled.drop_space(SPACE.id))
    await waits(raw)
    async with asyncio.timeout(10):
        assert await filled.store_passages("m0", 1, vectors(OTHER.id, "x", "y"))
        assert await filled.store_passages("m8", 1, vectors(OTHER.id, "x", "y"))
    await raw.execute("COMMIT")
    assert await dropping
    assert await traces(raw) == 0


async def test_passages_of_memories_that_are_not_complete_go_too(filled: PostgresStorage, raw: Raw) -> None:
    """Whatever state a space is in."""
    some = replace(vectors(SPACE.id, "a"), complete=False)
    assert await filled.store_passages("m1", 1, some)
    assert await filled.drop_space(SPACE.id)
    assert await traces(raw) == 0


async def test_the_active_space_is_not_dropped(filled: PostgresStorage) -> None:
    """Nor is one that is not registered; nothing is done."""
    assert not await filled.drop_space(OTHER.id)
    assert not await filled.drop_space("nobody's")
    assert await filled.space_progress(OTHER.id) == Progress(MEMORIES, MEMORIES)


async def test_a_space_that_is_activated_while_it_is_dropped_stays(
    filled: PostgresStorage, second: PostgresStorage, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drop stops at its next step; what still counts as complete is complete, and the rest can be made again."""
    monkeypatch.setattr(spaces, "_PAGE", 1)
    await raw.execute("BEGIN")
    await raw.execute("SELECT FROM memory WHERE id = 'm4' FOR UPDATE")
    dropping = asyncio.create_task(filled.drop_space(SPACE.id))
    await waits(raw)
    assert await second.activate_space(SPACE.id, "test")
    await raw.execute("COMMIT")
    assert not await dropping
    assert await half_complete(raw) == 0
    assert await second.space_progress(SPACE.id) == Progress(MEMORIES - 5, MEMORIES)
    found = await second.lease_unembedded(SPACE.id, after=None, limit=99, lease=HOUR)
    assert [one.memory_id for one in found] == [f"m{number}" for number in range(5)]


async def test_a_space_that_is_activated_in_the_last_moment_stays(filled: PostgresStorage, raw: Raw) -> None:
    """An activation that is not committed yet is waited for before the registry's row goes."""
    await raw.execute("BEGIN")
    await raw.execute("UPDATE space SET activated_at = clock_timestamp() WHERE id = 'test:8'")
    dropping = asyncio.create_task(filled.drop_space(SPACE.id))
    await waits(raw)
    await raw.execute("COMMIT")
    assert not await dropping
    assert len(await filled.list_spaces()) == 2


# ------------------------------------------------------------ who writes meanwhile


async def test_nobody_writes_under_a_space_that_another_process_dropped(
    filled: PostgresStorage, second: PostgresStorage, raw: Raw, writer: Any
) -> None:
    """A client that used the space a moment ago is refused, and stores nothing."""
    await second.apply(writer.create("mine"))
    assert await filled.drop_space(SPACE.id)
    refused = (
        second.apply(writer.create("new")),
        second.apply(writer.edit("mine", 1, "new words", writer.index("new words"))),
        second.store_passages("mine", 1, vectors(SPACE.id, "x")),
        second.lease_unembedded(SPACE.id, after=None, limit=9, lease=HOUR),
        second.activate_space(SPACE.id, "test"),
    )
    for call in refused:
        with pytest.raises(ConfigurationError, match="test:8"):
            await call
    assert await traces(raw) == 0
    assert await second.load(ANN, "new") is None
    facts = await second.load(ANN, "mine", space=SPACE.id)
    assert facts is not None
    assert (facts.memory.version, facts.passages, facts.embedded) == (1, frozenset(), False)


async def test_a_space_that_was_dropped_and_came_back_is_used_by_everybody(
    filled: PostgresStorage, second: PostgresStorage, writer: Any
) -> None:
    """It begins empty; a client that knew the old one writes to it and finds by it without being opened again."""
    await second.apply(writer.create("mine", index=writer.index("words", ("h",), ((1, 0, 0, 0, 0, 0, 0, 0),))))
    assert await filled.drop_space(SPACE.id)
    await filled.register_space(SPACE, PROBES)
    assert await second.search(ANN, Selector(), by_meaning()) == []
    await second.apply(writer.edit("mine", 1, "words", writer.index("words", ("h",), ((1, 0, 0, 0, 0, 0, 0, 0),))))
    (found,) = await second.search(ANN, Selector(), by_meaning())
    assert found.memory.id == "mine"
    assert await second.space_progress(SPACE.id) == Progress(1, MEMORIES + 1)


def by_meaning() -> SearchQuery:
    """A query that only meaning answers."""
    return SearchQuery(
        terms={},
        tags=frozenset(),
        vector=PROBES[0],
        space=SPACE.id,
        fusion=ranking.Fusion.weighted,
        min_score=None,
        offset=0,
        limit=9,
    )


async def test_a_write_that_began_before_the_end_of_a_drop_is_found_by_it(
    filled: PostgresStorage, second: PostgresStorage, raw: Raw, writer: Any
) -> None:
    """A write that passed by the pages of the drop, and is not committed when it comes to its end, is waited for."""
    await raw.execute("BEGIN")
    await raw.execute(
        "SELECT FROM scope FOR UPDATE"
    )  # what a drop does not ask for, and a new scope's first write does
    await raw.execute("SELECT FROM space WHERE id = 'test:8' FOR KEY SHARE")
    dropping = asyncio.create_task(filled.drop_space(SPACE.id))
    await waits(raw)
    await raw.execute(
        "INSERT INTO passage SELECT m.scope_number, s.number, m.number, 'late', '[1,2,3,4,5,6,7,8]'"
        " FROM memory m CROSS JOIN space s WHERE m.id = 'm3' AND s.id = 'test:8'"
    )
    await raw.execute("UPDATE memory SET embedded_in = embedded_in || 1 WHERE id = 'm3'")
    await raw.execute("COMMIT")
    assert await dropping
    assert await traces(raw) == 0


@pytest.mark.parametrize("call", ["create", "edit", "store_passages"])
async def test_a_write_that_waits_for_the_end_of_a_drop_is_refused(
    filled: PostgresStorage, second: PostgresStorage, raw: Raw, writer: Any, call: str
) -> None:
    """Although the space was still there when its statement began."""
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "create": lambda: second.apply(writer.create("new")),
        "edit": lambda: second.apply(writer.edit("m1", 1, "new words", writer.index("new words"))),
        "store_passages": lambda: second.store_passages("m1", 1, vectors(SPACE.id, "x")),
    }
    await raw.execute("UPDATE memory SET embedded_in = '{2}'")
    await raw.execute("BEGIN")
    await raw.execute("DELETE FROM passage WHERE space = 1")
    await raw.execute("DELETE FROM space WHERE id = 'test:8'")
    writing = asyncio.ensure_future(calls[call]())
    await waits(raw)
    await raw.execute("COMMIT")
    with pytest.raises(ConfigurationError, match="test:8"):
        await writing
    assert await traces(raw) == 0


async def test_who_writes_all_the_time_while_a_space_is_dropped_leaves_nothing_in_it(
    filled: PostgresStorage, second: PostgresStorage, raw: Raw, writer: Any
) -> None:
    """Every write is stored whole or refused, to the end."""
    stop = asyncio.Event()

    async def write(name: str) -> int:
        for number in range(10_000):
            if stop.is_set():
                return number
            await second.apply(writer.create(f"{name}-{number}", index=writer.index("words", ("a", "b"))))
        return -1

    writers = [asyncio.create_task(write(str(number))) for number in range(4)]
    await asyncio.sleep(0.2)
    assert await filled.drop_space(SPACE.id)
    stop.set()
    ends = await asyncio.gather(*writers, return_exceptions=True)
    assert all(isinstance(end, (ConfigurationError, int)) for end in ends)
    assert await traces(raw) == 0


# ------------------------------------------------------------ what was to be kept


async def test_an_edit_whose_kept_passages_were_dropped_is_not_complete(
    filled: PostgresStorage, raw: Raw, writer: Any
) -> None:
    """Between the load and the edit a drop took the passages that the edit keeps; the background has to make them."""
    await raw.execute("UPDATE memory SET embedded_in = array_remove(embedded_in, 1) WHERE id = 'm1'")
    await raw.execute("DELETE FROM passage WHERE space = 1 AND memory = (SELECT number FROM memory WHERE id = 'm1')")
    index = replace(writer.index("new words"), passages=vectors(SPACE.id, "b", kept=frozenset({"a"})))
    await filled.apply(writer.edit("m1", 1, "new words", index))
    facts = await filled.load(ANN, "m1", space=SPACE.id)
    assert facts is not None
    assert (facts.passages, facts.embedded) == ({"b"}, False)


async def test_an_edit_that_makes_an_incomplete_memory_complete_says_so(filled: PostgresStorage, writer: Any) -> None:
    """What it keeps is there, although the memory was not complete."""
    assert await filled.store_passages("m1", 1, replace(vectors(SPACE.id, "a"), complete=False))
    index = replace(writer.index("new words"), passages=vectors(SPACE.id, "b", kept=frozenset({"a"})))
    await filled.apply(writer.edit("m1", 1, "new words", index))
    facts = await filled.load(ANN, "m1", space=SPACE.id)
    assert facts is not None
    assert (facts.passages, facts.embedded) == ({"a", "b"}, True)


async def test_vectors_whose_kept_passages_were_dropped_do_not_make_a_memory_complete(
    filled: PostgresStorage, raw: Raw
) -> None:
    """What came with vectors is stored, what is lacking is made the next time."""
    await raw.execute("UPDATE memory SET embedded_in = array_remove(embedded_in, 1) WHERE id = 'm1'")
    await raw.execute("DELETE FROM passage WHERE space = 1 AND memory = (SELECT number FROM memory WHERE id = 'm1')")
    assert await filled.store_passages("m1", 1, vectors(SPACE.id, "b", kept=frozenset({"a"})))
    (found,) = await filled.unembedded(SPACE.id, limit=9)
    assert (found.memory_id, found.passages) == ("m1", {"b"})


async def test_vectors_that_waited_for_a_drop_are_counted_anew(filled: PostgresStorage, raw: Raw) -> None:
    """A filler that began before a step of the drop, and waited for it, does not count what that step took."""
    assert await filled.store_passages("m1", 1, replace(vectors(SPACE.id, "a"), complete=False))
    await raw.execute("BEGIN")
    await raw.execute("UPDATE memory SET embedded_in = array_remove(embedded_in, 1) WHERE id = 'm1'")
    await raw.execute("DELETE FROM passage WHERE space = 1 AND memory = (SELECT number FROM memory WHERE id = 'm1')")
    storing = asyncio.ensure_future(filled.store_passages("m1", 1, vectors(SPACE.id, "b", kept=frozenset({"a"}))))
    await waits(raw)
    await raw.execute("COMMIT")
    assert await storing
    assert await half_complete(raw) == 0


# ------------------------------------------------------------ interrupted


async def test_a_drop_that_was_killed_leaves_a_whole_space_and_is_resumed(
    filled: PostgresStorage, raw: Raw, url: str, schema: str, writer: Any
) -> None:
    """Killed with -9 in the middle: the space is registered and usable, what counts as complete is; then it goes."""
    for number in range(300):
        await filled.apply(writer.create(f"n{number:03}", index=writer.index("some words", ("a", "b"))))

    async def fewer_than(count: int) -> bool:
        return (await filled.space_progress(SPACE.id)).complete < count

    process = await asyncio.create_subprocess_exec(sys.executable, "-c", DROP, url, schema)
    try:
        await until(lambda: fewer_than(300))
        process.send_signal(signal.SIGKILL)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    assert process.returncode == -signal.SIGKILL, "it came to its end"
    assert (await filled.space_progress(SPACE.id)).complete > 0
    assert await half_complete(raw) == 0
    assert [one.space for one in await filled.list_spaces()] == [SPACE, OTHER]
    (first, *_) = await filled.lease_unembedded(SPACE.id, after=None, limit=9, lease=HOUR)
    assert await filled.store_passages(first.memory_id, first.version, vectors(SPACE.id, "a", "b"))
    assert await filled.drop_space(SPACE.id)
    assert await traces(raw) == 0
    assert (await filled.space_progress(OTHER.id)).complete == MEMORIES


async def test_of_two_who_drop_a_space_at_once_one_did_it(
    filled: PostgresStorage, second: PostgresStorage, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is left."""
    monkeypatch.setattr(spaces, "_PAGE", 1)
    answers = await asyncio.gather(*(one.drop_space(SPACE.id) for one in (filled, second, filled, second)))
    assert sorted(answers) == [False, False, False, True]
    assert await traces(raw) == 0
