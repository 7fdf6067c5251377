"""Several processes on one file: they write at once, one is killed, and they bring a new file up to date together."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import Any

import pytest

from muniment.errors import MunimentError, VersionConflict
from muniment.ports import Audience, Create, Revise, Storage, TokenStorage
from muniment_storage_sqlite.apart import Apart
from muniment_storage_sqlite.database import Database
from muniment_storage_sqlite.schema import STEPS

Opened = Callable[..., AbstractAsyncContextManager[Storage]]
Creation = Callable[[str, str], Create]
Revision = Callable[[str, int, str, str], Revise]
OWNER = "alice"
EACH = 30
"""Edits that each process makes."""


async def test_two_processes_edit_one_memory_at_once(path: Path, creation: Creation, revision: Revision) -> None:
    """Each edit is at the version that it named: none is lost, and the trail has every version once."""
    (one, first), (two, second) = await asyncio.gather(Apart.start(path), Apart.start(path))
    try:
        await first.apply(creation("m", "begun"))
        conflicts = await asyncio.gather(edit(first, "first", revision), edit(second, "second", revision))
        facts = await second.load(Audience(OWNER), "m")
    finally:
        await one.end()
        await two.end()

    assert facts is not None
    assert facts.memory.version == 1 + 2 * EACH
    assert sum(conflicts) > 0, "they never met"
    assert rows(path, "SELECT version FROM audit ORDER BY version") == [(n,) for n in range(1, 2 + 2 * EACH)]
    assert rows(path, "SELECT actor, count(*) FROM audit WHERE version > 1 GROUP BY actor ORDER BY actor") == [
        ("first", EACH),
        ("second", EACH),
    ]


async def test_a_write_does_not_wait_for_the_noting_of_a_use(
    path: Path, opened: Opened, creation: Creation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While another process holds the lock each asks for it by itself, so that neither waits twice as long."""
    asked = threading.Semaphore(0)
    transaction: Callable[..., Any] = vars(Database)["_transaction"]

    def asking(*given: Any) -> Any:
        asked.release()
        return transaction(*given)

    async with opened(path, busy_timeout=600) as storage:
        assert isinstance(storage, TokenStorage)
        monkeypatch.setattr(Database, "_transaction", asking)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            both = [
                asyncio.create_task(work) for work in (storage.touch_token("0"), storage.apply(creation("m", "begun")))
            ]
            met = [await asyncio.to_thread(asked.acquire, timeout=20) for _ in both]
            other.execute("ROLLBACK")
        await asyncio.gather(*both)
    assert met == [True, True]


async def test_a_process_that_is_killed_in_the_middle_of_writes_leaves_whole_ones(
    path: Path, opened: Opened, creation: Creation
) -> None:
    """What it had answered is there, and whatever else is there is complete; the file is sound and can be written."""
    apart, storage = await Apart.start(path)
    answered: set[str] = set()

    async def write(memory: str) -> None:
        await storage.apply(creation(memory, f"content of {memory}"))
        answered.add(memory)
        if len(answered) == 20:
            await apart.kill()

    ended = await asyncio.gather(*(write(f"m-{n}") for n in range(300)), return_exceptions=True)

    assert {type(one) for one in ended if one is not None} != set(), "it was killed after all writes"
    assert all(isinstance(one, MunimentError) for one in ended if one is not None)
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
    stored = {memory for (memory,) in rows(path, "SELECT id FROM memories")}
    assert answered <= stored
    for part in ("SELECT memory_id FROM audit", entry("tags", "tag = 'kept'"), entry("terms", "term = 'content'")):
        assert {memory for (memory,) in rows(path, part)} <= stored
        assert len(rows(path, part)) == len(stored)
    async with opened(path) as survivor:
        assert (await survivor.apply(creation("after", "the kill"))).version == 1


async def test_processes_make_a_new_file_together(path: Path, creation: Creation) -> None:
    """Whoever comes first takes the steps, the others wait for it; all of them can write."""
    started = await asyncio.gather(*(Apart.start(path) for _ in range(4)))
    try:
        await asyncio.gather(*(storage.apply(creation(f"m-{n}", "one")) for n, (_, storage) in enumerate(started)))
    finally:
        for apart, _ in started:
            await apart.end()

    assert rows(path, "PRAGMA user_version") == [(len(STEPS),)]
    assert rows(path, "SELECT count(*) FROM memories") == [(4,)]


def test_one_of_two_migrations_takes_the_steps(path: Path) -> None:
    """``muniment migrate`` from two processes at once: one names the steps, the other finds nothing to do."""
    command = [sys.executable, "-m", "muniment", "migrate", "--storage", f"sqlite:{path}"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = sorted(one.communicate(timeout=120)[0].splitlines()[-1] for one in both)

    assert [one.returncode for one in both] == [0, 0]
    assert said == [f"{len(STEPS)} steps taken.", "The schema is up to date."]


async def test_a_cancelled_write_is_over_when_its_caller_goes_on(
    path: Path, opened: Opened, creation: Creation
) -> None:
    """It was applied, or it never is: nothing happens behind the back of whoever cancelled it."""
    async with opened(path) as storage:
        for n in range(40):
            writing = asyncio.ensure_future(storage.apply(creation(f"m-{n}", "word " * 2_000)))
            await asyncio.sleep(n * 0.0001)
            writing.cancel()
            await asyncio.wait([writing])
            at_once = rows(path, "SELECT count(*) FROM memories")
            await asyncio.sleep(0.005)
            assert rows(path, "SELECT count(*) FROM memories") == at_once


async def edit(storage: Storage, actor: str, revision: Revision) -> int:
    """Make ``EACH`` edits, each at the version that was read; how often another one was sooner."""
    made = conflicts = 0
    while made < EACH:
        facts = await storage.load(Audience(OWNER), "m")
        assert facts is not None
        try:
            await storage.apply(revision("m", facts.memory.version, f"{actor} {made}", actor))
            made += 1
        except VersionConflict:
            conflicts += 1
    return conflicts


def entry(table: str, condition: str) -> str:
    """The ids of the memories that have a search entry."""
    return f"SELECT memories.id FROM {table} JOIN memories ON memories.number = memory WHERE {condition}"


def rows(path: Path, statement: str) -> list[tuple[object, ...]]:
    """What a connection of its own reads."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement).fetchall()
