"""Whoever waits for another process says soon whom it is for and how long it still goes on; and what makes no sense to
wait for is not waited for."""

from __future__ import annotations

import logging
import re
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psutil
import pytest

from muniment.errors import StorageUnavailable
from muniment.ports import PluginContext
from muniment_storage_postgres import embedded, presence, reasons, waiting, watch, wheel
from muniment_storage_postgres.storage import create

Held = Callable[[Path], AbstractContextManager[int]]


@pytest.fixture
def soon_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait is told after a moment."""
    monkeypatch.setattr(waiting, "_PROMPT", 0.3)


def test_a_wait_is_told_after_three_seconds_and_then_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each time with its end, if it has one."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    bounded, endless = waiting.Wait(60.0), waiting.Wait()
    for second in range(60):
        now = 100.0 + second
        if bounded.is_due:
            bounded.tell("one")
    now = 105.0
    endless.tell("all")
    assert caplog.messages == [
        *(f"waiting for one; {at} s so far, for {60 - at} s more at most" for at in (3, 6, 12, 24, 48)),
        "waiting for all; 5 s so far, for as long as it takes",
    ]


@pytest.mark.parametrize("name", [watch.EXCLUSIVE, watch.STARTING])
@pytest.mark.usefixtures("soon_told")
def test_a_held_lock_is_told_and_waited_for_in_bounds(
    fresh_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, held: Held, name: str
) -> None:
    """Who waits for another process soon names it and how long it still waits, and gives up with what to do."""
    monkeypatch.setattr(presence, "_PATIENCE", 1.4)
    lock = fresh_dir / ".postgres-muniment" / name
    with held(lock) as pid, pytest.raises(StorageUnavailable, match=rf"Process {pid} \(.*{lock}.*`kill {pid}`"):
        embedded.server(fresh_dir / "postgres").start()
    assert caplog.records[0].levelno == logging.WARNING
    assert f"waiting for process {pid} (" in caplog.messages[0]
    assert str(lock) in caplog.messages[0]
    assert re.search(r"; \d s so far, for [01] s more at most$", caplog.messages[0])


def test_a_process_that_is_stopped_is_to_be_let_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other signal but SIGKILL would reach it."""

    def status(_: psutil.Process) -> str:
        return psutil.STATUS_STOPPED

    monkeypatch.setattr(psutil.Process, "status", status)
    pid = psutil.Process().pid
    assert waiting.named([pid]).endswith("which is stopped)")
    assert waiting.remedy([pid], Path("lock")) == f"let it go on (`kill -CONT {pid}`) or end it (`kill -KILL {pid}`)"


def test_a_lock_whose_holder_cannot_be_seen(tmp_path: Path) -> None:
    """Nobody is named; how to find out is."""
    assert waiting.holders(tmp_path / "lock") == ()
    assert waiting.named(()) == "another process"
    assert f"fuser {tmp_path / 'lock'}" in waiting.remedy((), tmp_path / "lock")


@pytest.mark.usefixtures("soon_told")
def test_a_start_that_takes_long_is_told(
    fresh_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With the process that starts the server; the refusal is a sentence although nothing else was said."""
    (tmp_path / "slow.py").write_text("import time; time.sleep(60)")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(wheel, "PACKAGE", "slow")
    monkeypatch.setattr(embedded, "_START_PATIENCE", 1.5)
    with pytest.raises(StorageUnavailable, match="does not start"):
        embedded.server(fresh_dir / "postgres").start()
    assert f"to make the data of a PostgreSQL in {fresh_dir / 'postgres'}" in caplog.text
    assert caplog.messages[0].startswith("waiting for process ")


def test_nothing_that_was_said_is_no_reason(tmp_path: Path) -> None:
    """A start that failed without a word is a refusal all the same."""
    assert "it gave no reason" in str(reasons.refusal(tmp_path, ""))
    assert "(alone)" in str(reasons.refusal(tmp_path, "alone"))


@pytest.mark.parametrize("whole", [True, False], ids=["with its locks", "the data alone"])
async def test_a_directory_that_was_deleted_under_its_server(
    place: Any, whole: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The next start does not wait until that server notices it: it ends it, says so and makes new data; whoever used
    it goes on in those."""
    client = await place.opened_idle()
    assert await client.ask("write one") == "written"
    deleted = psutil.Process(place.server())
    for gone in (place.directory, *([place.beside] if whole else [])):
        shutil.rmtree(gone)
    storage = create(PluginContext("embedded:", place.data_dir, {"partitions": 2}))
    await storage.open()
    try:
        assert not deleted.is_running() or deleted.status() == psutil.STATUS_ZOMBIE
        assert f"{place.directory} had been deleted while its PostgreSQL ran as process {deleted.pid}" in caplog.text
        assert "tried again" not in caplog.text
        assert await client.ask("count") == "0"
        assert await client.ask("write two") == "written"
        assert await client.end() == 0
    finally:
        await storage.close()
    assert await place.empty(5)


async def test_the_last_one_ends_the_server_of_a_deleted_directory(place: Any) -> None:
    """At once, and nothing is left."""
    client = await place.opened_idle()
    shutil.rmtree(place.directory)
    assert await client.end() == 0
    assert await place.empty(5)
