"""The embedded server: shared by processes, stopped by the last however it ends, recovered after a kill."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from filelock import FileLock

from muniment.errors import ConfigurationError, PluginError, StorageUnavailable
from muniment.ports import Audience, PluginContext
from muniment_storage_postgres import embedded, postmaster, waiting, watch, wheel
from muniment_storage_postgres.storage import create

Soon = Callable[..., Awaitable[bool]]


async def test_two_processes_share_one_server_and_the_last_stops_it(new_place: Any) -> None:
    """Two that start at once both work, and see each other's writes; nothing runs after both ended."""
    first, second = await new_place.start(), await new_place.start()
    assert [await first.hear(), await second.hear()] == ["open", "open"]
    assert await first.ask("write one") == "written"
    assert await second.ask("count") == "1"
    pid = new_place.server()
    assert await first.end() == 0
    assert new_place.server() == pid
    assert await second.ask("write two") == "written"
    assert await second.end("leave") == 0
    assert await new_place.empty(5)


async def test_a_killed_client_does_not_keep_the_server_for_ever(place: Any) -> None:
    """The lock of a process that was killed is free, so the next clean end stops the server."""
    killed, clean = await place.opened(), await place.opened()
    assert await killed.ask("write one") == "written"
    await killed.kill()
    assert await clean.ask("count") == "1"
    assert await clean.end() == 0
    assert await place.empty(5)


@pytest.mark.parametrize("apart", [False, True], ids=["alone", "with its group"])
async def test_the_last_client_that_is_killed_leaves_nothing_running(place: Any, apart: bool) -> None:
    """A process that is killed stops nothing itself; the server ends nevertheless, in peace, and what was written is
    there."""
    clients = [await place.opened(apart=apart) for _ in range(2)]
    assert await clients[0].ask("write one") == "written"
    server = psutil.Process(place.server())
    for client in clients:
        assert server.is_running()
        if apart:
            os.killpg(client.process.pid, signal.SIGKILL)
        await client.kill()
    assert await place.empty()
    assert "database system is shut down" in (place.directory / "log").read_text().splitlines()[-1]
    again = await place.opened()
    assert await again.ask("count") == "1"
    assert await again.end() == 0


async def test_who_watches_is_replaced_when_it_was_killed(place: Any) -> None:
    """There is one for a directory, and whoever comes or revives the server sees to it."""

    def watching() -> list[int]:
        return [process.pid for process in place.processes() if watch.__file__ in process.cmdline()]

    first = await place.opened()
    (one,) = watching()
    os.kill(one, signal.SIGKILL)
    second = await place.opened()
    (other,) = watching()
    assert other != one
    await first.kill()
    await second.kill()
    assert await place.empty()


