"""A call that is cancelled, once or twice, is over when CancelledError leaves it; engines may share one storage."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from muniment.errors import StorageUnavailable
from muniment_storage_sqlite import database, schema
from muniment_storage_sqlite.database import Database
from muniment_storage_sqlite.schema import STEPS

TURNS = 20
"""Turns of the event loop that a task gets to end in, where nothing holds it up."""


class Gate:
    """Holds up a thread until it is let through."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._let_go = threading.Event()

    def pass_through(self) -> None:
        """Wait here."""
        self._reached.set()
        assert self._let_go.wait(30)

    async def reached(self) -> None:
        """Until the thread waits."""
        assert await asyncio.to_thread(self._reached.wait, 30)

    def let_go(self) -> None:
        """Let it through."""
        self._let_go.set()


@pytest.fixture
def file(path: Path) -> Database:
    """A file that is not open."""
    return Database(path, path.parent / "data", 5.0)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """What each bringing up to date waits for before it begins."""
    gate, bring_up_to_date = Gate(), schema.bring_up_to_date

    def held_up(connection: sqlite3.Connection, path: Path) -> tuple[str, ...]:
        gate.pass_through()
        return bring_up_to_date(connection, path)

    monkeypatch.setattr(database, "bring_up_to_date", held_up)
    return gate


async def test_a_write_that_is_cancelled_again_and_again_is_waited_for(file: Database) -> None:
    """However often; it is committed when CancelledError leaves, since it had begun."""
    gate = Gate()

    def write(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO scopes (key, generation) VALUES ('u:ann', 1)")
        gate.pass_through()

    await file.open()
    try:
        await ends_only_when_let_go(file.write(write), gate)
        assert await file.read(lambda connection: connection.execute("SELECT count(*) FROM scopes").fetchone()[0]) == 1
    finally:
        await file.close()


async def test_what_has_not_begun_never_does(file: Database) -> None:
    """A write that waits behind another one is cancelled at once."""
    gate, begun = Gate(), threading.Event()
    await file.open()
    try:
        first = asyncio.create_task(file.write(lambda connection: gate.pass_through()))
        await gate.reached()
        second = asyncio.create_task(file.write(lambda connection: begun.set()))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait((second,))
        assert second.cancelled()
        assert not first.done()
        gate.let_go()
        await first
    finally:
        await file.close()
    assert not begun.is_set()


async def test_a_failure_after_a_cancellation_is_told_nobody(file: Database, caplog: pytest.LogCaptureFixture) -> None:
    """What a cancelled write fails with is neither raised nor reported as forgotten."""
    gate = Gate()

    def fail(connection: sqlite3.Connection) -> None:
        gate.pass_through()
        raise StorageUnavailable("no")

    await file.open()
    try:
        await ends_only_when_let_go(file.write(fail), gate)
    finally:
        await file.close()
    assert not caplog.records


async def test_a_migration_that_is_cancelled_is_waited_for(file: Database, gate: Gate) -> None:
    """All steps are taken when CancelledError leaves, and nothing has the file open."""
    await ends_only_when_let_go(file.migrate(), gate)
    with closing(sqlite3.connect(file.path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(STEPS),)
        assert connection.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",), "somebody has it open"


async def test_opening_that_is_cancelled_leaves_nothing_open(file: Database, gate: Gate) -> None:
    """No thread and no connection, however often it is cancelled; it can be opened then."""
    before = threads()
    await ends_only_when_let_go(file.open(), gate)
    assert threads() <= before
    with closing(sqlite3.connect(file.path)) as connection:
        assert connection.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",), "somebody has it open"
    await file.open()
    assert await file.read(lambda connection: connection.execute("SELECT 1").fetchone()[0]) == 1
    await file.close()


async def test_closing_that_is_cancelled_closes(file: Database) -> None:
    """What runs is finished and every connection closed when CancelledError leaves."""
    gate, before = Gate(), threads()
    await file.open()
    running = asyncio.create_task(file.write(lambda connection: gate.pass_through()))
    await gate.reached()
    await ends_only_when_let_go(file.close(), gate)
    await running
    assert threads() <= before
    with pytest.raises(StorageUnavailable, match="not open"):
        await file.read(lambda connection: None)


async def test_engines_that_open_one_storage_at_once_share_it(file: Database, gate: Gate) -> None:
    """The second waits until the first has brought the file up to date, and one ``close`` leaves nothing."""
    before = threads()
    opening = [asyncio.create_task(file.open()) for _ in range(3)]
    await gate.reached()
    await turns()
    assert not any(one.done() for one in opening)
    gate.let_go()
    await asyncio.gather(*opening)
    assert await file.read(lambda connection: connection.execute("SELECT count(*) FROM memories").fetchone()[0]) == 0
    await asyncio.gather(file.close(), file.close())
    assert threads() <= before


async def test_closing_waits_for_whoever_opens(file: Database, gate: Gate) -> None:
    """So that nothing is open after it."""
    before = threads()
    opening = asyncio.create_task(file.open())
    await gate.reached()
    closing_it = asyncio.create_task(file.close())
    await turns()
    assert not closing_it.done()
    gate.let_go()
    await asyncio.gather(opening, closing_it)
    assert threads() <= before
    with pytest.raises(StorageUnavailable, match="not open"):
        await file.read(lambda connection: None)


async def ends_only_when_let_go(call: Coroutine[Any, Any, Any], gate: Gate) -> None:
    """Cancel a call three times while its thread is held up; it ends, cancelled, when that is let through."""
    task = asyncio.create_task(call)
    await gate.reached()
    try:
        for _ in range(3):
            await turns()
            task.cancel()
            await turns()
            assert not task.done(), "it left while its thread was at work"
    finally:
        gate.let_go()
    await asyncio.wait((task,))
    assert task.cancelled()


async def turns() -> None:
    """Let every task that can go on do so."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


def threads() -> set[threading.Thread]:
    """The threads of storages."""
    return {one for one in threading.enumerate() if one.name.startswith("muniment-sqlite")}