async def test_a_server_that_was_killed_is_started_again(place: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The same storage goes on after kill -9 of its server, with a line in the log, and can be closed after another."""
    storage = create(PluginContext("embedded:", place.data_dir, {"partitions": 1}))
    await storage.open()
    try:
        pid = place.server()
        os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.5)  # the connections outlive the first process for a moment, and still answer
        assert await storage.find_projects(Audience("ann"), "none") == []
        again = place.server()
        assert again not in (None, pid)
        assert "was lost; connecting again" in caplog.text
        assert "psycopg.pool" not in {record.name for record in caplog.records}
        os.kill(again, signal.SIGKILL)
    finally:
        await storage.close()
    await storage.open()
    await storage.close()
    assert await place.empty(5)


async def test_the_last_stops_a_server_that_another_revived(place: Any) -> None:
    """After kill -9 of the server one process starts it again and others join it; whoever is last stops that one."""
    first, *others = clients = [await place.opened() for _ in range(3)]
    os.kill(place.server(), signal.SIGKILL)
    await asyncio.sleep(0.5)
    assert [await client.ask("count") for client in clients] == ["0"] * 3
    revived = place.server()
    assert revived is not None
    assert await first.end() == 0
    for client in others:
        assert place.server() == revived
        assert await client.end() == 0
    assert await place.empty(5)


async def test_nothing_comes_to_life_after_the_last_stop(place: Any) -> None:
    """A call that is still under way when a process leaves does not start a server that nobody would stop."""
    server = embedded.server(place.directory)
    server.start()
    server.stop()
    with pytest.raises(StorageUnavailable, match="closed"):
        server.revive()
    assert await place.empty(5)


async def test_a_wait_for_the_lock_can_be_given_up(fresh_dir: Path) -> None:
    """A start that is cancelled while another process has the lock ends at once."""
    (fresh_dir / ".postgres-muniment").mkdir()
    with FileLock(fresh_dir / ".postgres-muniment" / "lock"):
        opening = asyncio.ensure_future(create(PluginContext("embedded:", fresh_dir)).open())
        await asyncio.sleep(0.5)
        opening.cancel()
        async with asyncio.timeout(5):
            with pytest.raises(asyncio.CancelledError):
                await opening


async def test_a_start_that_was_killed_is_waited_for(new_place: Any) -> None:
    """What a killed process had begun goes on to its end before the next one looks at the directory."""
    new_place.beside.mkdir()
    waited = threading.Event()
    server = embedded.server(new_place.directory)
    with FileLock(new_place.beside / watch.STARTING):
        starting = asyncio.ensure_future(asyncio.to_thread(server.start, waited))
        await asyncio.sleep(0.5)
        assert not starting.done()
        assert not new_place.directory.exists()
    assert "host=" in await starting
    await asyncio.to_thread(server.stop)


async def test_a_server_that_somebody_else_started_is_left_alone(place: Any, soon: Soon) -> None:
    """It is refused with its process, and goes on."""
    client = await place.opened()
    program = psutil.Process(place.server()).exe()
    assert await client.end() == 0
    (sockets := place.data_dir / "sockets").mkdir()
    sockets.chmod(0o777)
    user = place.directory.owner() if os.geteuid() == 0 else None
    arguments = [program, "-D", str(place.directory), "-k", str(sockets), "-h", ""]
    null = subprocess.DEVNULL
    other = await asyncio.to_thread(subprocess.Popen, arguments, user=user, stderr=null, stdout=null)
    try:
        assert await soon((sockets / ".s.PGSQL.5432").exists)
        with pytest.raises(ConfigurationError, match=f"process {other.pid}.*kill -INT {other.pid}"):
            await create(PluginContext("embedded:", place.data_dir)).open()
        assert other.poll() is None
    finally:
        other.send_signal(signal.SIGINT)
        await asyncio.to_thread(other.wait, 30)


async def test_a_recovery_that_takes_long_is_called_so(
    place: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that is not ready yet is no reason to choose another directory; it is left to go on, and stopped when it
    has recovered and nobody has come."""
    client = await place.opened()
    assert await client.ask("write one") == "written"
    os.kill(place.server(), signal.SIGKILL)
    await client.kill()
    assert await place.empty()
    going_on = place.data_dir / "going-on"
    going_on.touch()
    (place.directory / "recovery.signal").touch(0o666)
    with (place.directory / "postgresql.auto.conf").open("a") as settings:
        settings.write(f"restore_command = 'while test -e {going_on}; do sleep 0.1; done; false'\nhot_standby = off\n")
    monkeypatch.setattr(embedded, "_START_PATIENCE", 3.0)
    monkeypatch.setattr(waiting, "_PROMPT", 1.0)
    with pytest.raises(StorageUnavailable, match=r"still recovering.*try again") as caught:
        await create(PluginContext("embedded:", place.data_dir)).open()
    assert "choose another" not in str(caught.value)
    found = postmaster.running(place.directory)
    assert found is not None
    assert not found.ready
    assert f"waiting for process {found.pid} (postgres), the PostgreSQL in {place.directory}, to recover" in caplog.text
    going_on.unlink()
    assert await place.empty()
    assert "database system is shut down" in (place.directory / "log").read_text().splitlines()[-1]
    again = await place.opened()
    assert await again.ask("count") == "1"
    assert await again.end() == 0


@pytest.mark.parametrize("package", ["a_package_that_is_not_there", "this"])
def test_a_missing_or_broken_package_is_named(
    fresh_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    """The embedded server's package may be left out of an installation, or not fit the machine."""
    (tmp_path / "this.py").write_text("import a_library_that_is_not_there")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(wheel, "PACKAGE", package)
    with pytest.raises(PluginError, match="pip install"):
        embedded.server(fresh_dir / "postgres").start()
    assert not (fresh_dir / "postgres" / "PG_VERSION").exists()
